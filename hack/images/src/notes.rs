//! The notes of a release: its section of CHANGELOG.md.

use anyhow::{Result, ensure};

/// The section of `version` in the text of a changelog whose sections begin with `## 1.2.3` or `## [1.2.3] - 2026-01-31`, without
/// that heading. Links to files become links to those files in `tree`, the address of the release's sources.
///
/// # Errors
/// When there is no such section, or nothing is in it.
pub fn section(changelog: &str, version: &str, tree: &str) -> Result<String> {
    let mut lines = changelog.lines().skip_while(|line| title(line) != Some(version));
    ensure!(
        lines.next().is_some(),
        "the changelog has no section `## {version}`; give the section `## Unreleased` that title and its date"
    );
    let body: Vec<&str> = lines.take_while(|line| title(line).is_none()).collect();
    let body = body.join("\n");
    ensure!(!body.trim().is_empty(), "the section `## {version}` of the changelog is empty");
    Ok(format!("{}\n", absolute(body.trim(), tree)))
}

/// The version or name of a section's heading.
fn title(line: &str) -> Option<&str> {
    let words = line.strip_prefix("## ")?.trim();
    let name = words.split([' ', '(']).next()?;
    Some(name.trim_start_matches('[').trim_end_matches(']'))
}

/// Links to files of the repository, which a page elsewhere cannot follow, as links to `tree`.
fn absolute(text: &str, tree: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, target)) = rest.split_once("](") {
        out.push_str(before);
        out.push_str("](");
        let end = target.find(')').unwrap_or(target.len());
        if !target[..end].contains("://") && !target.starts_with('#') {
            out.push_str(tree.trim_end_matches('/'));
            out.push('/');
        }
        rest = target;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\n## Unreleased\n\n- later\n\n## [1.1.0] - 2026-02-01\n\n### Added\n\n- a [page](docs/images.md#releases), \
        [site](https://example.com) and [here](#top)\n\n### Fixed\n\n- b\n\n## 1.0.0 (2026-01-01)\n\nFirst.\n\n## 0.9.0\n\n";

    #[test]
    fn notes_are_the_section_of_the_version() {
        let notes = |version| section(CHANGELOG, version, "https://example.com/tree/v1/");
        assert_eq!(
            notes("1.1.0").unwrap(),
            "### Added\n\n- a [page](https://example.com/tree/v1/docs/images.md#releases), [site](https://example.com) and [here](#top)\n\n\
             ### Fixed\n\n- b\n"
        );
        assert_eq!(notes("1.0.0").unwrap(), "First.\n");
        assert_eq!(notes("Unreleased").unwrap(), "- later\n");
        assert!(notes("1.0").unwrap_err().to_string().contains("no section `## 1.0`"));
        assert!(notes("0.9.0").unwrap_err().to_string().contains("is empty"));
    }

    #[test]
    fn notes_of_this_repository_have_no_relative_link() {
        let changelog =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../CHANGELOG.md")).unwrap();
        let newest = changelog.lines().find_map(title).unwrap();
        let notes = section(&changelog, newest, "https://example.com").unwrap();
        assert!(notes.contains("](https://example.com/docs/"));
        assert!(!notes.contains("](docs/"));
    }
}
