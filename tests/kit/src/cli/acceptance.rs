//! `acceptance`: runs the acceptance lab of the shared reference material and holds its outcome against what passed before.
//!
//! The ratchet: every scenario of `tests/acceptance/passing.txt` must pass, or this fails. What passes and is not listed is
//! named; `--update` lists it. `tests/acceptance/accepted.yaml` names the differences made on purpose; its entries are
//! checked too (a reason with a decision's number, paths, and a test that exists). A file `missing.yaml` beside it names the scenarios
//! that do not pass yet, each with the reason and what makes it pass; one that is not named is reported. `--classic` runs the lab of OLM Classic in the same
//! way, with the files of `tests/acceptance-classic`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use olm_kit::{Tools, repository, shared_material};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::{Group, Home, interruption, print_line};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// only scenarios whose id matches this regular expression (the ratchet then looks at these alone)
    #[arg(long)]
    only: Option<String>,
    /// scenarios at a time
    #[arg(long, default_value_t = 4)]
    jobs: u16,
    /// differences shown per scenario
    #[arg(long, default_value_t = 3)]
    diffs: u16,
    /// the Python that has PyYAML
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// the folder with the programs
    #[arg(long)]
    programs: PathBuf,
    /// write what passed to passing.txt
    #[arg(long)]
    update: bool,
    /// write the records of this run below this folder
    #[arg(long)]
    save: Option<PathBuf>,
    /// run both processes with the rights that manifests/overlays/kubernetes grants, instead of all rights
    #[arg(long)]
    rbac: bool,
    /// compare the plans of kubectl-olm with what the controller does, instead of the records
    #[arg(long, conflicts_with_all = ["update", "save"])]
    plans: bool,
    /// run the lab of OLM Classic, with classic-controller
    #[arg(long, conflicts_with_all = ["plans", "rbac"])]
    classic: bool,
    /// accept what the oldest supported apiserver adds to objects
    #[arg(long, conflicts_with_all = ["plans", "update"])]
    oldest: bool,
}

/// Paths of differences between the recorded apiserver and the oldest one that is supported: it writes a null into templates of pods.
const OLDEST_ADDS: &str = r"/template/metadata/creationTimestamp$";

/// A lab of the shared reference material.
#[derive(Debug, Clone, Copy)]
struct Lab {
    /// Below the shared material.
    folder: &'static str,
    script: &'static str,
    profile: &'static str,
    /// The definitions of the API, below the repository.
    crds: &'static str,
    /// The ratchet and the accepted differences, below the repository.
    ratchet: &'static str,
    programs: &'static [&'static str],
    /// The target of the Makefile that runs it.
    target: &'static str,
}

const V1: Lab = Lab {
    folder: "acceptance",
    script: "lab.py",
    profile: "olm-rs",
    crds: "manifests/crds",
    ratchet: "tests/acceptance",
    programs: &["catalogd", "operator-controller"],
    target: "acceptance",
};

const CLASSIC: Lab = Lab {
    folder: "classic",
    script: "classic.py",
    profile: "classic-controller",
    crds: "manifests/classic",
    ratchet: "tests/acceptance-classic",
    programs: &["classic-controller"],
    target: "acceptance-classic",
};

impl Arguments {
    fn lab(&self) -> Lab {
        if self.classic { CLASSIC } else { V1 }
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<ExitCode> {
    let lab = arguments.lab();
    let material = shared_material().map(|folder| folder.join(lab.folder)).filter(|lab| lab.is_dir());
    let Some(material) = material else {
        let why = format!("there is no ../shared/{} folder (OLM_SHARED names another place)", lab.folder);
        return Ok(skipped(&why));
    };
    for (program, flag) in [(arguments.python.as_path(), "--version"), (Path::new("openssl"), "version")] {
        let runs = std::process::Command::new(program).arg(flag).output().is_ok_and(|it| it.status.success());
        if !runs {
            return Ok(skipped(&format!("{} is not here", program.display())));
        }
    }
    if arguments.plans {
        return tokio::select! {
            status = compare_plans(arguments) => Ok(if status?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            signal = interruption() => Ok(ExitCode::from(128 + signal?.0)),
        };
    }
    let folder = repository().join(lab.ratchet);
    let accepted = read_accepted(&folder.join("accepted.yaml"))?;
    let listed = read_list(&folder.join("passing.txt"))?;
    let missing = read_missing(&folder.join("missing.yaml"))?;
    let started = Instant::now();
    let signal = interruption();
    let (results, last_line) = tokio::select! {
        outcome = compare(&material, &listed, &accepted, arguments) => outcome?,
        signal = signal => return Ok(ExitCode::from(128 + signal?.0)),
    };
    let mut verdict = judge(&results, &listed, &accepted, arguments.only.is_some(), lab.target);
    verdict.notes.extend(explain(&results, missing.as_ref()));
    print_line(format_args!("\n{}", table(&results)));
    print_line(format_args!("lab: {last_line}; {} s", started.elapsed().as_secs()));
    if arguments.update {
        ensure!(arguments.only.is_none(), "--update needs a whole run, without --only");
        write_list(&folder.join("passing.txt"), &results, lab.target)?;
    }
    for line in &verdict.notes {
        print_line(line);
    }
    print_line(verdict.summary());
    Ok(if verdict.lost.is_empty() && verdict.ran() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn skipped(why: &str) -> ExitCode {
    print_line(format_args!("SKIPPED acceptance: {why}"));
    print_line("acceptance result: skipped. 0 passed; 0 failed; nothing was run");
    ExitCode::SUCCESS
}

/// Runs the lab; its output is shown while it runs. Returns the outcomes and the lab's own last line.
async fn compare(
    material: &Path,
    listed: &BTreeSet<String>,
    accepted: &BTreeMap<String, Accepted>,
    arguments: &Arguments,
) -> Result<(BTreeMap<String, Outcome>, String)> {
    let lab = arguments.lab();
    let mut command = Command::new(&arguments.python);
    command
        .arg("-B")
        .arg(material.join(lab.script))
        .args(["compare", "--profile", lab.profile, "--level", "semantic"])
        .args(["--diffs", &arguments.diffs.to_string()]);
    if let Some(save) = &arguments.save {
        command.arg("--save").arg(save);
    }
    let run_dir = prepare(&mut command, arguments)?;
    let accept = match arguments.oldest {
        true => {
            let all = run_dir.with_file_name("accepted.yaml");
            // JSON is YAML
            std::fs::write(&all, accepted_on_oldest(listed, accepted).to_string())?;
            all
        }
        false => repository().join(lab.ratchet).join("accepted.yaml"),
    };
    command.arg("--accept").arg(accept);
    let mut group = Group::spawn(&mut command).context("cannot run the lab")?;
    let mut lines = BufReader::new(group.stdout()?).lines();
    let mut report = Report::default();
    while let Some(line) = lines.next_line().await? {
        print_line(&line);
        report.read(&line);
    }
    let status = group.wait().await?;
    print_line(format_args!("logs of this run: {}", run_dir.display()));
    if !report.complete() {
        let logs = lab.programs.iter().map(|name| run_dir.join(format!("{name}.log")));
        let ends = logs.map(|log| format!("\n--- end of {}:\n{}", log.display(), olm_kit::tail(&log, 0, 15)));
        let ends: Vec<String> = ends.collect();
        bail!("the lab did not come to its end ({status}); its output is above{}", ends.concat());
    }
    if arguments.oldest {
        for (id, outcome) in &mut report.outcomes {
            // no other difference than the apiserver's
            if *outcome == Outcome::Accepted && !accepted.contains_key(id) {
                *outcome = Outcome::Pass;
            }
        }
    }
    Ok((report.outcomes, report.last))
}

/// The accepted differences, and in every scenario those of the oldest apiserver, as the lab reads them.
fn accepted_on_oldest(listed: &BTreeSet<String>, accepted: &BTreeMap<String, Accepted>) -> Value {
    let of = |id: &String| {
        let (reason, paths) =
            accepted.get(id).map_or(("the oldest apiserver", &[][..]), |entry| (&entry.reason, &entry.paths));
        let paths: Vec<&str> = paths.iter().map(String::as_str).chain([OLDEST_ADDS]).collect();
        (id.clone(), json!({"reason": reason, "paths": paths}))
    };
    listed.iter().chain(accepted.keys()).map(of).collect()
}

/// Runs `hack/lab-plan.py`; its output is shown while it runs.
async fn compare_plans(arguments: &Arguments) -> Result<std::process::ExitStatus> {
    let mut command = Command::new(&arguments.python);
    command.arg("-B").arg(repository().join("hack/lab-plan.py"));
    let run_dir = prepare(&mut command, arguments)?;
    let mut group = Group::spawn(&mut command).context("cannot run the lab")?;
    let mut lines = BufReader::new(group.stdout()?).lines();
    while let Some(line) = lines.next_line().await? {
        print_line(&line);
    }
    print_line(format_args!("logs of this run: {}", run_dir.display()));
    group.wait().await
}

/// Adds the flags and the environment of all runs of the lab. Returns the run's folder, which stays after the run for its logs.
fn prepare(command: &mut Command, arguments: &Arguments) -> Result<PathBuf> {
    let lab = arguments.lab();
    let home = Home::named(lab.target);
    home.take()?;
    let run_dir = home.path().join("lab");
    let tools = Tools::locate()?;
    command
        .args(["--jobs", &arguments.jobs.to_string()])
        .args(["--port-base", &free_block()?.to_string()])
        .arg("--run-dir")
        .arg(&run_dir)
        .env("LAB_K8S_BIN", tools.bin())
        .env("LAB_OPM", tools.bin().join("opm"))
        .env("LAB_CAND_BIN", std::path::absolute(&arguments.programs)?)
        .env("LAB_CAND_CRDS", repository().join(lab.crds))
        .env("PYTHONUNBUFFERED", "1")
        .stdout(Stdio::piped());
    if let Some(only) = &arguments.only {
        command.args(["--only", only]);
    }
    if arguments.rbac {
        let path = home.path().join("manifests.yaml");
        std::fs::write(&path, manifests()?)?;
        command.env("LAB_CAND_RBAC", "1").env("LAB_CAND_MANIFESTS", path);
    }
    Ok(run_dir)
}

/// The installation for a Kubernetes cluster without its Deployments: the lab runs the processes itself.
fn manifests() -> Result<String> {
    let folder = repository().join("manifests/overlays/kubernetes");
    let output = Tools::locate()?.command("kubectl")?.arg("kustomize").arg(&folder).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot render {}: {errors}", folder.display());
    Ok(without_deployments(&String::from_utf8(output.stdout)?))
}

/// The documents of a rendered YAML text that are no Deployments.
fn without_deployments(rendered: &str) -> String {
    let documents = rendered.split("\n---\n");
    let kept: Vec<&str> =
        documents.filter(|document| !document.lines().any(|line| line == "kind: Deployment")).collect();
    kept.join("\n---\n")
}

/// A base port with the hundred ports above it free; the lab takes fixed offsets from it.
fn free_block() -> Result<u16> {
    for _ in 0..100 {
        let base = olm_kit::free_port()?;
        let free = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if base < 31_900 && (40..75).all(|offset| free(base + offset)) {
            return Ok(base);
        }
    }
    bail!("no free block of loopback ports")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Pass,
    Accepted,
    Fail,
}

/// Reads the lab's report: a table `<id> pass|accept|FAIL …`, then `N passed, N failed[, N skipped]`.
#[derive(Debug, Default)]
struct Report {
    in_table: bool,
    outcomes: BTreeMap<String, Outcome>,
    last: String,
}

impl Report {
    fn read(&mut self, line: &str) {
        if line.starts_with("scenario ") && line.contains("first difference") {
            self.in_table = true;
        } else if self.in_table && !line.starts_with(' ') {
            let mut words = line.split_ascii_whitespace();
            let outcome = match (words.next(), words.next()) {
                (Some(id), Some("pass")) => Some((id, Outcome::Pass)),
                (Some(id), Some("accept")) => Some((id, Outcome::Accepted)),
                (Some(id), Some("FAIL")) => Some((id, Outcome::Fail)),
                _ => None,
            };
            if let Some((id, outcome)) = outcome {
                self.outcomes.entry(id.to_owned()).or_insert(outcome);
            }
        }
        if !line.trim().is_empty() {
            line.clone_into(&mut self.last);
        }
    }

    /// Whether the last line is the lab's own count and it agrees with the table.
    fn complete(&self) -> bool {
        let count = |outcome: Outcome| self.outcomes.values().filter(|&&it| it == outcome).count();
        let mut expected = format!("{} passed, {} failed", count(Outcome::Pass), count(Outcome::Fail));
        if count(Outcome::Accepted) > 0 {
            expected += &format!(", {} skipped", count(Outcome::Accepted));
        }
        self.last == expected
    }
}

/// One entry of accepted.yaml.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Accepted {
    /// why, with `decision <number>`
    reason: String,
    /// regular expressions of difference paths; the lab reads them
    paths: Vec<String>,
    /// the name of the test function that proves what happens instead
    test: String,
}

fn read_accepted(path: &Path) -> Result<BTreeMap<String, Accepted>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries: Option<BTreeMap<String, Accepted>> =
        serde_saphyr::from_str(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?;
    let entries = entries.unwrap_or_default();
    let sources = if entries.is_empty() { Vec::new() } else { rust_sources()? };
    for (id, entry) in &entries {
        check_accepted(id, entry, &sources).with_context(|| path.display().to_string())?;
    }
    Ok(entries)
}

fn check_accepted(id: &str, entry: &Accepted, sources: &[String]) -> Result<()> {
    let lower = entry.reason.to_lowercase();
    let number = ["decision ", "decisions "].iter().any(|word| {
        let rest = lower.split_once(word).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
    });
    ensure!(number, "{id}: the reason must cite a decision: `decision <number>`");
    ensure!(!entry.paths.is_empty(), "{id}: no paths");
    let test = entry.test.rsplit("::").next().unwrap_or_default();
    ensure!(!test.is_empty(), "{id}: no test is named");
    let found = sources.iter().any(|text| text.contains(&format!("fn {test}(")));
    ensure!(found, "{id}: no test function {test:?} in this repository");
    Ok(())
}

/// One entry of missing.yaml: a scenario that does not pass yet.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Missing {
    /// why
    reason: String,
    /// what has to be there for it to pass
    path: String,
}

/// `None`: there is no such file, and no reasons are asked for.
fn read_missing(path: &Path) -> Result<Option<BTreeMap<String, Missing>>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let entries: BTreeMap<String, Missing> =
        serde_saphyr::from_str(&text).map_err(|problem| anyhow::anyhow!("{}: {problem}", path.display()))?;
    for (id, entry) in &entries {
        let is_complete = !entry.reason.trim().is_empty() && !entry.path.trim().is_empty();
        ensure!(is_complete, "{}: {id} needs a reason and a path", path.display());
    }
    Ok(Some(entries))
}

/// Why scenarios do not pass, which have no reason, and which have one though they pass.
fn explain(results: &BTreeMap<String, Outcome>, missing: Option<&BTreeMap<String, Missing>>) -> Vec<String> {
    let Some(missing) = missing else { return Vec::new() };
    let of = |(id, outcome): (&String, &Outcome)| match (outcome, missing.get(id)) {
        (Outcome::Fail, Some(Missing { reason, path })) => {
            format!("MISSING: {id}: {reason}; it passes with {path}")
        }
        (Outcome::Fail, None) => {
            format!("UNEXPLAINED: {id} does not pass and is not in missing.yaml; add reason and path")
        }
        (_, Some(_)) => format!("NOTE: {id} is in missing.yaml, but does not fail"),
        (_, None) => String::new(),
    };
    results.iter().map(of).filter(|line| !line.is_empty()).collect()
}

/// The text of every Rust file of the repository that git knows or would take.
fn rust_sources() -> Result<Vec<String>> {
    let listed = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])
        .current_dir(repository())
        .output()
        .context("cannot run git")?;
    let names = String::from_utf8(listed.stdout)?;
    Ok(names.lines().filter_map(|name| std::fs::read_to_string(repository().join(name)).ok()).collect())
}

/// Ids, one a line; `#` begins a comment.
fn read_list(path: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let ids = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    Ok(ids.filter(|id| !id.is_empty()).map(str::to_owned).collect())
}

fn write_list(path: &Path, results: &BTreeMap<String, Outcome>, target: &str) -> Result<()> {
    let mut text = format!(
        "# Scenarios of the acceptance lab that pass. Losing one fails CI; `make {target} UPDATE=1` writes this file.\n"
    );
    for (id, _) in results.iter().filter(|(_, outcome)| **outcome == Outcome::Pass) {
        text += &format!("{id}\n");
    }
    std::fs::write(path, text)?;
    print_line(format_args!("wrote {}", path.display()));
    Ok(())
}

#[derive(Debug, Default)]
struct Comparison {
    passed: usize,
    accepted: usize,
    failed: usize,
    /// listed as passing, but does not pass
    lost: Vec<String>,
    notes: Vec<String>,
}

impl Comparison {
    fn ran(&self) -> bool {
        self.passed + self.accepted + self.failed > 0
    }

    fn summary(&self) -> String {
        let word = if self.lost.is_empty() && self.ran() { "ok" } else { "FAILED" };
        format!(
            "acceptance result: {word}. {} passed; {} lost; {} not passing yet; {} skipped (different on purpose)",
            self.passed,
            self.lost.len(),
            self.failed - self.lost.len().min(self.failed),
            self.accepted
        )
    }
}

fn judge(
    results: &BTreeMap<String, Outcome>,
    listed: &BTreeSet<String>,
    accepted: &BTreeMap<String, Accepted>,
    partial: bool,
    target: &str,
) -> Comparison {
    let count = |outcome: Outcome| results.values().filter(|&&it| it == outcome).count();
    let mut verdict = Comparison {
        passed: count(Outcome::Pass),
        accepted: count(Outcome::Accepted),
        failed: count(Outcome::Fail),
        ..Comparison::default()
    };
    for id in listed {
        match results.get(id) {
            Some(Outcome::Pass) => {}
            None if partial => {}
            // a scenario that became an accepted difference must leave the list, by hand
            Some(Outcome::Accepted | Outcome::Fail) | None => verdict.lost.push(id.clone()),
        }
    }
    for id in &verdict.lost {
        verdict.notes.push(format!("LOST: {id} is in passing.txt and does not pass"));
    }
    let passing = results.iter().filter(|(_, outcome)| **outcome == Outcome::Pass).map(|(id, _)| id);
    let new: Vec<&str> = passing.filter(|id| !listed.contains(*id)).map(String::as_str).collect();
    if !new.is_empty() {
        let (how, new) = (format!("`make {target} UPDATE=1` adds it"), new.join(", "));
        verdict.notes.push(format!("NEW: passing and not in passing.txt ({how}): {new}"));
    }
    for id in accepted.keys() {
        if results.get(id) == Some(&Outcome::Pass) {
            verdict.notes.push(format!("NOTE: {id} is in accepted.yaml, but does not differ"));
        }
    }
    verdict
}

/// Scenarios by outcome, several a line.
fn table(results: &BTreeMap<String, Outcome>) -> String {
    use Outcome::{Accepted, Fail, Pass};
    let mut text = String::new();
    for (outcome, title) in [(Pass, "pass"), (Accepted, "different on purpose"), (Fail, "fail")] {
        let fitting = results.iter().filter(|(_, it)| **it == outcome);
        let ids: Vec<&str> = fitting.map(|(id, _)| id.as_str()).collect();
        text += &format!("{title} ({}):\n", ids.len());
        for row in ids.chunks(5) {
            let row: String = row.iter().map(|id| format!("  {id:<24}")).collect();
            text += &format!("{}\n", row.trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAB: &str = "up in 11.0 s; 4 scenarios\n\
        inst-a                          3.0 s\n\
        scenario                           time  first difference (semantic)\n\
        inst-a                       pass    1.02x\n\
        inst-b                       FAIL    0.50x  /snapshots/final: \"x\" -> \"y\"\n\
                                            (2 differences in all)\n\
        inst-c                       accept         decision 8: other\n\
        inst-c                       accept  1.00x  /a: 1 -> 2\n\
        inst-d                       pass    1.00x\n\
        time ratio new/baseline: median 1.00, p90 1.00, max 1.00\n";

    fn read(text: &str) -> Report {
        let mut report = Report::default();
        text.lines().for_each(|line| report.read(line));
        report
    }

    #[test]
    fn acceptance_reads_the_labs_table() {
        let report = read(&format!("{LAB}2 passed, 1 failed, 1 skipped"));
        assert!(report.complete());
        let ids: Vec<_> = report.outcomes.iter().map(|(id, outcome)| (id.as_str(), *outcome)).collect();
        use Outcome::{Accepted, Fail, Pass};
        assert_eq!(ids, [("inst-a", Pass), ("inst-b", Fail), ("inst-c", Accepted), ("inst-d", Pass)]);
    }

    #[test]
    fn acceptance_run_that_ends_early_or_disagrees_is_incomplete() {
        assert!(!read(LAB).complete());
        assert!(!read(&format!("{LAB}3 passed, 1 failed, 1 skipped")).complete());
        assert!(!read("Traceback (most recent call last):").complete());
    }

    fn verdict(listed: &[&str], partial: bool) -> Comparison {
        let report = read(&format!("{LAB}2 passed, 1 failed, 1 skipped"));
        let listed = listed.iter().map(|&id| id.to_owned()).collect();
        judge(&report.outcomes, &listed, &BTreeMap::new(), partial, "acceptance")
    }

    #[test]
    fn acceptance_leaves_out_deployments() {
        let text = "kind: Role\nrules: []\n---\nkind: Deployment\nspec: {}\n---\nkind: Crd\nspec:\n  kind: Deployment\n";
        let want = "kind: Role\nrules: []\n---\nkind: Crd\nspec:\n  kind: Deployment\n";
        assert_eq!(without_deployments(text), want);
    }

    #[test]
    fn acceptance_fails_for_a_lost_scenario() {
        for (listed, partial, lost) in [
            (vec!["inst-a"], false, vec![]),
            (vec!["inst-a", "inst-b"], false, vec!["inst-b"]),
            (vec!["inst-c"], false, vec!["inst-c"]),
            (vec!["gone"], false, vec!["gone"]),
            (vec!["gone"], true, vec![]),
        ] {
            let verdict = verdict(&listed, partial);
            assert_eq!(verdict.lost, lost, "{listed:?}");
            assert_eq!(verdict.summary().contains("result: ok"), lost.is_empty(), "{listed:?}");
        }
    }

    #[test]
    fn acceptance_names_scenarios_that_newly_pass() {
        let is_new = |note: &String| note.starts_with("NEW") && note.ends_with("inst-d");
        assert!(verdict(&["inst-a"], false).notes.iter().any(is_new));
    }

    #[test]
    fn acceptance_failures_need_a_reason_and_a_path() {
        let results = ["a", "b", "c"].map(str::to_owned).into_iter();
        let results = results.zip([Outcome::Fail, Outcome::Fail, Outcome::Pass]).collect();
        let entry = Missing { reason: "no package server".to_owned(), path: "PackageManifests".to_owned() };
        let missing = BTreeMap::from([("a".to_owned(), entry.clone()), ("c".to_owned(), entry)]);
        let want = [
            "MISSING: a: no package server; it passes with PackageManifests",
            "UNEXPLAINED: b does not pass and is not in missing.yaml; add reason and path",
            "NOTE: c is in missing.yaml, but does not fail",
        ];
        assert_eq!(explain(&results, Some(&missing)), want);
        assert_eq!(explain(&results, None), Vec::<String>::new());
        let folder = repository().join(CLASSIC.ratchet);
        assert!(read_missing(&folder.join("missing.yaml")).unwrap().is_some());
    }

    #[test]
    fn acceptance_on_the_oldest_keeps_what_is_accepted() {
        let entry =
            Accepted { reason: "decision 8".to_owned(), paths: vec!["^/a".to_owned()], test: String::new() };
        let listed = BTreeSet::from(["inst-a".to_owned()]);
        let all = accepted_on_oldest(&listed, &BTreeMap::from([("inst-c".to_owned(), entry)]));
        assert_eq!(all["inst-a"]["paths"], json!([OLDEST_ADDS]));
        assert_eq!(all["inst-c"], json!({"reason": "decision 8", "paths": ["^/a", OLDEST_ADDS]}));
    }

    #[test]
    fn acceptance_without_a_run_fails() {
        let verdict = judge(&BTreeMap::new(), &BTreeSet::new(), &BTreeMap::new(), true, "acceptance");
        assert!(verdict.summary().contains("FAILED"));
    }

    #[test]
    fn acceptance_differences_need_a_decision_paths_and_a_test() {
        let sources = ["    fn proves_it() {".to_owned()];
        let entry = |reason: &str, paths: &[&str], test: &str| Accepted {
            reason: reason.to_owned(),
            paths: paths.iter().map(|&path| path.to_owned()).collect(),
            test: test.to_owned(),
        };
        for reason in ["decision 8: so", "decisions 8, 9: so"] {
            assert!(check_accepted("x", &entry(reason, &["^/a"], "api::proves_it"), &sources).is_ok());
        }
        for (wrong, why) in [
            (entry("because", &["^/a"], "proves_it"), "decision"),
            (entry("decisions differ", &["^/a"], "proves_it"), "decision"),
            (entry("decision 8", &[], "proves_it"), "paths"),
            (entry("decision 8", &["^/a"], ""), "no test is named"),
            (entry("decision 8", &["^/a"], "other"), "no test function"),
        ] {
            let problem = check_accepted("x", &wrong, &sources).unwrap_err().to_string();
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[test]
    fn acceptance_differences_of_this_repository_are_valid() {
        let read = read_accepted(&repository().join("tests/acceptance/accepted.yaml"));
        assert!(!read.unwrap().is_empty());
    }
}
