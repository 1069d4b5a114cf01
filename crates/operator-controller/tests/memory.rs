//! The process limits its heaps and returns freed memory: it starts itself again in place, once.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

const SETTINGS: [&str; 2] = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX"];

/// Starts operator-controller with these settings given, waits until its environment has all, and ends it.
fn settings(given: &[(&str, &str)]) -> Result<Vec<String>> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    let nowhere = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}]}"#;
    std::fs::write(&kubeconfig, nowhere)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_operator-controller"));
    command
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg("--cache-path")
        .arg(dir.path().join("cache"))
        .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for name in SETTINGS {
        command.env_remove(name);
    }
    let mut child = command.envs(given.iter().copied()).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut found: Vec<String> = Vec::new();
    while found.len() < SETTINGS.len() && Instant::now() < deadline && child.try_wait()?.is_none() {
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let ours =
            environment.split('\0').filter(|entry| SETTINGS.iter().any(|name| entry.starts_with(name)));
        found = ours.map(str::to_owned).collect();
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill()?;
    child.wait()?;
    found.sort();
    Ok(found)
}

#[test]
fn memory_settings_limit_heaps() -> Result<()> {
    assert_eq!(settings(&[])?, ["MALLOC_ARENA_MAX=2", "MALLOC_TRIM_THRESHOLD_=131072"]);
    Ok(())
}

#[test]
fn memory_settings_of_the_user_win() -> Result<()> {
    let found = settings(&[("MALLOC_ARENA_MAX", "7")])?;
    assert_eq!(found, ["MALLOC_ARENA_MAX=7", "MALLOC_TRIM_THRESHOLD_=131072"]);
    Ok(())
}
