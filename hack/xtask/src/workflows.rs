//! `.github/workflows`: each action is pinned by the full SHA of a commit, which docs/internals/release.md lists with how it was
//! verified; tokens have the least rights, and no checkout leaves its token behind. What the files mean is actionlint's job.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

const FOLDER: &str = ".github/workflows";
const PAGE: &str = "docs/internals/release.md";

/// Fails with one line for each fault.
pub(crate) fn check(root: &Path) -> Result<()> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(root.join(FOLDER))? {
        let path = entry?.path();
        let name = format!("{FOLDER}/{}", path.file_name().unwrap_or_default().to_string_lossy());
        files.insert(name, std::fs::read_to_string(&path)?);
    }
    let found = faults(&files, &page);
    ensure!(found.is_empty(), "workflows:\n  {}", found.join("\n  "));
    Ok(())
}

fn faults(files: &BTreeMap<String, String>, page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut used = BTreeSet::new();
    for (name, text) in files {
        for (number, line) in text.lines().enumerate() {
            let Some(action) = line.trim_start().trim_start_matches("- ").strip_prefix("uses: ") else {
                continue;
            };
            // a workflow of this repository
            if action.starts_with("./") {
                continue;
            }
            match pin(action) {
                Some(row) => {
                    used.insert(row);
                }
                None => found.push(format!(
                    "{name}:{}: {action}: name the full SHA of a commit and its version, `owner/name@<40 digits> # v1.2.3`",
                    number + 1
                )),
            }
        }
        match serde_saphyr::from_str::<Value>(text) {
            Ok(workflow) => {
                found.extend(rights(&workflow).into_iter().map(|fault| format!("{name}: {fault}")))
            }
            Err(error) => found.push(format!("{name}: {error}")),
        }
    }
    let listed: BTreeSet<String> = page.lines().filter_map(row).collect();
    for row in used.difference(&listed) {
        found.push(format!("{PAGE} has no row `{row} …`; verify the commit, and write down how"));
    }
    for row in listed.difference(&used) {
        found.push(format!("{PAGE} has the row `{row} …`, which no workflow uses"));
    }
    found
}

/// `actions/checkout@<sha> # v5.0.0` as the beginning of its row in the page.
fn pin(action: &str) -> Option<String> {
    let (name, rest) = action.split_once('@')?;
    let (sha, version) = rest.split_once(" # ")?;
    let full = sha.len() == 40 && sha.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (full && version.starts_with('v')).then(|| format!("| `{name}` | {version} | `{sha}` |"))
}

/// The first three cells of a row of the page's table.
fn row(line: &str) -> Option<String> {
    let mut cells = line.split('|').map(str::trim).skip(1);
    let (name, version, sha) = (cells.next()?, cells.next()?, cells.next()?);
    let action = format!("{}@{} # {version}", name.trim_matches('`'), sha.trim_matches('`'));
    pin(&action)
}

/// Faults in what the jobs may do.
fn rights(workflow: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let permissions = &workflow["permissions"];
    let reads = |value: &Value| value.as_str().is_some_and(|it| it == "read" || it == "none");
    if !permissions.as_object().is_some_and(|all| all.values().all(reads)) {
        found.push(
            "`permissions` of the workflow must be a map of `read`; a job that writes asks for it itself"
                .to_owned(),
        );
    }
    for (name, job) in workflow["jobs"].as_object().into_iter().flatten() {
        for step in job["steps"].as_array().into_iter().flatten() {
            let checkout =
                step["uses"].as_str().is_some_and(|action| action.starts_with("actions/checkout@"));
            if checkout && step["with"]["persist-credentials"] != false {
                found.push(format!("job {name}: actions/checkout needs `persist-credentials: false`"));
            }
            // what a pull request names would be code
            if step["run"].as_str().is_some_and(|script| script.contains("${{")) {
                found.push(format!("job {name}: a script gets values by `env`, not by `${{{{ … }}}}`"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    fn workflow(uses: &str) -> String {
        format!(
            "permissions: {{contents: read}}\njobs:\n  a:\n    steps:\n      - uses: {uses}\n        with: {{persist-credentials: false}}\n"
        )
    }

    fn faults_of(text: &str, page: &str) -> Vec<String> {
        faults(&BTreeMap::from([("ci.yaml".to_owned(), text.to_owned())]), page)
    }

    #[test]
    fn workflow_pins_and_the_page_agree() {
        let page = format!(
            "| action | version | commit | verified |\n| `actions/checkout` | v5.0.0 | `{SHA}` | x |\n"
        );
        let good = workflow(&format!("actions/checkout@{SHA} # v5.0.0"));
        assert_eq!(faults_of(&good, &page), Vec::<String>::new());
        for (text, page, fault) in [
            (workflow("actions/checkout@v5"), "", "name the full SHA"),
            (workflow(&format!("actions/checkout@{SHA}")), "", "name the full SHA"),
            (workflow("actions/checkout@0123456 # v5.0.0"), "", "name the full SHA"),
            (good.clone(), "", "has no row"),
            (workflow("./.github/workflows/ci.yaml"), page.as_str(), "which no workflow uses"),
        ] {
            let found = faults_of(&text, page);
            assert!(found.iter().any(|it| it.contains(fault)), "{fault}: {found:?}");
        }
    }

    #[test]
    fn workflow_rights_are_the_least() {
        let page = format!("| `actions/checkout` | v5.0.0 | `{SHA}` | x |\n");
        let good = workflow(&format!("actions/checkout@{SHA} # v5.0.0"));
        for (from, to, fault) in [
            ("contents: read", "contents: write", "must be a map of `read`"),
            ("permissions: {contents: read}\n", "", "must be a map of `read`"),
            ("persist-credentials: false", "fetch-depth: 0", "needs `persist-credentials: false`"),
            ("steps:\n", "steps:\n      - run: echo ${{ github.head_ref }}\n", "gets values by `env`"),
        ] {
            let found = faults_of(&good.replace(from, to), &page);
            assert!(found.len() == 1 && found[0].contains(fault), "{fault}: {found:?}");
        }
    }
}
