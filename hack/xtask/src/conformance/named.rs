//! Tables that name tests without their files: a column `failed` names the tests that failed when code was broken on purpose, and a first
//! column `test` describes tests. Each of them exists in some package.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::has_test;
use crate::source;

/// One line for each name of a page that is not the name of a test.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for package in source::packages(root)? {
        source::collect(root, &package.folder, "rs", &mut paths)?;
    }
    let read = |path: &PathBuf| {
        std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {}", path.display()))
    };
    let sources: Vec<String> = paths.iter().map(read).collect::<Result<_>>()?;
    let is_test = |name: &str| sources.iter().any(|text| text.contains(name) && has_test(text, name));
    let pages = source::pages(root, "docs")?;
    Ok(pages.iter().flat_map(|(page, text)| faults(&page.display().to_string(), text, &is_test)).collect())
}

fn faults(page: &str, text: &str, is_test: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut column = None;
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            if !line.starts_with('|') {
                column = None;
            }
            continue;
        };
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let Some(at) = column else {
            let names_tests = |(at, cell): (usize, &&str)| *cell == "failed" || at == 0 && *cell == "test";
            column = Some(cells.iter().enumerate().position(names_tests));
            continue;
        };
        let Some(cell) = at.and_then(|at| cells.get(at)) else { continue };
        let is_name = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let names = cell.split('`').skip(1).step_by(2).filter(is_name);
        found.extend(
            names
                .filter(|name| !is_test(name))
                .map(|name| format!("{page}:{}: there is no test {name}", number + 1)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conformance_breaks_name_tests_that_exist() {
        let page = "| row | break | failed | fix |\n|---|---|---|---|\n\
                    | `gone` | `gone` | yes: `a_b`, `a_c` | `gone` |\n\
                    | x | y | yes: `gone`, `a_b`; no: `make x` | – |\n\n\
                    | test | what |\n|---|---|\n| `gone` | `a_b` |\n\n\
                    | what | test |\n|---|---|\n| `gone` | `gone` |\n";
        let is_test = |name: &str| ["a_b", "a_c"].contains(&name);
        assert_eq!(
            faults("p.md", page, &is_test),
            ["p.md:4: there is no test gone", "p.md:8: there is no test gone"]
        );
    }
}
