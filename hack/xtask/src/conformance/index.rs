//! The index of the conformance pages: how many rows of each have which verdict. `generate` writes it into the
//! folder's README between two marks, `verify` fails when it is not current.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::pages;
use super::verdict::{self, Conformance};
use crate::section;

const FILE: &str = "docs/internals/conformance/README.md";

/// The README with the index that the pages come to.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    Ok(vec![section::written(root, FILE, section::INDEX, &index(&pages(root)?))?])
}

/// Fails when the index does not agree with the pages.
pub(super) fn check(root: &Path) -> Result<()> {
    for (path, current) in files(root)? {
        if std::fs::read_to_string(root.join(&path))? != current {
            bail!("the index in {} differs from the pages; run `make generate`", path.display());
        }
    }
    Ok(())
}

fn index(pages: &BTreeMap<String, String>) -> String {
    let verdicts = Conformance::ALL.map(Conformance::words).join(" | ");
    let mut table =
        format!("| page | {verdicts} | rows |\n|---|{}---:|\n", "---:|".repeat(Conformance::ALL.len()));
    let mut totals = [0; Conformance::ALL.len()];
    for (path, text) in pages {
        let found: Vec<Conformance> =
            verdict::rows(text).filter_map(|(.., cell)| Conformance::parse(cell).ok()).collect();
        let counts = Conformance::ALL.map(|verdict| found.iter().filter(|found| **found == verdict).count());
        let name = path.rsplit('/').next().unwrap_or(path);
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name);
        table.push_str(&row(&format!("[{title}]({name})"), counts));
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    table + &row("all", totals)
}

fn row(name: &str, counts: [usize; Conformance::ALL.len()]) -> String {
    let columns = counts.map(|count| count.to_string()).join(" | ");
    format!("| {name} | {columns} | {} |\n", counts.iter().sum::<usize>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conformance_index_counts_rows_of_each_page() {
        let rows = "# A page\n| § | test | verdict |\n|---|---|---|\n| 1 | a | same |\n| 2 | b | same; c |\n\
                    | 3 | d | better (decision 1) |\n| 4 | | gap: you see x |\n| 5 | e | yes |\n\
                    | 6 | | out of scope: x |\n| 7 | | not applicable: x |\n| 8 | | not applicable: y |\n\n\
                    | row | failed |\n|---|---|\n| 1 | same |\n";
        let pages = BTreeMap::from([("docs/internals/conformance/p.md".to_owned(), rows.to_owned())]);
        let index = index(&pages);
        assert_eq!(
            index.lines().collect::<Vec<_>>(),
            [
                "| page | same | better | gap | out of scope | not applicable | rows |",
                "|---|---:|---:|---:|---:|---:|---:|",
                "| [A page](p.md) | 2 | 1 | 1 | 1 | 2 | 7 |",
                "| all | 2 | 1 | 1 | 1 | 2 | 7 |",
            ]
        );
    }
}
