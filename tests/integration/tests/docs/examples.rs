//! The files of `examples`: each is applied or read by a command of `examples/README.md`, which the walkthroughs run.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use olm_kit::repository;

use super::page;

const PAGE: &str = "examples/README.md";

/// The files, from the folder `examples`, by name.
pub(crate) fn files() -> Result<Vec<PathBuf>> {
    fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        for entry in std::fs::read_dir(root.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                walk(root, &path, found)?;
            } else {
                found.push(path);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    walk(&repository().join("examples"), Path::new(""), &mut found)?;
    found.sort();
    Ok(found)
}

/// Whether a command applies the file: by its name, or with the folder's kustomization if that lists it.
fn applied(commands: &[String], file: &Path, kustomization: &dyn Fn(&Path) -> String) -> bool {
    let name = format!("examples/{}", file.display());
    let words = || commands.iter().flat_map(|command| command.split([' ', '=', '\n']));
    let folder = file.parent().unwrap_or(Path::new(""));
    let built = words().any(|word| word == format!("examples/{}", folder.display()));
    let own = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    words().any(|word| word == name)
        || built && (own == "kustomization.yaml" || kustomization(folder).contains(own))
}

/// Whether the walkthrough runs the block, or a test that its mark names does what it describes.
fn has_a_test(block: &page::Block) -> bool {
    match &block.mark {
        None => true,
        Some(page::Mark::NotRun(reason)) => reason.contains("; covered by tests/"),
        Some(_) => false,
    }
}

#[test]
fn examples_are_run_by_their_page() -> Result<()> {
    let text = std::fs::read_to_string(repository().join(PAGE)).context(PAGE)?;
    let blocks = page::blocks(PAGE, &text)?.into_iter();
    let commands: Vec<String> =
        blocks.filter(|block| block.language == "sh" && has_a_test(block)).map(|block| block.text).collect();
    let kustomization = |folder: &Path| {
        let file = repository().join("examples").join(folder).join("kustomization.yaml");
        std::fs::read_to_string(file).unwrap_or_default()
    };
    let files = files()?;
    ensure!(files.len() > 10, "{files:?}");
    let left: Vec<_> = files
        .iter()
        .filter(|file| !file.ends_with("README.md") && !applied(&commands, file, &kustomization))
        .collect();
    ensure!(left.is_empty(), "no command of {PAGE} that is run or tested applies {left:?}");
    Ok(())
}

#[test]
fn examples_that_no_command_applies_are_found() {
    let commands = ["kubectl apply -f examples/a.yaml\nkubectl apply -k examples/set\n".to_owned()];
    let kustomization = |_: &Path| "resources: [b.yaml]".to_owned();
    let is_applied = ["a.yaml", "set/kustomization.yaml", "set/b.yaml"].map(|file| (file, true));
    let is_not = ["b.yaml", "set/c.yaml", "other/b.yaml"].map(|file| (file, false));
    for (file, want) in [is_applied, is_not].concat() {
        assert_eq!(applied(&commands, Path::new(file), &kustomization), want, "{file}");
    }
}
