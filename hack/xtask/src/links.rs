//! Links between the repository's own pages: the file is there, and so is the heading that a `#fragment` names.
//!
//! Links to other places are not followed: a check of a change must not depend on the network.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, ensure};

use crate::source;

/// Fails with one line for each link that leads nowhere.
pub(crate) fn check(root: &Path) -> Result<()> {
    let pages = source::pages(root, "")?;
    let exists = |path: &Path| root.join(path).exists();
    let broken: Vec<String> =
        pages.iter().flat_map(|(page, text)| faults(page, text, &pages, &exists)).collect();
    ensure!(broken.is_empty(), "links that lead nowhere:\n  {}", broken.join("\n  "));
    Ok(())
}

fn faults(
    page: &Path,
    text: &str,
    pages: &BTreeMap<PathBuf, String>,
    exists: &dyn Fn(&Path) -> bool,
) -> Vec<String> {
    let mut found = Vec::new();
    for (number, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, fragment) = target.split_once('#').unwrap_or((target, ""));
        let goal = if path.is_empty() {
            Some(page.to_owned())
        } else {
            joined(page.parent().unwrap_or(Path::new("")), path)
        };
        let place = format!("{}:{number}: {target}", page.display());
        let Some(goal) = goal else {
            found.push(format!("{place} leaves the repository"));
            continue;
        };
        if !exists(&goal) {
            found.push(format!("{place}: there is no {}", goal.display()));
        } else if !fragment.is_empty()
            && let Some(text) = pages.get(&goal)
            && !headings(text).any(|heading| heading == fragment)
        {
            found.push(format!("{place}: {} has no heading #{fragment}", goal.display()));
        }
    }
    found
}

/// Every `](target)` outside of code, with the number of its line.
pub(crate) fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| targets(line).into_iter().map(move |range| (number, &line[range])))
}

/// The text with another target for each `](target)` outside of code.
pub(crate) fn with_targets(text: &str, target: impl Fn(&str) -> String) -> String {
    let mut fenced = false;
    let mut changed = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        let mut line = line.to_owned();
        if !fenced && !fence {
            for range in targets(&line).into_iter().rev() {
                let new = target(&line[range.clone()]);
                line.replace_range(range, &new);
            }
        }
        changed += &line;
    }
    changed
}

/// Where the targets of a line's links are.
fn targets(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut code = false;
    let mut from = 0;
    while let Some(at) = line[from..].find(['`', ']']).map(|at| from + at) {
        from = at + 1;
        if line[at..].starts_with('`') {
            code = !code;
        } else if !code
            && line[from..].starts_with('(')
            && let Some(end) = line[from..].find(')')
        {
            let target = &line[from + 1..from + end];
            let start = from + 1 + target.len() - target.trim_start().len();
            found.push(start..start + target.trim().len());
        }
    }
    found
}

/// The lines outside of fenced code, numbered from one.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((number + 1, line))
    })
}

/// The anchors that a page's headings get: lower case, spaces to hyphens, other marks gone.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len() && title.starts_with(' ')).then(|| {
            title
                .trim()
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    '-' | '_' => Some(c),
                    c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
                    _ => None,
                })
                .collect()
        })
    })
}

/// `path` from `folder`, without `..`; nothing when it leads out of the root.
pub(crate) fn joined(folder: &Path, path: &str) -> Option<PathBuf> {
    let mut goal = PathBuf::new();
    for component in folder.join(path).components() {
        match component {
            Component::Normal(name) => goal.push(name),
            Component::CurDir => {}
            Component::ParentDir if goal.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(goal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_targets_are_replaced_outside_of_code() {
        let text = "[a](b.md) `[c](d.md)` [e]( f.md )\n```\n[g](h.md)\n```\n![i](j.svg)";
        let want = "[a](../b.md) `[c](d.md)` [e]( ../f.md )\n```\n[g](h.md)\n```\n![i](../j.svg)";
        assert_eq!(with_targets(text, |target| format!("../{target}")), want);
    }

    #[test]
    fn links_names_each_kind_of_broken_link() {
        let pages = BTreeMap::from([
            (
                PathBuf::from("docs/a.md"),
                "# A page\n[b](b.md) [top](#a-page) [root](../README.md#what-it-is-11)\n\
                 [gone](gone.md) [no](b.md#nothing) [out](../../x) [web](https://example.com/x)\n\
                 `[code](nowhere)` then [here](#nowhere)\n```\n[code](gone.md)\n# no heading\n```\n[fence](#no-heading)\n"
                    .to_owned(),
            ),
            (PathBuf::from("docs/b.md"), "## One\n".to_owned()),
            (PathBuf::from("README.md"), "### What it is (1.1)\n".to_owned()),
        ]);
        let exists = |path: &Path| pages.contains_key(path);
        let page = Path::new("docs/a.md");
        let want = [
            "docs/a.md:3: gone.md: there is no docs/gone.md",
            "docs/a.md:3: b.md#nothing: docs/b.md has no heading #nothing",
            "docs/a.md:3: ../../x leaves the repository",
            "docs/a.md:4: #nowhere: docs/a.md has no heading #nowhere",
            "docs/a.md:9: #no-heading: docs/a.md has no heading #no-heading",
        ];
        assert_eq!(faults(page, &pages[page], &pages, &exists), want);
    }
}
