//! Coverage of the commands that pages name: `.ci/run`, `make nightly`, or a test runs each.
//!
//! A block that does not run names what covers it, after its reason: `<!-- not run: REASON; covered by make TARGET -->`, the path
//! of a test or workflow, or `nothing: WHY`. A target that any page names has a row in CONTRIBUTING.md that names what runs it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use olm_kit::repository;

use super::named::{commands, is_word, simple};
use super::page::{self, Mark};

/// The targets of the Makefile, each with the targets that it runs.
pub(crate) struct Targets(BTreeMap<String, BTreeSet<String>>);

impl Targets {
    pub(crate) fn of_makefile() -> Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string(repository().join("Makefile"))?))
    }

    fn parse(makefile: &str) -> Self {
        let makefile = makefile.replace("\\\n", " ");
        let mut variables = BTreeMap::new();
        let mut words: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut current = Vec::new();
        for line in makefile.lines() {
            if let Some(recipe) = line.strip_prefix('\t') {
                if recipe.contains("$(MAKE)") {
                    for target in &current {
                        words.entry(String::clone(target)).or_default().push(recipe.to_owned());
                    }
                }
            } else if let Some((names, rest)) = rule(line) {
                current = names;
                for target in &current {
                    let rest = rest.split("##").next().unwrap_or_default().to_owned();
                    words.entry(target.clone()).or_default().push(rest);
                }
            } else if let Some((name, value)) = line.split_once('=').filter(|_| !line.starts_with(['#', ' ']))
            {
                variables
                    .insert(format!("$({})", name.trim_end_matches([' ', '?', ':', '+'])), value.to_owned());
            }
        }
        let expand = |text: &str| {
            variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
        };
        let names: BTreeSet<String> = words.keys().cloned().collect();
        let runs = |texts: Vec<String>| -> BTreeSet<String> {
            let text = expand(&texts.join(" "));
            let found = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
            found.filter(|word| names.contains(*word)).map(str::to_owned).collect()
        };
        Self(words.into_iter().map(|(name, texts)| (name, runs(texts))).collect())
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// These targets and all that they run.
    fn closure(&self, start: impl IntoIterator<Item = String>) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut open: Vec<String> = start.into_iter().filter(|name| self.contains(name)).collect();
        while let Some(name) = open.pop() {
            open.extend(
                self.0.get(&name).into_iter().flatten().filter(|next| !found.contains(*next)).cloned(),
            );
            found.insert(name);
        }
        found
    }

    /// What the steps of `.ci/run` run.
    fn of_ci(&self) -> Result<BTreeSet<String>> {
        let text = std::fs::read_to_string(repository().join(".ci/run"))?;
        let steps = text.lines().filter(|line| line.starts_with("run "));
        let named = steps.filter_map(|line| line.split_once(" make ")?.1.split(' ').next());
        Ok(self.closure(named.map(str::to_owned)))
    }
}

/// The names and prerequisites of a rule. A variable of one target only (`images: PROFILE = release`) is none.
fn rule(line: &str) -> Option<(Vec<String>, &str)> {
    let (names, rest) = line.split_once(':')?;
    let names: Vec<String> = names.split(' ').map(str::to_owned).collect();
    let named = names.iter().all(|name| !name.is_empty() && is_word(name));
    let variable = rest.split("##").next().unwrap_or_default().contains('=');
    (named && !variable).then_some((names, rest))
}

/// What runs: by CI, by `make nightly`.
struct Runs {
    targets: Targets,
    ci: BTreeSet<String>,
    nightly: BTreeSet<String>,
}

impl Runs {
    fn new() -> Result<Self> {
        let targets = Targets::of_makefile()?;
        let (ci, nightly) = (targets.of_ci()?, targets.closure(["nightly".to_owned()]));
        Ok(Self { targets, ci, nightly })
    }

    /// What is wrong with `what` as the thing that covers a command: `make TARGET`, or a path.
    fn problem(&self, what: &str) -> Option<String> {
        match what.strip_prefix("make ") {
            Some(target) if !self.targets.contains(target) => {
                Some(format!("the Makefile has no target {target}"))
            }
            Some(target) if self.ci.contains(target) || self.nightly.contains(target) => None,
            Some(target) => Some(format!("neither .ci/run nor make nightly runs make {target}")),
            None if !what.is_empty() && repository().join(what).exists() => None,
            None => Some(format!("{what:?} does not exist")),
        }
    }

    /// What is wrong with the reason of a block that is not run.
    fn reason(&self, reason: &str) -> Option<String> {
        let Some((_, covered)) = reason.rsplit_once("; covered by ") else {
            return Some(
                "the reason names nothing that covers the block: `…; covered by make TARGET`".to_owned(),
            );
        };
        if let Some(why) = covered.strip_prefix("nothing") {
            let why = why.strip_prefix(": ").unwrap_or_default();
            return why.is_empty().then(|| "`covered by nothing` gives no reason".to_owned());
        }
        self.problem(covered.split(", ").next().unwrap_or_default())
    }

    /// What is wrong with the row of a target: its last cell names what runs it.
    fn row(&self, target: &str, cell: &str) -> Option<String> {
        let named = |set: &BTreeSet<String>, by: &str| {
            (!set.contains(target)).then(|| format!("{by} does not run make {target}"))
        };
        match cell.trim_matches('`') {
            "CI" => named(&self.ci, ".ci/run"),
            "make nightly" => named(&self.nightly, "make nightly"),
            other => self.problem(other),
        }
    }
}

/// The targets of CONTRIBUTING.md's table, with its last column.
fn rows(text: &str) -> BTreeMap<String, String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `make ")?.strip_suffix(" |"));
    rows.filter_map(|row| {
        let target = row.split([' ', '`']).next()?;
        Some((target.to_owned(), row.rsplit('|').next()?.trim().to_owned()))
    })
    .collect()
}

#[test]
fn docs_name_what_covers_blocks_that_do_not_run() -> Result<()> {
    let runs = Runs::new()?;
    let mut problems = Vec::new();
    for (name, text) in page::texts()? {
        for block in page::blocks(&name, &text)? {
            if let (Some(Mark::NotRun(reason)), "sh" | "console") = (&block.mark, block.language.as_str()) {
                problems.extend(runs.reason(reason).map(|problem| format!("{}: {problem}", block.place())));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn docs_name_what_runs_each_make_target() -> Result<()> {
    let runs = Runs::new()?;
    let texts = page::texts()?;
    let (_, contributing) =
        texts.iter().find(|(name, _)| name == "CONTRIBUTING.md").context("CONTRIBUTING.md")?;
    let rows = rows(contributing);
    let mut problems = Vec::new();
    for (target, cell) in &rows {
        problems.extend(
            runs.row(target, cell).map(|problem| format!("CONTRIBUTING.md: make {target}: {problem}")),
        );
    }
    for (name, text) in &texts {
        for words in commands(name, text)?.iter().flat_map(|line| simple(line)) {
            if words.first().is_none_or(|word| word != "make") {
                continue;
            }
            for target in words[1..].iter().filter(|word| is_word(word) && !rows.contains_key(*word)) {
                problems
                    .push(format!("{name}: CONTRIBUTING.md has no row that names what runs make {target}"));
            }
        }
    }
    problems.sort();
    problems.dedup();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

#[test]
fn docs_coverage_that_is_not_true_is_found() {
    let targets = Targets::parse(
        "NIGHTLY = soak fuzz\n.PHONY: test\ntest: static ## Run soak\n\t@cargo test\nstatic:\n\tcargo build\n\
         images: PROFILE = release\nimages: static\n\t@olm-images\nsoak fuzz:\n\tx\nnightly: ## all\n\t@for target in $(NIGHTLY); do \\\n\
         \t$(MAKE) $$target; done\n\t@$(MAKE) images\n",
    );
    assert_eq!(targets.closure(["test".to_owned()]).into_iter().collect::<Vec<_>>(), ["static", "test"]);
    let (ci, nightly) = (targets.closure(["test".to_owned()]), targets.closure(["nightly".to_owned()]));
    assert_eq!(nightly.iter().collect::<Vec<_>>(), ["fuzz", "images", "nightly", "soak", "static"]);
    let alone = Targets(targets.0.into_iter().chain([("alone".to_owned(), BTreeSet::new())]).collect());
    let runs = Runs { targets: alone, ci, nightly };
    for (reason, want) in [
        ("too long; covered by make soak", None),
        ("too long; covered by make soak, in part", None),
        ("too long; covered by Makefile", None),
        ("too long; covered by nothing: it needs a cluster of yours", None),
        ("too long", Some("names nothing")),
        ("too long; covered by make tea", Some("no target tea")),
        ("too long; covered by make alone", Some("neither .ci/run nor make nightly")),
        ("too long; covered by tests/tea", Some("does not exist")),
        ("too long; covered by nothing", Some("no reason")),
    ] {
        let problem = runs.reason(reason);
        assert_eq!(problem.is_some(), want.is_some(), "{reason}: {problem:?}");
        assert!(want.is_none_or(|want| problem.is_some_and(|it| it.contains(want))), "{reason}");
    }
    for (target, cell, right) in [
        ("test", "CI", true),
        ("soak", "CI", false),
        ("soak", "`make nightly`", true),
        ("test", "`make nightly`", false),
        ("alone", "`make soak`", true),
        ("alone", "`tests/tea`", false),
        ("alone", "what it does", false),
    ] {
        assert_eq!(runs.row(target, cell).is_none(), right, "{target} {cell}");
    }
    assert_eq!(
        rows("| `make soak MINUTES=3` | churn | `make nightly` |\n| x | y |\n"),
        [("soak".to_owned(), "`make nightly`".to_owned())].into()
    );
}
