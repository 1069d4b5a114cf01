//! `test`: the tests of one tier, with one control plane for all test programs, the time of each, and an honest summary.
//!
//! Cargo builds the test programs and this command runs them, so that several run beside each other and each test is timed.
//! Passing tests may print lines that begin with `SKIPPED`: what they could not check, and why. They are printed and counted;
//! where the shared reference material lies beside the checkout nothing may be skipped, and a skip fails the run.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use olm_kit::{Cluster, Tools, repository, shared_material};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::process::Command;

use super::{interruption, print_line};

/// Which tests to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tier {
    /// no control plane, and the core tests on one: api, revisions, extensions, certificates, the upgrade gate
    Core,
    /// everything else on a control plane, and what compares with other programs
    Rest,
}

/// The test programs of `olm-integration` that belong to [`Tier::Core`].
const CORE: [&str; 5] = ["api", "certificates", "extension", "gate", "objectset"];
/// Packages whose tests need a control plane or a registry.
const ON_A_CLUSTER: [&str; 3] = ["olm-integration", "olm-kit", "olm-simulation"];
/// Tests that a command of their own runs, with settings: (test program, test or a part of the names of several, command).
const ELSEWHERE: [(&str, &str, &str); 7] = [
    ("deploy", "gitops::gitops_flux_installs_repairs_and_prunes", "make test-gitops"),
    ("images", "images_and_release_of_make_start_programs", "make test-images"),
    ("node", "machine_is_unchanged_after_a_node", "make test-node"),
    ("node", "node_", "make test-node"),
    ("node", "rehearsal_", "make release-rehearsal"),
    ("operations", "upgrade::upgrade_and_rollback_write_nothing", "make test-upgrade"),
    ("soak", "soak_churn_leaves_nothing_behind", "make soak"),
];
/// Test programs that run beside each other: they often wait, and three keep two processors busy.
const BESIDE: usize = 3;
/// Packages and their test programs that take longest, in this order: a run does not end with one of them alone.
const START_ORDER: [(&str, &str); 14] = [
    ("olm-integration", "hard"),
    ("olm-integration", "docs"),
    ("olm-integration", "deploy"),
    ("olm-integration", "extension"),
    ("olm-integration", "operations"),
    ("olm-integration", "hostile"),
    ("olm-integration", "catalogd"),
    ("olm-integration", "real"),
    ("olm-integration", "classic"),
    ("olm-integration", "kubectl"),
    ("olm-integration", "gate"),
    ("olm-integration", "objectset"),
    ("olm-integration", "certificates"),
    ("xtask", "xtask"),
];
/// Test programs with more than a test for each processor: each of their tests waits for intervals, timeouts and leases.
const THREADS: [(&str, &str); 2] = [("extension", "3"), ("hard", "3")];
/// Test programs that compute: they run beside those, at a lower priority, in the time that those wait.
const COMPUTING: [&str; 1] = ["oracles"];
/// Niceness of the computing ones.
const COMPUTING_NICENESS: &str = "10";
/// How many of the slowest tests are named.
const SLOWEST: usize = 10;

pub(crate) async fn run(tier: Tier) -> Result<ExitCode> {
    let started = Instant::now();
    let signal = interruption();
    let work = async {
        let programs = build(tier).await?;
        let (count, took) = (programs.len(), started.elapsed().as_secs());
        print_line(format_args!("{count} test programs built in {took} s"));
        let tools = Tools::locate()?;
        let cluster = Cluster::start().await?;
        let summary = run_all(programs, tools, &cluster).await;
        drop(cluster);
        summary
    };
    let mut summary = tokio::select! {
        outcome = work => outcome?,
        // dropping `work` ends the test programs
        signal = signal => return Ok(ExitCode::from(128 + signal?.0)),
    };
    summary.skips_fail = shared_material().is_some();
    summary.record(tier)?;
    print_line(summary.slowest());
    print_line(format_args!("elapsed: {} s", started.elapsed().as_secs()));
    print_line(summary.text());
    Ok(if summary.passes() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A built test program.
#[derive(Debug, Clone)]
struct TestProgram {
    package: String,
    name: String,
    executable: PathBuf,
    /// the package's folder, where cargo runs it
    folder: PathBuf,
}

/// A target of the workspace that has tests.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    package: String,
    kind: String,
    name: String,
}

impl Target {
    fn belongs_to(&self, tier: Tier) -> bool {
        let core = match self.package.as_str() {
            "olm-integration" => self.kind == "lib" || CORE.contains(&self.name.as_str()),
            package => !ON_A_CLUSTER.contains(&package),
        };
        (tier == Tier::Core) == core
    }
}

/// The targets of `cargo metadata` that belong to the tier.
fn targets(metadata: &Value, tier: Tier) -> Vec<Target> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for package in list(&metadata["packages"]) {
        for target in list(&package["targets"]) {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, is_tested) = (text(&target["kind"][0]), target["test"] == true);
            let is_tested = is_tested && !["bench", "custom-build"].contains(&kind.as_str());
            let target = Target { package: text(&package["name"]), kind, name: text(&target["name"]) };
            if is_tested && target.belongs_to(tier) {
                found.push(target);
            }
        }
    }
    found
}

async fn build(tier: Tier) -> Result<Vec<TestProgram>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]).await?;
    let targets = targets(&serde_json::from_slice(&metadata).context("cargo metadata is not JSON")?, tier);
    let mut arguments =
        vec!["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics", "--lib"];
    for target in &targets {
        match target.kind.as_str() {
            "bin" => arguments.extend(["--bin", &target.name]),
            "test" => arguments.extend(["--test", &target.name]),
            _ => {}
        }
    }
    let messages = cargo(&arguments).await?;
    let mut programs = Vec::new();
    for line in messages.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"{")) {
        let message: Value = serde_json::from_slice(line).context("a message of cargo is not JSON")?;
        let executable = message["executable"].as_str().filter(|_| message["profile"]["test"] == true);
        let Some(executable) = executable else { continue };
        let manifest = Path::new(message["manifest_path"].as_str().context("no manifest_path")?);
        let folder = manifest.parent().context("the manifest has no folder")?.to_owned();
        let name = message["target"]["name"].as_str().context("no target name")?.to_owned();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let kind = if kind == "proc-macro" { "lib" } else { kind };
        let is_built =
            |it: &&Target| it.name == name && it.kind == kind && is_package_of(&it.package, &message);
        if let Some(target) = targets.iter().find(is_built) {
            let package = target.package.clone();
            programs.push(TestProgram { package, name, executable: executable.into(), folder });
        }
    }
    if programs.is_empty() {
        bail!("cargo built no test program of this tier");
    }
    sort(&mut programs);
    Ok(programs)
}

/// The longest first, then those on a cluster, then the others.
fn sort(programs: &mut [TestProgram]) {
    programs.sort_by_key(|it| {
        let place = START_ORDER.iter().position(|(package, name)| *package == it.package && *name == it.name);
        let is_apart = !ON_A_CLUSTER.contains(&it.package.as_str());
        (place.unwrap_or(START_ORDER.len()), is_apart, it.package.clone(), it.name.clone())
    });
}

/// Whether the message's package identifier (`path+file:///…/crates/olm-core#0.1.0` or `…#name@0.1.0`) names the package.
fn is_package_of(package: &str, message: &Value) -> bool {
    let id = message["package_id"].as_str().unwrap_or_default();
    let (path, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name == package,
        None => path.rsplit('/').next() == Some(package),
    }
}

/// Runs cargo in the repository; its progress goes to the terminal.
async fn cargo(arguments: &[&str]) -> Result<Vec<u8>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(repository()).stdout(Stdio::piped()).kill_on_drop(true);
    if std::env::var_os("CI").is_some_and(|it| !it.is_empty()) {
        command.arg("--locked");
    }
    let output = command.spawn().context("cannot run cargo")?.wait_with_output().await?;
    if !output.status.success() {
        bail!("cargo {} failed ({})", arguments[0], output.status);
    }
    Ok(output.stdout)
}

async fn run_all(programs: Vec<TestProgram>, tools: &Tools, cluster: &Cluster) -> Result<Summary> {
    let is_computing = |program: &TestProgram| COMPUTING.contains(&program.name.as_str());
    let (computing, waiting): (VecDeque<_>, VecDeque<_>) = programs.into_iter().partition(is_computing);
    let (computing, waiting) = (Mutex::new(computing), Mutex::new(waiting));
    let summary = Mutex::new(Summary::default());
    let worker = async |queue: &Mutex<VecDeque<TestProgram>>| {
        loop {
            let Some(program) = queue.lock().pop_front() else { return Ok(()) };
            let report = run_one(&program, tools, cluster).await?;
            print_line(report.text());
            summary.lock().programs.push(report);
        }
    };
    let queues = std::iter::repeat_n(&waiting, BESIDE).chain([&computing]);
    let workers = futures::future::join_all(queues.map(&worker)).await;
    workers.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(summary.into_inner())
}

async fn run_one(program: &TestProgram, tools: &Tools, cluster: &Cluster) -> Result<Report> {
    let started = Instant::now();
    let mut command = if COMPUTING.contains(&program.name.as_str()) {
        let mut command = Command::new("nice");
        command.args(["-n", COMPUTING_NICENESS]).arg(&program.executable);
        command
    } else {
        Command::new(&program.executable)
    };
    // `--report-time` is not stable in the test harness, which is the same in stable and nightly toolchains
    command.args(["--show-output", "-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    if let Some((_, threads)) = THREADS.iter().find(|(name, _)| *name == program.name) {
        command.args(["--test-threads", threads]);
    }
    for (_, test, _) in ELSEWHERE.iter().filter(|(name, ..)| *name == program.name) {
        command.args(["--skip", test]);
    }
    command
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("OLM_TOOLS", tools.bin())
        .env("OLM_TEST_CLUSTER", cluster.dir())
        .current_dir(&program.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command.spawn().with_context(|| format!("cannot run {}", program.executable.display()))?;
    let output = child.wait_with_output().await?;
    let mut report = Report::read(&String::from_utf8_lossy(&output.stdout));
    report.name = format!("{} {}", program.package, program.name);
    report.took = started.elapsed();
    report.success = output.status.success();
    if !report.success {
        report.shown.push(String::from_utf8_lossy(&output.stderr).into_owned());
        report.shown.push(format!("{} ended with {}", report.name, output.status));
    }
    Ok(report)
}

/// What one test program printed.
#[derive(Debug, Default)]
struct Report {
    name: String,
    took: Duration,
    success: bool,
    passed: usize,
    failed: usize,
    ignored: usize,
    /// every test with its seconds
    times: Vec<(String, f64)>,
    failures: Vec<String>,
    skips: Vec<String>,
    /// the output of failed tests
    shown: Vec<String>,
}

impl Report {
    fn read(output: &str) -> Self {
        let mut report = Self::default();
        let mut in_failures = false;
        for line in output.lines() {
            let text = line.trim_end();
            match text {
                "failures:" => in_failures = true,
                "successes:" => in_failures = false,
                _ if text.starts_with("test result: ") => in_failures = false,
                _ => {}
            }
            if in_failures {
                report.shown.push(text.to_owned());
            }
            if let Some(at) = text.find("SKIPPED").filter(|&at| text[..at].trim().is_empty()) {
                report.skips.push(text[at..].to_owned());
            }
            if let Some((name, outcome)) = text.strip_prefix("test ").and_then(|it| it.split_once(" ... ")) {
                if outcome.starts_with("FAILED") {
                    report.failures.push(name.to_owned());
                }
                let seconds =
                    outcome.rsplit_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
                report.times.extend(seconds.map(|seconds| (name.to_owned(), seconds)));
            }
            if let Some(counts) = text.strip_prefix("test result: ") {
                let count = |what: &str| {
                    let number = |part: &str| part.trim().strip_suffix(what)?.trim().parse::<usize>().ok();
                    counts.split([';', '.']).find_map(number).unwrap_or_default()
                };
                report.passed += count("passed");
                report.failed += count("failed");
                report.ignored += count("ignored");
            }
        }
        report
    }

    /// One line, after the output of what failed.
    fn text(&self) -> String {
        let mut text = self.shown.join("\n");
        if !text.is_empty() {
            text = format!("\n=== {}\n{text}\n", self.name);
        }
        let word = if self.success { "ok" } else { "FAILED" };
        let Self { name, passed, failed, .. } = self;
        let took = self.took.as_secs_f64();
        text + &format!("{word:<7}{name:<32} {passed:>4} passed, {failed} failed, {took:.1} s")
    }
}

/// Sums up the reports of all test programs.
#[derive(Debug, Default)]
struct Summary {
    programs: Vec<Report>,
    /// nothing may be skipped here
    skips_fail: bool,
}

impl Summary {
    fn sum(&self, part: impl Fn(&Report) -> usize) -> usize {
        self.programs.iter().map(part).sum()
    }

    fn skipped(&self) -> usize {
        self.sum(|it| it.ignored + it.skips.len())
    }

    fn passes(&self) -> bool {
        let ran = self.programs.iter().all(|it| it.success && it.failed == 0) && self.sum(|it| it.passed) > 0;
        ran && !(self.skips_fail && self.skipped() > 0)
    }

    fn slowest(&self) -> String {
        let all = self.programs.iter().flat_map(|it| it.times.iter().map(|time| (it.name.as_str(), time)));
        let mut all: Vec<(&str, &(String, f64))> = all.collect();
        all.sort_by(|one, other| other.1.1.total_cmp(&one.1.1));
        let lines = all.iter().take(SLOWEST);
        let lines = lines.map(|(program, (test, seconds))| format!("{seconds:>7.1} s  {program} {test}"));
        format!("slowest tests:\n{}", lines.collect::<Vec<_>>().join("\n"))
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for report in &self.programs {
            for skip in &report.skips {
                text += &format!("{}: {skip}\n", report.name);
            }
        }
        for report in &self.programs {
            for name in &report.failures {
                text += &format!("FAILED: {} {name}\n", report.name);
            }
        }
        if self.skips_fail && self.skipped() > 0 {
            text += "FAILED: tests were skipped although the shared reference material is there\n";
        }
        let word = if self.passes() { "ok" } else { "FAILED" };
        let passed = self.sum(|it| it.passed).saturating_sub(self.sum(|it| it.skips.len()));
        let (failed, skipped, programs) = (self.sum(|it| it.failed), self.skipped(), self.programs.len());
        text + &format!(
            "test result: {word}. {passed} passed; {failed} failed; {skipped} skipped; {programs} test programs"
        )
    }

    /// Leaves the seconds of each test program where `make figures` reads them.
    fn record(&self, tier: Tier) -> Result<()> {
        let folder = target_folder()?.join("figures");
        std::fs::create_dir_all(&folder)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let mut lines = String::new();
        for report in &self.programs {
            let (took, tests) = (report.took.as_secs_f64(), report.times.len());
            lines += &format!("{}\t{took:.0}\t{now}\t{tests} tests\n", report.name);
        }
        let name = match tier {
            Tier::Core => "test.tsv",
            Tier::Rest => "test-all.tsv",
        };
        Ok(std::fs::write(folder.join(name), lines)?)
    }
}

/// Cargo's target folder.
fn target_folder() -> Result<PathBuf> {
    let folder = std::env::var_os("CARGO_TARGET_DIR")
        .filter(|it| !it.is_empty())
        .map_or_else(|| "target".into(), PathBuf::from);
    Ok(repository().join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(output: &str, success: bool) -> Summary {
        let report = Report { success, name: "p t".to_owned(), ..Report::read(output) };
        Summary { programs: vec![report], skips_fail: false }
    }

    #[test]
    fn summary_counts_skips_apart_from_passes() {
        let mut summary = summary(
            "running 2 tests\ntest a ... ok <0.001s>\ntest b ... ok <1.5s>\n\nsuccesses:\n\n---- b stdout ----\nSKIPPED: no shared data\n\n\
             successes:\n    a\n    b\n\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            true,
        );
        let counts = "1 passed; 0 failed; 1 skipped; 1 test programs";
        assert_eq!(summary.text(), format!("p t: SKIPPED: no shared data\ntest result: ok. {counts}"));
        assert!(summary.programs[0].shown.is_empty());
        assert_eq!(summary.slowest(), "slowest tests:\n    1.5 s  p t b\n    0.0 s  p t a");
        summary.skips_fail = true;
        let text = summary.text();
        assert!(!summary.passes() && text.ends_with(&format!("FAILED. {counts}")), "{text}");
    }

    #[test]
    fn summary_names_failures_and_shows_their_output() {
        let summary = summary(
            "test a ... FAILED <0.1s>\n\nsuccesses:\n    b\n\nfailures:\n\n---- a stdout ----\nboom\n\nfailures:\n    a\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            false,
        );
        assert!(summary.programs[0].text().contains("boom"));
        let want = "FAILED: p t a\ntest result: FAILED. 1 passed; 1 failed; 0 skipped; 1 test programs";
        assert_eq!(summary.text(), want);
    }

    #[test]
    fn summary_fails_without_tests_and_for_a_crash() {
        assert!(!Summary::default().passes());
        let crashed =
            summary("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out", false);
        assert!(!crashed.passes());
    }

    #[test]
    fn test_targets_belong_to_one_tier() {
        let target = |kind: &str, name: &str, test: bool| json!({"kind": [kind], "name": name, "test": test});
        let metadata = json!({"packages": [
            {"name": "olm-core", "targets": [target("lib", "olm_core", true), target("test", "hostile", true), target("bench", "b", true)]},
            {"name": "fuzz", "targets": [target("bin", "ranges", false)]},
            {"name": "olm-integration", "targets": [target("lib", "olm_integration", true), target("test", "gate", true), target("test", "hard", true)]},
            {"name": "olm-kit", "targets": [target("bin", "olm-kit", true)]},
        ]});
        let names = |tier| targets(&metadata, tier).into_iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(Tier::Core), ["olm_core", "hostile", "olm_integration", "gate"]);
        assert_eq!(names(Tier::Rest), ["hard", "olm-kit"]);
    }

    #[test]
    fn test_programs_that_take_longest_start_first() {
        let program = |(package, name): (&str, &str)| {
            let (package, name) = (package.to_owned(), name.to_owned());
            TestProgram { package, name, executable: PathBuf::new(), folder: PathBuf::new() }
        };
        #[rustfmt::skip]
        let mut programs = [
            ("olm-bundle", "hostile"), ("olm-integration", "api"), ("olm-kit", "kit"), ("olm-core", "olm_core"), ("xtask", "xtask"),
            ("olm-integration", "docs"), ("olm-integration", "hard"),
        ].map(program);
        sort(&mut programs);
        let names: Vec<&str> = programs.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["hard", "docs", "xtask", "api", "kit", "hostile", "olm_core"]);
    }

    #[test]
    fn test_messages_of_cargo_name_their_package() {
        for (id, want) in [
            ("path+file:///w/crates/olm-core#0.1.0", true),
            ("path+file:///w/api#olm-core@0.1.0", true),
            ("path+file:///w/api#olm-api@0.1.0", false),
        ] {
            assert_eq!(is_package_of("olm-core", &json!({"package_id": id})), want, "{id}");
        }
    }
}
