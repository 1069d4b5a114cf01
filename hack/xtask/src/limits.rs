//! The table of limits: each row's value is that of the constant or field that it names, and its flag and its tests exist.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use crate::source;

const PAGE: &str = "docs/internals/limits.md";
const BEGIN: &str = "<!-- limits: checked by xtask -->";
const END: &str = "<!-- end of limits -->";
/// The least factor between a limit and the largest known real value.
const LEAST_FACTOR: f64 = 4.0;

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
    let faults: Vec<String> = table
        .lines()
        .filter(|line| line.contains('`'))
        .flat_map(|row| faults(row, &read, &is_flag, &is_test))
        .collect();
    ensure!(faults.is_empty(), "{PAGE} differs from the code:\n  {}", faults.join("\n  "));
    Ok(())
}

fn faults(
    row: &str,
    read: &dyn Fn(&str) -> String,
    is_flag: &dyn Fn(&str) -> bool,
    is_test: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let cells: Vec<&str> = row.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [what, limit, _, factor, flag, place, tests] = cells[..] else {
        return vec![format!("not a row: {row}")];
    };
    let [path, name] = quoted(place)[..] else { return vec![format!("{what}: names no constant")] };
    let mut found = Vec::new();
    if !read(path).lines().any(|line| sets(line, name, limit)) {
        found.push(format!("{what}: {name} of {path} is not {limit}"));
    }
    // "–": there is nothing real to compare with
    if factor != "–" && !factor.parse::<f64>().is_ok_and(|factor| factor >= LEAST_FACTOR) {
        found.push(format!("{what}: the factor {factor} is not {LEAST_FACTOR} or more"));
    }
    let flags = quoted(flag).into_iter().filter(|flag| !is_flag(flag));
    found.extend(flags.map(|flag| format!("{what}: --limit has no {flag}")));
    found.extend(
        quoted(tests)
            .into_iter()
            .filter(|test| !is_test(test))
            .map(|test| format!("{what}: there is no test {test}")),
    );
    found
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
            let row = format!("| x | {limit} | 1 | 4 | `x-bytes` | `a.rs` `{name}` | `{test}` |");
            faults(&row, &read, &|name| name == "x-bytes", &is_test)
        };
        for (limit, name) in [("4 << 20", "MAX_X"), ("500", "layers"), ("8 << 20", "document_bytes")] {
            assert!(row(limit, name, "t").is_empty(), "{name}");
        }
        assert_eq!(row("5 << 20", "MAX_X", "t"), ["x: MAX_X of a.rs is not 5 << 20"]);
        assert_eq!(row("50", "layers", "t"), ["x: layers of a.rs is not 50"]);
        assert_eq!(row("500", "layers", "u"), ["x: there is no test u"]);
        let unknown = "| x | 500 | 1 | – | `y` | `a.rs` `layers` | `t` |";
        assert_eq!(faults(unknown, &read, &|_| false, &is_test), ["x: --limit has no y"]);
        for factor in ["3.9", "many"] {
            let small = format!("| x | 500 | 1 | {factor} | – | `a.rs` `layers` | `t` |");
            let want = format!("x: the factor {factor} is not 4 or more");
            assert_eq!(faults(&small, &read, &|_| false, &is_test), [want]);
        }
    }
}
