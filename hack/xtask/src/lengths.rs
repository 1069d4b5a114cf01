//! Lengths of Rust files: one with more than [`MAX_LINES`] lines of code gives the reason in its header.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::source;

/// Lines that are neither blank nor a comment.
const MAX_LINES: usize = 600;
/// How the reason begins.
const REASON: &str = "Above 600 lines because ";
/// How a file begins that a program writes.
const GENERATED: &str = "// Generated from ";

/// Fails with the files that are too long.
pub(crate) fn check(root: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for package in source::packages(root)? {
        let mut paths = Vec::new();
        source::collect(root, &package.folder, "rs", &mut paths)?;
        for path in paths {
            let text = std::fs::read_to_string(root.join(&path))?;
            if code_lines(&text) > MAX_LINES && !has_reason(&text) {
                wrong.push(path.display().to_string());
            }
        }
    }
    ensure!(
        wrong.is_empty(),
        "files with more than {MAX_LINES} lines of code, and without \"{REASON}…\" in their header: {}",
        wrong.join(", ")
    );
    Ok(())
}

fn code_lines(text: &str) -> usize {
    text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

fn has_reason(text: &str) -> bool {
    let header: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    text.starts_with(GENERATED) || header.join(" ").contains(REASON)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_code_and_read_the_header() {
        assert_eq!(code_lines("//! A.\n\nfn a() {\n    // b\n    c(); // d\n}\n"), 3);
        for (text, want) in [
            ("//! A table. Above 600 lines\n//! because it is one table.\nfn a() {}\n", true),
            ("//! A table.\nfn a() {}\n//! Above 600 lines because it is one table.\n", false),
            ("// Generated from a.proto by `make generate`. Do not edit.\n", true),
            ("fn a() {}\n", false),
        ] {
            assert_eq!(has_reason(text), want, "{text}");
        }
    }
}
