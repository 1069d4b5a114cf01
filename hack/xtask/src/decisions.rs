//! The pages of `docs/decisions`: one for each number, and an index of them in the folder's README.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{section, source};

pub(crate) const DECISIONS: &str = "docs/decisions";

/// The numbers that have a page.
pub(crate) fn numbers(root: &Path) -> BTreeSet<u32> {
    pages(root).unwrap_or_default().keys().filter_map(|name| number(name)).collect()
}

/// The README with its index. Fails if the numbers are not 1, 2, 3 and so on, or a page's title does not begin with its number.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let index = index(&pages(root)?)?;
    Ok(vec![section::written(root, &format!("{DECISIONS}/README.md"), section::INDEX, &index)?])
}

/// By the file's name.
fn pages(root: &Path) -> Result<BTreeMap<String, String>> {
    let pages = source::pages(root, DECISIONS)?.into_iter();
    let named = pages.filter_map(|(path, text)| Some((path.file_name()?.to_str()?.to_owned(), text)));
    Ok(named.filter(|(name, _)| number(name).is_some()).collect())
}

fn index(pages: &BTreeMap<String, String>) -> Result<String> {
    let mut lines = String::new();
    for (at, (name, text)) in pages.iter().enumerate() {
        let expected = format!("{:04}", at + 1);
        ensure!(
            name.starts_with(&format!("{expected}-")),
            "{DECISIONS}/{name}: the next page is {expected}-….md"
        );
        let title = text.lines().next().and_then(|line| line.strip_prefix(&format!("# {expected} ")));
        let title =
            title.with_context(|| format!("{DECISIONS}/{name}:1: the title is not `# {expected} …`"))?;
        lines += &format!("- [{} {title}]({name})\n", at + 1);
    }
    Ok(lines)
}

fn number(name: &str) -> Option<u32> {
    name.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lists_pages_in_order() {
        let index = |pages: &[(&str, &str)]| {
            let pages = pages.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
            index(&pages).map_err(|error| error.to_string())
        };
        let first = ("0001-a.md", "# 0001 A choice\n\ntext\n");
        assert_eq!(index(&[first]), Ok("- [1 A choice](0001-a.md)\n".to_owned()));
        for (pages, want) in [
            (
                &[first, ("0003-b.md", "# 0003 B\n")][..],
                "docs/decisions/0003-b.md: the next page is 0002-….md",
            ),
            (&[first, ("0001-b.md", "# 0001 B\n")], "docs/decisions/0001-b.md: the next page is 0002-….md"),
            (&[("0001-a.md", "# 0002 A\n")], "docs/decisions/0001-a.md:1: the title is not `# 0001 …`"),
        ] {
            assert_eq!(index(pages), Err(want.to_owned()));
        }
    }
}
