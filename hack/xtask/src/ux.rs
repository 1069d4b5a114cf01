//! The table of `docs/internals/ux.md`: for each complaint of a review by users what the product does today, and the test that shows it.
//!
//! No complaint is left out, every test exists in the file that the row names, and a row without a test gives the reason.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::conformance::{has_test, references};

const PAGE: &str = "docs/internals/ux.md";

/// The sections of the review, and how many complaints each has.
const SECTIONS: [(&str, usize); 10] = [
    ("2", 11),
    ("3", 25),
    ("3.26", 11),
    ("4", 13),
    ("5", 5),
    ("6", 6),
    ("7", 23),
    ("8", 20),
    ("9", 25),
    ("10", 25),
];

/// What begins the last cell of a row that names no test.
const NO_TEST: &str = "no test: ";

pub(crate) fn check(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let read = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    let wrong = faults(&text, &SECTIONS, &read);
    ensure!(wrong.is_empty(), "complaints that no test answers:\n  {}", wrong.join("\n  "));
    Ok(())
}

fn faults(text: &str, sections: &[(&str, usize)], read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let expected =
        sections.iter().flat_map(|(section, last)| (1..=*last).map(move |n| format!("{section}.{n}")));
    let mut expected = expected.peekable();
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: String| wrong.push(format!("{PAGE}:{}: {what}", number + 1));
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else { continue };
        let cells: Vec<&str> = row.split(" | ").map(str::trim).collect();
        let [item, complaint, answer, tests] = cells[..] else {
            fault(format!("has {} columns, not 4", cells.len()));
            continue;
        };
        if item == "item" {
            continue;
        }
        match expected.next() {
            Some(next) if next == item => {}
            Some(next) => fault(format!("{item} is in the place of {next}")),
            None => fault(format!("the review has no item {item}")),
        }
        if complaint.is_empty() || answer.is_empty() {
            fault(format!("{item} has no complaint or no answer"));
        }
        let named = references(tests);
        if named.is_empty() && tests.strip_prefix(NO_TEST).is_none_or(str::is_empty) {
            fault(format!("{item} names no test, and no reason after {NO_TEST:?}"));
        }
        for (file, name) in named {
            match read(file) {
                None => fault(format!("{item}: there is no file {file}")),
                Some(source) if !has_test(&source, name) => {
                    fault(format!("{item}: {file} has no test {name}"))
                }
                Some(_) => {}
            }
        }
    }
    if let Some(next) = expected.peek() {
        wrong.push(format!("{PAGE} ends before {next}"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ux_rows_are_complete_and_name_tests() {
        let read = |file: &str| (file == "a.rs").then(|| "#[test]\nfn a_b() {}\nfn helper() {}\n".to_owned());
        let head = "| item | complaint | today | shown by |\n|---|---|---|---|\n";
        let good = "| 2.1 | x | y | `a.rs::a_b` |\n";
        for (rows, want) in [
            (format!("{good}| 2.2 | x | y | no test: it is prose |\n"), None),
            (good.to_owned(), Some("ends before 2.2")),
            (format!("{good}| 2.3 | x | y | `a.rs::a_b` |\n"), Some("2.3 is in the place of 2.2")),
            (format!("{good}| 2.2 | x | y | `a.rs::helper` |\n"), Some("a.rs has no test helper")),
            (format!("{good}| 2.2 | x | y | `b.rs::a_b` |\n"), Some("there is no file b.rs")),
            (format!("{good}| 2.2 | x | y | later |\n"), Some("2.2 names no test")),
            (format!("{good}| 2.2 | x | y | no test: |\n"), Some("2.2 names no test")),
            (format!("{good}| 2.2 | x |  | `a.rs::a_b` |\n"), Some("no complaint or no answer")),
            (
                format!("{good}| 2.2 | x | `a.rs::a_b` |\n| 2.2 | x | y | `a.rs::a_b` |\n"),
                Some("has 3 columns"),
            ),
        ] {
            let got = faults(&format!("{head}{rows}"), &[("2", 2)], &read);
            match want {
                None => assert!(got.is_empty(), "{rows}: {got:?}"),
                Some(want) => assert!(got.len() == 1 && got[0].contains(want), "{rows}: {got:?}"),
            }
        }
    }
}
