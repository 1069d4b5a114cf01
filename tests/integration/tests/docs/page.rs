//! A page of the documentation: its fenced blocks, and what stands directly above each.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use olm_kit::repository;

/// How a line begins that a reader would type.
const COMMANDS: &[&str] = &["$ ", "make ", "cargo ", "kubectl ", "helm ", "curl ", "docker ", "git "];

/// The meaning of the comment above a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// It is left out, for this reason.
    NotRun(String),
    /// This step of `.ci/run` runs it.
    Ci(String),
    /// It runs on a cluster of its own, which all such blocks of the page share.
    Apart,
}

/// A fenced block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// the page, from the root of the repository
    pub(crate) page: String,
    /// the line of its first fence, from 1
    pub(crate) line: usize,
    /// the word behind the fence
    pub(crate) language: String,
    /// what is between the fences
    pub(crate) text: String,
    /// from a comment in the line above
    pub(crate) mark: Option<Mark>,
    /// the file name that ends the line above: ``… as `sample.yaml`:``
    pub(crate) file: Option<String>,
}

impl Block {
    /// Whether it holds something to run or to check.
    pub(crate) fn counts(&self) -> bool {
        self.language != "text"
    }

    /// For messages.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

/// The pages of the root, of the examples and all of docs, by name, but for the specification: it has nothing to run.
pub(crate) fn pages() -> Result<Vec<PathBuf>> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                if !path.ends_with("docs/internals/spec") {
                    walk(&path, found)?;
                }
            } else if path.extension().is_some_and(|it| it == "md") {
                found.push(path);
            }
        }
        Ok(())
    }
    let root = repository();
    let mut found = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "examples/README.md"]
        .map(|name| root.join(name))
        .to_vec();
    walk(&root.join("docs"), &mut found)?;
    found.sort();
    Ok(found)
}

/// Name (from the root) and text of each page.
pub(crate) fn texts() -> Result<Vec<(String, String)>> {
    pages()?
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(repository())?.display().to_string();
            Ok((name, std::fs::read_to_string(&path)?))
        })
        .collect()
}

/// The blocks of a page, in order.
pub(crate) fn blocks(page: &str, text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut above = "";
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            if !line.trim().is_empty() {
                above = line;
            }
            ensure!(
                !line.trim_start().starts_with("```"),
                "{page}:{}: a fence that does not begin its line",
                at + 1
            );
            continue;
        };
        let mut content = String::new();
        loop {
            match lines.next() {
                Some((_, "```")) => break,
                Some((_, line)) => content += &format!("{line}\n"),
                None => bail!("{page}:{}: the block has no end", at + 1),
            }
        }
        let (text, mark, file) = (content, mark(above), file(above));
        let block =
            Block { page: page.to_owned(), line: at + 1, language: language.to_owned(), text, mark, file };
        match language {
            "sh" | "console" | "yaml" | "json" => {}
            "text" => {
                let command = |line: &str| COMMANDS.iter().any(|start| line.starts_with(start));
                ensure!(
                    !block.text.lines().any(command),
                    "{}: commands are `sh` or `console`",
                    block.place()
                );
            }
            other => bail!("{}: blocks are sh, console, yaml, json or text, not {other:?}", block.place()),
        }
        blocks.push(block);
        above = "";
    }
    Ok(blocks)
}

fn mark(line: &str) -> Option<Mark> {
    let comment = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    if let Some(reason) = comment.strip_prefix("not run: ") {
        return Some(Mark::NotRun(reason.to_owned()));
    }
    if comment == "on another cluster" {
        return Some(Mark::Apart);
    }
    Some(Mark::Ci(comment.strip_prefix("run by CI step ")?.to_owned()))
}

fn file(line: &str) -> Option<String> {
    let name = line.strip_suffix("`:")?.rsplit('`').next()?;
    [".yaml", ".json"].iter().any(|end| name.ends_with(end)).then(|| name.to_owned())
}

/// A command of a console block and what stands below it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConsoleCommand {
    pub(crate) command: String,
    pub(crate) output: String,
}

/// The commands of a console block; a line that ends with a backslash continues in the next one.
pub(crate) fn console_commands(text: &str) -> Vec<ConsoleCommand> {
    let mut all: Vec<ConsoleCommand> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let part = match line.strip_prefix("$ ") {
            Some(command) => {
                all.push(ConsoleCommand { command: String::new(), output: String::new() });
                Some(command)
            }
            None if open => Some(line),
            None => None,
        };
        if let Some(last) = all.last_mut() {
            match part {
                Some(part) => last.command += &format!("{part}\n"),
                None => last.output += &format!("{line}\n"),
            }
        }
        open = part.is_some_and(|part| part.ends_with('\\'));
    }
    all
}

/// Whether a line is what the page shows: `…` stands for anything.
pub(crate) fn fits(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.trim_end().split('…');
    let line = line.trim_end();
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

#[test]
fn docs_page_is_split_into_blocks() -> Result<()> {
    let text = "Save it as `a.yaml`:\n\n```yaml\na: 1\n```\n\n<!-- not run: needs a moon -->\n```sh\nfly\n```\n\n<!-- run by CI step demo -->\n```sh\nmake demo\n```\nwords\n```text\nx\n```\n";
    let blocks = blocks("p.md", text)?;
    let found: Vec<_> =
        blocks.iter().map(|it| (it.line, it.file.as_deref(), it.mark.clone(), it.counts())).collect();
    assert_eq!(
        found,
        [
            (3, Some("a.yaml"), None, true),
            (8, None, Some(Mark::NotRun("needs a moon".to_owned())), true),
            (13, None, Some(Mark::Ci("demo".to_owned())), true),
            (17, None, None, false),
        ]
    );
    for (text, why) in [
        ("```\nx\n```\n", "not \"\""),
        ("```sh\nx\n", "no end"),
        ("```text\n$ ls\n```\n", "console"),
        ("```text\nwords\nmake demo\n```\n", "`sh`"),
        (" ```sh\n", "begin"),
    ] {
        let outcome = super::page::blocks("p.md", text).map_err(|error| error.to_string());
        assert!(outcome.as_ref().is_err_and(|error| error.contains(why)), "{outcome:?}");
    }
    Ok(())
}

#[test]
fn docs_console_blocks_are_split_into_commands_and_output() {
    let one = |command: &str, output: &str| ConsoleCommand {
        command: command.to_owned(),
        output: output.to_owned(),
    };
    assert_eq!(
        console_commands("$ ls\na\nb\n$ cd \\\n  x\n$ pwd\n/x\n"),
        [one("ls\n", "a\nb\n"), one("cd \\\n  x\n", ""), one("pwd\n", "/x\n")]
    );
}

#[test]
fn docs_ellipsis_matches_any_output() {
    for (pattern, line, fit) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a…", "abc", true),
        ("…c", "abc", true),
        ("a…c…e", "a b c d e", true),
        ("a…c…e", "a b d e", false),
        ("a…e", "a b c", false),
        ("a…a", "a", false),
    ] {
        assert_eq!(fits(pattern, line), fit, "{pattern} {line}");
    }
}
