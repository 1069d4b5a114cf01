//! A part of a hand-written page that is generated: what stands between two marks.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The marks of an index.
pub(crate) const INDEX: [&str; 2] =
    ["<!-- index: written by `make generate` -->", "<!-- end of the index -->"];

/// The page of that path, with `content` between its marks.
pub(crate) fn written(root: &Path, page: &str, marks: [&str; 2], content: &str) -> Result<(PathBuf, String)> {
    let text = std::fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {page}"))?;
    let [begin, end] = marks;
    let text =
        replaced(&text, marks, content).with_context(|| format!("{page} lacks `{begin}` or `{end}`"))?;
    Ok((PathBuf::from(page), text))
}

fn replaced(text: &str, [begin, end]: [&str; 2], content: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{content}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_between_the_marks_is_replaced() {
        let marks = ["<!-- a -->", "<!-- b -->"];
        let new = replaced("before\n<!-- a -->\nold\n<!-- b -->\nafter\n", marks, "new\n").unwrap();
        assert_eq!(new, "before\n<!-- a -->\n\nnew\n\n<!-- b -->\nafter\n");
        assert_eq!(replaced(&new, marks, "new\n"), Some(new.clone()), "twice is the same");
        assert_eq!(replaced("no marks", marks, "new\n"), None);
    }
}
