//! The program as make runs it: what it starts it also ends, however it ends itself.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::ensure;
use olm_kit::{RunDir, Tools, eventually};

fn kit(home: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_olm-kit"))
        .args(arguments)
        .env("OLM_RUN_DIR", home)
        .env("OLM_TOOLS", Tools::locate().unwrap().bin())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), output.stderr.as_slice()].concat()).into_owned()
}

/// The processes whose command line names `home`, by pid.
fn processes(home: &Path) -> Vec<String> {
    let needle = home.display().to_string();
    let all =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    all.filter(|pid| pid.bytes().all(|it| it.is_ascii_digit()))
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&needle)
        })
        .collect()
}

#[tokio::test]
async fn commands_cluster_runs_until_it_is_stopped_or_killed() {
    let home = RunDir::new("commands").unwrap();
    let home = home.path();
    assert!(!kit(home, &["cluster", "status"]).status.success());

    let up = kit(home, &["cluster", "up"]);
    assert!(up.status.success(), "{}", text(&up));
    assert!(text(&up).lines().last().unwrap().starts_with("export KUBECONFIG="), "{}", text(&up));
    assert!(kit(home, &["cluster", "status"]).status.success());
    assert!(processes(home).len() >= 5, "etcd, apiserver, controller-manager, kwok, registry");

    let down = kit(home, &["cluster", "down"]);
    assert_eq!((down.status.success(), text(&down).trim()), (true, "the local cluster is stopped"));
    assert_eq!(processes(home), [""; 0]);
    assert_eq!(text(&kit(home, &["cluster", "down"])).trim(), "no local cluster is running");

    // once more, and now the owner has no chance to clean up
    assert!(kit(home, &["cluster", "up"]).status.success());
    let owner = std::fs::read_to_string(home.join("cluster/owner")).unwrap();
    let pid = owner.split(' ').next().unwrap();
    assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    eventually("everything has ended", Duration::from_secs(20), || async {
        let left = processes(home);
        ensure!(left.is_empty(), "still there: {left:?}");
        Ok(())
    })
    .await
    .unwrap();
    assert!(!kit(home, &["cluster", "status"]).status.success());
}

#[test]
fn commands_stop_of_a_demo_that_does_not_run_is_no_error() {
    let home = RunDir::new("commands").unwrap();
    let output = kit(home.path(), &["demo-down"]);
    assert_eq!((output.status.success(), text(&output).trim()), (true, "no demo is running"));
}

#[test]
fn commands_acceptance_without_the_lab_reports_a_skip() {
    let output = Command::new(env!("CARGO_BIN_EXE_olm-kit"))
        .args(["acceptance", "--programs", "/nowhere"])
        .env("OLM_SHARED", "/nowhere")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert!(text(&output).starts_with("SKIPPED acceptance: "), "{}", text(&output));
    assert!(text(&output).contains("0 passed"), "{}", text(&output));
}
