//! Checks that everything that commands name exists, also in prose, tables and blocks that do not run.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_kit::{built, repository};

use super::coverage::Targets;
use super::page;

/// Commands of a page with their positions: lines of blocks, and code within prose.
pub(crate) fn commands(name: &str, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for block in page::blocks(name, text)? {
        match block.language.as_str() {
            "sh" => found.extend(block.text.replace("\\\n", " ").lines().map(str::to_owned)),
            "console" => found.extend(page::console_commands(&block.text).into_iter().map(|one| one.command)),
            _ => {}
        }
    }
    let mut fenced = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            fenced ^= fence;
            !fence && !fenced
        })
        .collect();
    for paragraph in prose.join("\n").split("\n\n") {
        // rows of tables stand for themselves
        let parts: Vec<String> = match paragraph.starts_with('|') {
            true => paragraph.lines().map(str::to_owned).collect(),
            false => vec![paragraph.replace('\n', " ")],
        };
        for part in parts {
            found.extend(part.split('`').skip(1).step_by(2).map(|code| code.replace("\\|", "|")));
        }
    }
    Ok(found)
}

/// The simple commands of a line, each as words; quotes and comments are taken off.
pub(crate) fn simple(line: &str) -> Vec<Vec<String>> {
    let line = line.split(" #").next().unwrap_or_default();
    let mut all = vec![Vec::new()];
    let mut word = String::new();
    let mut quote = None;
    for letter in line.chars().chain([' ']) {
        match (letter, quote) {
            (_, Some(end)) if letter == end => quote = None,
            (_, Some(_)) => word.push(letter),
            ('\'' | '"', None) => quote = Some(letter),
            ('|' | ';' | '&' | '(' | ')' | '<' | '>' | '[' | ']', None) => {
                all.push(Vec::new());
                word.clear();
            }
            (' ' | '\n' | '\t', None) => {
                if !word.is_empty()
                    && let Some(last) = all.last_mut()
                {
                    last.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(letter),
        }
    }
    // VAR=value before a command
    for words in &mut all {
        let settings = words.iter().take_while(|word| word.contains('=') && !word.starts_with('-')).count();
        words.drain(..settings);
    }
    all.retain(|words| !words.is_empty());
    all
}

/// What there is to name.
struct Names {
    targets: Targets,
    packages: BTreeMap<String, std::path::PathBuf>,
    helps: BTreeMap<Vec<String>, Option<String>>,
}

impl Names {
    fn new() -> Result<Self> {
        let mut packages = BTreeMap::new();
        for folder in ["api", "crates", "fuzz", "tests", "hack"] {
            let folder = repository().join(folder);
            let below = std::fs::read_dir(&folder)?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
            for path in below.chain([folder]) {
                let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
                let name =
                    manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
                packages.insert(name.context("no name")?.to_owned(), path);
            }
        }
        Ok(Self { targets: Targets::of_makefile()?, packages, helps: BTreeMap::new() })
    }

    /// `--help` of a verb, if there is such a verb.
    fn help(&mut self, verbs: &[String]) -> Result<Option<String>> {
        if let Some(known) = self.helps.get(verbs) {
            return Ok(known.clone());
        }
        let output = Command::new(built("kubectl-olm")?).args(verbs).arg("--help").output()?;
        let help = output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned());
        self.helps.insert(verbs.to_vec(), help.clone());
        Ok(help)
    }

    /// What is wrong with a simple command, if it is one of ours.
    fn problem(&mut self, words: &[String]) -> Result<Option<String>> {
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        Ok(match text[..] {
            ["kubectl", "olm", ..] => self.plugin(&words[2..])?,
            ["kubectl-olm", ..] => self.plugin(&words[1..])?,
            ["make", ..] => text[1..]
                .iter()
                .filter(|word| !word.contains('=') && is_word(word))
                .find(|word| !self.targets.contains(word))
                .map(|word| format!("the Makefile has no target {word}")),
            ["cargo", "run" | "test" | "bench" | "build", ..] => self.cargo(&text),
            _ => None,
        })
    }

    fn plugin(&mut self, words: &[String]) -> Result<Option<String>> {
        let mut verbs = Vec::new();
        for word in words.iter().take_while(|word| is_word(word)) {
            let help = self.help(&verbs)?.context("no help")?;
            if !["<COMMAND>", "[COMMAND]"].iter().any(|word| help.contains(word)) {
                break;
            }
            verbs.push(word.clone());
            if self.help(&verbs)?.is_none() {
                return Ok(Some(format!("kubectl olm has no verb {}", verbs.join(" "))));
            }
        }
        let help = self.help(&verbs)?.context("no help")?;
        let flags =
            words.iter().filter_map(|word| word.split('=').next()).filter(|word| word.starts_with("--"));
        let known =
            |flag: &str| help.split([' ', ',', '\n', '[']).any(|word| word.split('=').next() == Some(flag));
        let unknown = flags.filter(|flag| flag.len() > 2).find(|flag| !verbs.is_empty() && !known(flag));
        Ok(unknown.map(|flag| format!("kubectl olm {} has no flag {flag}", verbs.join(" "))))
    }

    fn cargo(&self, text: &[&str]) -> Option<String> {
        let after = |flag: &str| text.iter().position(|word| *word == flag).and_then(|at| text.get(at + 1));
        let package = after("-p")?;
        let Some(folder) = self.packages.get(*package) else {
            return Some(format!("there is no package {package}"));
        };
        for (flag, place) in [("--test", "tests"), ("--bench", "benches")] {
            if let Some(name) = after(flag) {
                let place = folder.join(place);
                if !place.join(format!("{name}.rs")).is_file() && !place.join(name).join("main.rs").is_file()
                {
                    return Some(format!("{package} has no {flag} {name}"));
                }
            }
        }
        None
    }
}

/// Nothing that stands for something else, as `NAME`, `…` and `$URL` do.
pub(crate) fn is_word(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-')
        && !word.starts_with('-')
}

#[test]
fn docs_commands_name_what_exists() -> Result<()> {
    let mut known = Names::new()?;
    let mut problems = Vec::new();
    let mut looked_at = 0;
    for (name, text) in page::texts()? {
        for line in commands(&name, &text)? {
            for words in simple(&line) {
                looked_at += 1;
                if let Some(problem) = known.problem(&words)? {
                    problems.push(format!("{name}: `{}`: {problem}", line.trim()));
                }
                for path in words.iter().flat_map(|word| word.split(['=', '@'])) {
                    // a test within a file
                    let path = path.split("::").next().unwrap_or_default();
                    let ours = ["manifests/", "hack/", "docs/", "crates/", "tests/", "api/"];
                    let whole = !path.contains(['*', '<', '…', '{', '$']);
                    if whole
                        && ours.iter().any(|start| path.starts_with(start))
                        && !repository().join(path).exists()
                    {
                        problems.push(format!("{name}: {path} does not exist"));
                    }
                }
            }
        }
    }
    println!("{looked_at} commands and names looked at");
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn docs_commands_with_wrong_names_are_found() -> Result<()> {
    let mut known = Names::new()?;
    for (line, want) in [
        ("kubectl olm search --dir x -o wide", None),
        ("kubectl olm why x", Some("kubectl olm has no verb why")),
        ("kubectl get x | kubectl olm catalog look x", Some("kubectl olm has no verb catalog look")),
        ("kubectl olm list --colour=red", Some("kubectl olm list has no flag --colour")),
        ("A=1 make demo ONESHOT=1", None),
        ("make tea", Some("the Makefile has no target tea")),
        ("cargo bench -p catalogd --bench content", None),
        ("cargo bench -p catalogd --bench tea", Some("catalogd has no --bench tea")),
        ("cargo test -p tea", Some("there is no package tea")),
        ("kubectl olm status NAME", None),
    ] {
        let problems: Vec<String> = simple(line)
            .iter()
            .filter_map(|words| known.problem(words).transpose())
            .collect::<Result<_>>()?;
        assert_eq!(problems.first().map(String::as_str), want, "{line}");
    }
    Ok(())
}
