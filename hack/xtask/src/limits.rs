//! The table of limits: each row's value is that of the constant or field that it names, its factor is the quotient of limit and largest
//! known value, and its flag and its tests exist.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::source;

const PAGE: &str = "docs/internals/limits.md";
const BEGIN: &str = "<!-- limits: checked by xtask -->";
const END: &str = "<!-- end of limits -->";
/// The least factor between a limit and the largest known real value.
const LEAST_FACTOR: f64 = 4.0;
/// How far the factor of a row may be from the quotient: most are rounded down to whole numbers.
const ROUNDED: std::ops::RangeInclusive<f64> = 0.85..=1.01;

/// Fails with one line for each row that differs from the code.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let (_, table) = page.split_once(BEGIN).with_context(|| format!("{PAGE} has no line {BEGIN}"))?;
    let (table, _) = table.split_once(END).with_context(|| format!("{PAGE} has no line {END}"))?;
    let mut paths = Vec::new();
    for folder in ["crates", "tests"].map(Path::new) {
        for package in std::fs::read_dir(root.join(folder))? {
            source::collect(root, &folder.join(package?.file_name()), "rs", &mut paths)?;
        }
    }
    let sources: Vec<String> =
        paths.iter().map(|path| std::fs::read_to_string(root.join(path))).collect::<Result<_, _>>()?;
    let is_test = |name: &str| sources.iter().any(|text| text.contains(&format!("fn {name}(")));
    let is_flag = |name: &str| sources.iter().any(|text| text.contains(&format!("{name:?} => ")));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let rows = table.lines().filter(|line| line.contains('`'));
    let mut faults: Vec<String> = rows.flat_map(|row| faults(row, &read, &is_flag, &is_test)).collect();
    let named = sources.iter().flat_map(|text| flags(text));
    let missing = named.filter(|flag| !table.contains(&format!("`{flag}`")));
    faults.extend(missing.map(|flag| format!("no row has the flag {flag}")));
    ensure!(faults.is_empty(), "{PAGE} differs from the code:\n  {}", faults.join("\n  "));
    Ok(())
}

/// The names for `--limit` that the source reads.
fn flags(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| {
        let (name, _) = line.trim().strip_prefix('"')?.split_once("\" => ")?;
        ["image-", "catalog-", "bundle-"].iter().any(|start| name.starts_with(start)).then_some(name)
    })
}

fn faults(
    row: &str,
    read: &dyn Fn(&str) -> String,
    is_flag: &dyn Fn(&str) -> bool,
    is_test: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [what, limit, largest, factor, flag, place, tests] = cells[..] else {
        return vec![format!("not a row: {row}")];
    };
    let [path, name] = quoted(place)[..] else { return vec![format!("{what}: names no constant")] };
    let mut found = Vec::new();
    if !read(path).lines().any(|line| sets(line, name, limit)) {
        found.push(format!("{what}: {name} of {path} is not {limit}"));
    }
    found.extend(factor_fault(what, limit, largest, factor));
    let flags = quoted(flag).into_iter().filter(|flag| !is_flag(flag));
    found.extend(flags.map(|flag| format!("{what}: --limit has no {flag}")));
    let tests = quoted(tests);
    if tests.is_empty() {
        found.push(format!("{what}: names no test"));
    }
    let absent = tests.into_iter().filter(|test| !is_test(test));
    found.extend(absent.map(|test| format!("{what}: there is no test {test}")));
    found
}

/// What is wrong with the factor of a row. Both cells are "–" if there is nothing real to compare with.
fn factor_fault(what: &str, limit: &str, largest: &str, factor: &str) -> Option<String> {
    if (largest, factor) == ("–", "–") {
        return None;
    }
    let Some(claimed) = factor.parse::<f64>().ok().filter(|claimed| *claimed >= LEAST_FACTOR) else {
        return Some(format!("{what}: the factor {factor} is not {LEAST_FACTOR} or more"));
    };
    let (Some(most), Some(known)) = (value_of_limit(limit), value_of_known(largest)) else {
        return Some(format!("{what}: {limit:?} or {largest:?} is no number"));
    };
    let quotient = if what.ends_with("power of two") { (most - known).exp2() } else { most / known };
    let is_right = ROUNDED.contains(&(claimed / quotient));
    (!is_right)
        .then(|| format!("{what}: the limit is {quotient:.1} times the largest known value, not {factor}"))
}

/// A limit as the code has it: numbers, with `<<` or `*` between them.
fn value_of_limit(text: &str) -> Option<f64> {
    let number = |word: &str| word.replace('_', "").parse::<f64>().ok();
    let mut words = text.split_whitespace();
    let mut value = number(words.next()?)?;
    while let Some(operator) = words.next() {
        let next = number(words.next()?)?;
        value = match operator {
            "<<" => value * next.exp2(),
            "*" => value * next,
            _ => return None,
        };
    }
    Some(value)
}

/// The number at the beginning of the cell, with its unit.
fn value_of_known(cell: &str) -> Option<f64> {
    let mut words = cell.split_whitespace();
    let number: f64 = words.next()?.replace(',', "").parse().ok()?;
    let unit = match words.next() {
        Some("GB") => 1e9,
        Some("MB") => 1e6,
        Some("kB") => 1e3,
        _ => 1.0,
    };
    Some(number * unit)
}

/// Whether the line gives the constant or field of this name this value.
fn sets(line: &str, name: &str, value: &str) -> bool {
    let line = ["pub(crate) ", "pub(super) ", "pub "]
        .iter()
        .fold(line.trim(), |line, start| line.trim_start_matches(start));
    let assigned = match line.strip_prefix("const ") {
        Some(constant) => constant.strip_prefix(name).and_then(|rest| rest.split_once("= ")),
        None => line
            .split_once(&format!("{name}: "))
            .filter(|(before, _)| before.is_empty() || before.ends_with(' '))
            .map(|(_, rest)| ("", rest)),
    };
    assigned
        .is_some_and(|(_, rest)| rest.strip_prefix(value).is_some_and(|end| end.starts_with([';', ',', ' '])))
}

/// The parts between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_compare_rows_with_the_code() {
        let read = |_: &str| {
            "pub const MAX_X: usize = 4 << 20;\n    layers: 500,\n    f: L { document_bytes: 8 << 20, ..d },\n".to_owned()
        };
        let is_test = |name: &str| name == "t";
        let row = |limit: &str, name: &str, test: &str| {
            let row = format!("| x | {limit} | – | – | `x-bytes` | `a.rs` `{name}` | {test} |");
            faults(&row, &read, &|name| name == "x-bytes", &is_test)
        };
        for (limit, name) in [("4 << 20", "MAX_X"), ("500", "layers"), ("8 << 20", "document_bytes")] {
            assert!(row(limit, name, "`t`").is_empty(), "{name}");
        }
        assert_eq!(row("5 << 20", "MAX_X", "`t`"), ["x: MAX_X of a.rs is not 5 << 20"]);
        assert_eq!(row("50", "layers", "`t`"), ["x: layers of a.rs is not 50"]);
        assert_eq!(row("500", "layers", "`u`"), ["x: there is no test u"]);
        assert_eq!(row("500", "layers", "–"), ["x: names no test"]);
        let unknown = "| x | 500 | 125 | 4 | `y` | `a.rs` `layers` | `t` |";
        assert_eq!(faults(unknown, &read, &|_| false, &is_test), ["x: --limit has no y"]);
    }

    #[test]
    fn limits_that_have_a_flag_are_found() {
        let source = "match name {\n    \"image-ratio\" => &mut self.ratio,\n    \"bundle-bytes\" => {\n    \"other\" => x,\n    _ => y,\n}\n";
        assert_eq!(flags(source).collect::<Vec<_>>(), ["image-ratio", "bundle-bytes"]);
    }

    #[test]
    fn limits_have_the_factor_of_their_row() {
        for (what, limit, largest, factor, want) in [
            ("x", "500", "125", "4", ""),
            ("x", "500", "110 (an estimate)", "4.5", ""),
            ("x", "1_000_000", "60,000", "16", ""),
            ("x", "64 * 1024", "15.9 kB", "4.1", ""),
            ("x", "8 << 30", "2 GB (estimate)", "4", ""),
            ("window, power of two", "23", "21 (of buildkit)", "4", ""),
            ("x", "500", "–", "–", ""),
            ("x", "500", "128", "3.9", "x: the factor 3.9 is not 4 or more"),
            ("x", "500", "1", "many", "x: the factor many is not 4 or more"),
            ("x", "500", "1", "–", "x: the factor – is not 4 or more"),
            ("x", "500", "–", "4", "x: \"500\" or \"–\" is no number"),
            ("x", "500", "250", "4", "x: the limit is 2.0 times the largest known value, not 4"),
            ("x", "8 << 20", "1 MB", "4", "x: the limit is 8.4 times the largest known value, not 4"),
        ] {
            let found = factor_fault(what, limit, largest, factor).unwrap_or_default();
            assert_eq!(found, want, "{limit} {largest} {factor}");
        }
    }
}
