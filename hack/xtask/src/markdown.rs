//! The form of pages: one title, which comes first; headings that leave out no level and are unique in a page, since links name them;
//! no white space at the end of a line, no tab, no two blank lines. The first page of the repository stays short.
//!
//! Links and fenced blocks are checked elsewhere (`links`, the tests of the documentation).

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::{links, source};

/// Headings down to this level are unique in a page.
const NAMED: usize = 3;
/// The first page, and the number of lines that it may have.
const FRONT: (&str, usize) = ("README.md", 120);

/// Fails with one line for each fault.
pub(crate) fn check(root: &Path) -> Result<()> {
    let pages = source::pages(root, "")?;
    let found: Vec<String> = pages
        .iter()
        .flat_map(|(page, text)| {
            let all = faults(text).into_iter().chain(too_long(page, text));
            all.map(|fault| format!("{}:{fault}", page.display()))
        })
        .collect();
    ensure!(found.is_empty(), "faults in the form of pages:\n  {}", found.join("\n  "));
    Ok(())
}

fn too_long(page: &Path, text: &str) -> Option<String> {
    let (front, limit) = FRONT;
    let lines = text.lines().count();
    (page == Path::new(front) && lines > limit).then(|| format!("{lines}: at most {limit} lines"))
}

fn faults(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.ends_with(char::is_whitespace) || line.contains('\t') {
            found.push(format!("{}: white space at the end, or a tab", at + 1));
        }
    }
    if !text.ends_with('\n') || text.ends_with("\n\n") || text.contains("\n\n\n") {
        found.push("1: a page ends with one line break and has no two blank lines together".to_owned());
    }
    let mut above = 0;
    let mut titles = BTreeSet::new();
    for (number, line) in links::prose(text) {
        let title = line.trim_start_matches('#');
        let level = line.len() - title.len();
        if level == 0 || !title.starts_with(' ') {
            continue;
        }
        if level > above + 1 {
            found.push(format!("{number}: a heading of level {level} below one of level {above}"));
        } else if level == 1 && above > 0 {
            found.push(format!("{number}: a second title"));
        }
        if level <= NAMED && !titles.insert(title) {
            found.push(format!("{number}: a second heading{title}"));
        }
        above = level;
    }
    if above == 0 {
        found.push("1: no title".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_first_page_stays_short() {
        let lines = "words\n".repeat(121);
        assert_eq!(too_long(Path::new("README.md"), &lines).as_deref(), Some("121: at most 120 lines"));
        assert_eq!(too_long(Path::new("README.md"), &lines[6..]), None);
        assert_eq!(too_long(Path::new("docs/README.md"), &lines), None);
    }

    #[test]
    fn markdown_faults_are_named_with_their_lines() {
        assert_eq!(faults("<!-- made -->\n# A\n\n## B\n\n```text\n# no heading\n```\n\n## C\n"), [""; 0]);
        for (text, want) in [
            ("words\n", "1: no title"),
            ("# A \n", "1: white space at the end, or a tab"),
            ("# A\n\n\tb\n", "3: white space at the end, or a tab"),
            ("# A", "1: a page ends with one line break and has no two blank lines together"),
            ("# A\n\n\nb\n", "1: a page ends with one line break and has no two blank lines together"),
            ("# A\n### B\n", "2: a heading of level 3 below one of level 1"),
            ("# A\n## B\n# C\n", "3: a second title"),
            ("# A\n## B\n## B\n", "3: a second heading B"),
        ] {
            assert_eq!(faults(text), [want], "{text:?}");
        }
    }
}
