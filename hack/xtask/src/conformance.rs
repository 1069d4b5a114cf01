//! The tables of `docs/internals/conformance` and of `docs/threat-model.md`: every test that they name exists, and no row claims
//! anything without one.
//!
//! A test is named as `` `path/from/the/root.rs::name_of_the_function` ``. A row is a line of a table. A conformance table is
//! one whose last column is called `verdict`; [`verdict`] lists what may stand there and what each verdict needs. In the
//! threat model every row of a table with a column `test` needs one, and every file that a row names exists. Whether the test
//! proves the row is for a reader to judge: break the code for a few rows and see whether the named tests fail. [`draw`]
//! chooses the rows, the same for an equal seed. [`index`] counts the rows. [`named`] checks tables of other pages, too.

pub(crate) mod index;
mod named;
mod verdict;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::verdict::Conformance;
use crate::source;

const THREATS: &str = "docs/threat-model.md";

/// Fails with one line for each reference that leads nowhere and each claim without a test.
pub(crate) fn check(root: &Path) -> Result<()> {
    let pages = pages(root)?;
    let mut sources: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut read = |file: &str| {
        sources
            .entry(file.to_owned())
            .or_insert_with(|| std::fs::read_to_string(root.join(file)).ok())
            .clone()
    };
    let mut wrong: Vec<String> =
        pages.iter().flat_map(|(page, text)| faults(page, text, &mut read)).collect();
    let threats =
        std::fs::read_to_string(root.join(THREATS)).with_context(|| format!("cannot read {THREATS}"))?;
    wrong.extend(faults(THREATS, &threats, &mut read));
    wrong.extend(unproved(THREATS, &threats, &|file| root.join(file).exists()));
    wrong.extend(named::check(root)?);
    ensure!(wrong.is_empty(), "tables that the tests do not bear out:\n  {}", wrong.join("\n  "));
    index::check(root)
}

/// Checks, and prints each row with a gap and how many rows there are of each verdict.
pub(crate) fn print(root: &Path) -> Result<()> {
    check(root)?;
    let mut out = std::io::stdout().lock();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (page, text) in pages(root)? {
        for (number, line, cell) in verdict::rows(&text) {
            let Ok(verdict) = Conformance::parse(cell) else { continue };
            *counts.entry(verdict.words()).or_default() += 1;
            if verdict == Conformance::Gap {
                let section = line.split('|').nth(1).unwrap_or_default().trim();
                writeln!(out, "{page}:{}: {section}: {cell}", number + 1)?;
            }
        }
    }
    let counts: Vec<String> = counts.iter().map(|(words, count)| format!("{count} {words}")).collect();
    writeln!(out, "{}", counts.join(", "))?;
    Ok(())
}

/// Prints `count` rows of each page that claim something by a test: at random, equal for an equal `seed` and page. A page is
/// drawn from on its own, so that other pages may come and grow.
pub(crate) fn draw(root: &Path, count: usize, seed: u64) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for (page, text) in pages(root)? {
        writeln!(out, "{page}")?;
        for (number, line) in drawn(&page, &text, count, seed) {
            writeln!(out, "  {number}: {line}")?;
        }
    }
    Ok(())
}

fn pages(root: &Path) -> Result<BTreeMap<String, String>> {
    let pages = source::pages(root, "docs/internals/conformance")?.into_iter();
    let pages = pages.filter(|(path, _)| !path.ends_with("README.md"));
    Ok(pages.map(|(path, text)| (path.display().to_string(), text)).collect())
}

/// Numbers and texts of the drawn lines, in the page's order.
fn drawn<'a>(page: &str, text: &'a str, count: usize, seed: u64) -> Vec<(usize, &'a str)> {
    let claims = verdict::rows(text).filter(|(_, line, cell)| {
        Conformance::parse(cell).is_ok_and(Conformance::needs_test) && !references(line).is_empty()
    });
    let rows = claims.map(|(at, line, _)| (at + 1, line)).collect();
    sample(rows, count, page.bytes().fold(seed, |state, byte| mixed(state ^ u64::from(byte))))
}

/// `count` of these at random, sorted: equal for an equal `seed`.
pub(crate) fn sample<T: Ord>(mut all: Vec<T>, count: usize, seed: u64) -> Vec<T> {
    let mut state = seed;
    // the last of what is left changes places with one of them
    for left in (1..all.len()).rev() {
        state = mixed(state);
        let other = usize::try_from(state % (left as u64 + 1)).unwrap_or(0);
        all.swap(left, other);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}

/// The next number of a sequence that looks like chance (SplitMix64).
fn mixed(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

fn faults(page: &str, text: &str, read: &mut dyn FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut fault = |what: String| found.push(format!("{page}:{}: {what}", number + 1));
        for (file, name) in references(line) {
            match read(file) {
                None => fault(format!("there is no file {file}")),
                Some(source) if !has_test(&source, name) => fault(format!("{file} has no test {name}")),
                Some(_) => {}
            }
        }
    }
    for (number, line, cell) in verdict::rows(text) {
        match Conformance::parse(cell) {
            Err(fault) => found.push(format!("{page}:{}: {fault}", number + 1)),
            Ok(verdict) if verdict.needs_test() && references(line).is_empty() => {
                found.push(format!("{page}:{}: is `{}` and names no test", number + 1, verdict.words()));
            }
            Ok(_) => {}
        }
        let section = line.split('|').nth(1).unwrap_or_default().trim();
        if section.starts_with(|c: char| c.is_ascii_digit() || c == '§') {
            let fault = format!("`{section}` names no page of the specification, as `catalogd §4.2` does");
            found.push(format!("{page}:{}: {fault}", number + 1));
        }
    }
    found
}

/// Rows of the threat model without a test, and files that they name and that do not exist.
fn unproved(page: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut column = None;
    for (number, line) in text.lines().enumerate() {
        let Some(row) = line.trim().strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            column = None;
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let Some(at) = column else {
            column = Some(cells.iter().position(|cell| *cell == "test"));
            continue;
        };
        let quoted = line.split('`').skip(1).step_by(2);
        let files = quoted.filter(|text| text.contains('/') && !text.contains("::") && is_file_name(text));
        found.extend(
            files
                .filter(|file| !exists(file))
                .map(|file| format!("{page}:{}: there is no file {file}", number + 1)),
        );
        let separates = cells.iter().all(|cell| cell.starts_with('-'));
        if let (Some(at), false) = (at, separates)
            && references(cells.get(at).unwrap_or(&"")).is_empty()
        {
            found.push(format!("{page}:{}: names no test", number + 1));
        }
    }
    found
}

fn is_file_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    text.chars().all(plain) && [".rs", ".yaml", ".toml"].iter().any(|end| text.ends_with(end))
}

/// File and function of every test that a line names.
pub(crate) fn references(line: &str) -> Vec<(&str, &str)> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| {
            let (path, name) = text.rsplit_once("::")?;
            let end = path.find(".rs")? + ".rs".len();
            Some((&path[..end], name))
        })
        .collect()
}

/// Is there a function of this name that an attribute calls a test?
pub(crate) fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let defines = |line: &str| {
        let rest = line.split_once("fn ").map(|(_, rest)| rest.trim_start());
        let rest = rest.and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let places = lines.iter().enumerate().filter(|(_, line)| defines(line));
    places.into_iter().any(|(at, line)| {
        // attributes and comments above it, up to the end of what comes before
        let above = lines[..at].iter().rev().take_while(|line| !line.is_empty() && !line.ends_with('}'));
        above.chain([line]).any(|line| line.contains("test]") || line.contains("test("))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        #[tokio::test(flavor = \"multi_thread\")]
        #[expect(clippy::x)]
        async fn one_thing() {}

        fn helper() {}
        proptest! {
            /// The reason.
            #[test] fn inline(c in any()) {}

            #[test]
            // why
            fn two_things(c in any()) {}
        }
    ";

    #[test]
    fn conformance_rows_name_tests_only() {
        for (name, want) in [
            ("one_thing", true),
            ("two_things", true),
            ("inline", true),
            ("helper", false),
            ("one", false),
            ("", false),
        ] {
            assert_eq!(has_test(SOURCE, name), want, "{name}");
        }
    }

    #[test]
    fn conformance_names_each_kind_of_error() {
        let page = "| § | what | test | verdict |\n|---|---|---|---|\n\
                    | x §1 | a | `a/b.rs::one_thing`, `a/b.rs::tests::two_things` | same |\n\
                    | x §2 | b `x` | none | gap: you see no x |\n\
                    | x §3 | c | `a/b.rs::helper` | same |\n\
                    | x §4 | d | `gone.rs::x` | better (decision 3) |\n\
                    | x §5 | e `a::b` \\| f | by reading | better: x |\n\
                    | x §6 | g | `a/b.rs::one_thing` | missing: no time |\n\
                    | x §7 | h | `a/b.rs::one_thing` | gap: no time |\n\
                    | §8 | i | `a/b.rs::one_thing` | same |\n\
                    The same in prose, and `a/b.rs`.";
        let mut read = |file: &str| (file == "a/b.rs").then(|| SOURCE.to_owned());
        assert_eq!(
            faults("p.md", page, &mut read),
            [
                "p.md:5: a/b.rs has no test helper",
                "p.md:6: there is no file gone.rs",
                "p.md:7: is `better` and names no test",
                "p.md:8: the verdict `missing: no time` begins with none of: same, better, gap, out of scope, \
                 not applicable",
                "p.md:9: `gap: no time` does not begin with `gap: you see `, followed by what a user would notice",
                "p.md:10: `§8` names no page of the specification, as `catalogd §4.2` does",
            ]
        );
    }

    #[test]
    fn conformance_draw_is_reproducible_and_takes_claims() {
        let rows: String = (0..40).map(|i| format!("| {i} | x | `a/b.rs::one_thing` | same |\n")).collect();
        let page = format!(
            "| § | what | test | verdict |\n|---|---|---|---|\n{rows}| 41 | y | `a/b.rs::one_thing` | gap: you see x |\n"
        );
        let numbers = |page_name, count, seed| -> Vec<usize> {
            drawn(page_name, &page, count, seed).into_iter().map(|(number, _)| number).collect()
        };
        let ten = numbers("p.md", 10, 7);
        assert_eq!(ten.len(), 10);
        assert!(ten.is_sorted() && ten.iter().all(|number| (3..43).contains(number)), "{ten:?}");
        assert_eq!(numbers("p.md", 10, 7), ten);
        assert_ne!(numbers("p.md", 10, 8), ten);
        assert_ne!(numbers("q.md", 10, 7), ten);
        assert_eq!(numbers("p.md", 100, 7), (3..43).collect::<Vec<_>>());
    }

    #[test]
    fn conformance_threats_have_tests_and_files() {
        let page = "| who | may |\n|---|---|\n| a | b |\n\n\
                    | threat | done | test | left |\n|---|---|---|---|\n\
                    | 1 | x (`a/b.rs`) | `a/b.rs::one_thing` | none |\n\
                    | 2 | x (`a/gone.rs`) | `a/b.rs::one_thing` | none |\n\
                    | 3 | `a/b.rs::one_thing` | by reading | `a/x` |\n";
        assert_eq!(
            unproved("p.md", page, &|file| file == "a/b.rs"),
            ["p.md:8: there is no file a/gone.rs", "p.md:9: names no test"]
        );
    }
}
