//! The index of the conformance pages: how many rows of each say `same`, `better` or `missing`. `generate` writes it into the
//! folder's README between two marks, `verify` fails when it is not current.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::{last_cell, pages};
use crate::section;

const FILE: &str = "docs/conformance/README.md";
const BEGIN: &str = "<!-- index: written by `make generate` -->";
const END: &str = "<!-- end of the index -->";
/// What the last cell of a row begins with.
const RESULTS: [&str; 3] = ["same", "better", "missing"];

/// The README with the index that the pages come to.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    Ok(vec![section::written(root, FILE, [BEGIN, END], &index(&pages(root)?))?])
}

/// Fails when the index is not what the pages say.
pub(super) fn check(root: &Path) -> Result<()> {
    for (path, wanted) in files(root)? {
        if std::fs::read_to_string(root.join(&path))? != wanted {
            bail!("the index in {} is not what the pages say; run `make generate`", path.display());
        }
    }
    Ok(())
}

fn index(pages: &BTreeMap<String, String>) -> String {
    let mut table = "| page | same | better | missing | rows |\n|---|---:|---:|---:|---:|\n".to_owned();
    let mut totals = [0; RESULTS.len()];
    for (path, text) in pages {
        let says = |line: &str, word: &str| last_cell(line).is_some_and(|last| last.starts_with(word));
        let counts = RESULTS.map(|word| text.lines().filter(|line| says(line, word)).count());
        let name = path.rsplit('/').next().unwrap_or(path);
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name);
        table.push_str(&row(&format!("[{title}]({name})"), counts));
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    table + &row("all", totals)
}

fn row(name: &str, counts: [usize; 3]) -> String {
    let [same, better, missing] = counts;
    format!("| {name} | {same} | {better} | {missing} | {} |\n", same + better + missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_each_page_are_counted() {
        let rows = "# A page\n| § | test | result |\n|---|---|---|\n| 1 | a | same |\n| 2 | b | same; c |\n\
                    | 3 | d | **better** (decision 1) |\n| 4 | | missing: x |\n| 5 | e | yes |\nmissing | same |\n";
        let pages = BTreeMap::from([("docs/conformance/p.md".to_owned(), rows.to_owned())]);
        let index = index(&pages);
        assert_eq!(
            index.lines().skip(2).collect::<Vec<_>>(),
            ["| [A page](p.md) | 2 | 1 | 1 | 4 |", "| all | 2 | 1 | 1 | 4 |"]
        );
    }
}
