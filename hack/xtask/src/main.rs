//! Chores of the repository that a program does better than a reviewer: generated files and the layering of crates. [`USAGE`] lists them.

mod annotations;
mod benchmarks;
mod book;
mod chart;
mod citations;
mod conformance;
mod crdgen;
mod decisions;
mod exercises;
mod figures;
mod findings;
mod flags;
mod language;
mod layering;
mod lengths;
mod limits;
mod links;
mod manifests;
mod markdown;
mod monitoring;
mod promql;
mod protos;
mod reference;
mod section;
mod source;
mod ux;
mod version;
mod wire;
mod without_fixes;
mod workflows;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "usage: cargo run -p xtask -- COMMAND
  generate              write manifests/crds and docs/reference from the API types and the flags; pages of metrics and events, and
                        alerts from their tables; the README of the chart from its values; the indexes of docs/internals/conformance
                        and of docs/decisions; the ratios of docs/internals/benchmarks.md and their pictures; the table of crates in
                        ARCHITECTURE.md; hack/wire.txt; the version of Cargo.toml in manifests, chart and pages
  verify                fail if a generated file is not current, a dependency between crates is not allowed, a conformance table names a
                        test that does not exist, a finding of docs/internals/findings.md names no test or no commit of HEAD, or has
                        no patch that takes its fix out, a patch does not apply or names a test that does not exist, a row of
                        docs/internals/ux.md names no test, a query of the dashboard asks for what no program exposes, a link leads
                        nowhere, a citation names nothing, docs/README.md leaves out a page, the form of a page is wrong, a file with more
                        than 600 lines of code gives no reason, or a workflow uses an action that is not pinned by SHA
  language [PATH…]      print how many words are left that the glossary replaces, and those below the paths
  layering              only the dependencies; --table prints the table of crates in ARCHITECTURE.md
  conformance           only the tables; prints gaps and counts; --draw N --seed S prints N rows of each table, to break the code behind them
  manifests             render manifests/ and the chart, compare and check the objects, and lint the chart (needs OLM_TOOLS)
  links, citations, limits, workflows   only these; citations --draw N --seed S prints N citations, to read beside what they name
  version               print the version of Cargo.toml, and each place that names it
  book FOLDER            write the pages in the order of docs/README.md for mdBook; book --check FOLDER checks the links of what it built
  wire                  print what leaves a process or is stored
  figures [--checkout DIR] [-o json]   print sizes, watches, stores, words, citations, times of the last runs
  exercises [NAME…]     apply the patches of tests/exercises to a copy, and leave out one file at a time
  without-fixes simulation [NAME…]   take out each fix of tests/simulation/without_fixes, and run schedules until one fails
  without-fixes tests [NAME…]   run the tests that the patches of tests/without_fixes name, take out each fix, and run those
                        that then have to fail
  benchmarks [--write] OUTPUT CRITERION   compare ratios of a run of the benches with what is written down, or take them over";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root()?;
    match arguments[..] {
        ["generate"] => generate(&root),
        ["verify"] => verify(&root),
        ["language", ref below @ ..] => language::print(&root, below),
        ["layering"] => layering::check(&root),
        ["layering", "--table"] => layering::print(&root),
        ["conformance"] => conformance::print(&root),
        ["conformance", "--draw", count, "--seed", seed] => {
            let (count, seed) = draw(count, seed)?;
            conformance::draw(&root, count, seed)
        }
        ["manifests"] => manifests::check(&root),
        ["links"] => links::check(&root),
        ["book", "--check", folder] => book::check_site(folder.as_ref()),
        ["book", folder] => book::write(&root, folder.as_ref()),
        ["limits"] => limits::check(&root),
        ["workflows"] => workflows::check(&root),
        ["version"] => version::print(&root),
        ["citations"] => citations::check(&root),
        ["citations", "--draw", count, "--seed", seed] => {
            let (count, seed) = draw(count, seed)?;
            citations::draw(&root, count, seed)
        }
        ["figures", ref rest @ ..] => figures::print(&root, rest),
        ["exercises", ref only @ ..] => exercises::run(&root, only),
        ["without-fixes", "simulation", ref only @ ..] => without_fixes::simulation::run(&root, only),
        ["without-fixes", "tests", ref only @ ..] => without_fixes::named_tests::run(&root, only),
        ["wire"] => {
            let text = wire::files(&root)?.into_iter().map(|(_, text)| text).collect::<String>();
            Ok(std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?)
        }
        ["benchmarks", output, criterion] => benchmarks::check(&root, output.as_ref(), criterion.as_ref()),
        ["benchmarks", "--write", output, criterion] => {
            benchmarks::write(&root, output.as_ref(), criterion.as_ref())?;
            generate(&root)
        }
        _ => bail!(USAGE),
    }
}

/// The values of `--draw` and `--seed`.
fn draw(count: &str, seed: &str) -> Result<(usize, u64)> {
    let count = count.parse().with_context(|| format!("--draw {count:?}"))?;
    Ok((count, seed.parse().with_context(|| format!("--seed {seed:?}"))?))
}

/// Every generated file: its path from the repository's root, and what it has to hold.
fn generated(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut files = crdgen::files()?;
    files.extend(protos::files(root)?);
    files.extend(reference::files()?);
    files.extend(annotations::files());
    files.extend(monitoring::files()?);
    files.extend(chart::files(root)?);
    files.extend(flags::files());
    files.extend(conformance::index::files(root)?);
    files.extend(benchmarks::files(root)?);
    files.extend(decisions::files(root)?);
    files.extend(layering::files(root)?);
    files.extend(wire::files(root)?);
    files.extend(language::files(root)?);
    files.extend(version::files(root)?);
    Ok(files)
}

fn generate(root: &Path) -> Result<()> {
    for (path, content) in generated(root)? {
        let target = root.join(&path);
        if std::fs::read_to_string(&target).is_ok_and(|present| present == content) {
            eprintln!("current  {}", path.display());
            continue;
        }
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(&target, content).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("written  {}", path.display());
    }
    Ok(())
}

fn verify(root: &Path) -> Result<()> {
    let read = |path: &Path| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let stale = stale(generated(root)?, read);
    ensure!(
        stale.is_empty(),
        "these files differ from their sources; run `make generate`: {}",
        stale.join(", ")
    );
    layering::check(root)?;
    conformance::check(root)?;
    citations::check(root)?;
    monitoring::check(root)?;
    exercises::check(root)?;
    without_fixes::check(root)?;
    limits::check(root)?;
    version::check(root)?;
    workflows::check(root)?;
    findings::check(root)?;
    ux::check(root)?;
    book::check(root)?;
    lengths::check(root)?;
    markdown::check(root)?;
    links::check(root)
}

/// The files that do not hold what they have to.
fn stale(generated: Vec<(PathBuf, String)>, read: impl Fn(&Path) -> String) -> Vec<String> {
    let mut stale = Vec::new();
    for (path, content) in generated {
        let present = read(&path);
        if present != content {
            stale.push(format!(
                "{} (first difference in line {})",
                path.display(),
                first_difference(&present, &content)
            ));
        }
    }
    stale
}

fn first_difference(present: &str, content: &str) -> usize {
    let same = present.lines().zip(content.lines()).take_while(|(a, b)| a == b).count();
    same + 1
}

/// The repository's root, two folders above this package.
fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).context("xtask is not in hack/xtask any more")?;
    Ok(root.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verify_names_generated_files_that_differ() {
        let generated = ["same", "other", "missing"].map(|name| (PathBuf::from(name), "a\nb\n".to_owned()));
        let read = |path: &Path| match path.to_str() {
            Some("same") => "a\nb\n".to_owned(),
            Some("other") => "a\nc\n".to_owned(),
            _ => String::new(),
        };
        assert_eq!(
            stale(generated.into(), read),
            ["other (first difference in line 2)", "missing (first difference in line 1)"]
        );
    }

    #[test]
    fn verify_first_difference_counts_from_one() {
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), 2);
        assert_eq!(first_difference("", "a\n"), 1);
        assert_eq!(first_difference("a\n", "a\nb\n"), 2);
    }
}
