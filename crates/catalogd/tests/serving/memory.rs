//! The process returns freed memory: it starts itself again in place, once.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use olm_kit::{Ca, free_port, unique};

/// Starts catalogd, waits until its environment shows `want`, and ends it.
fn environment_shows(want: &str, given: Option<&str>) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        r#"{"apiVersion": "v1", "kind": "Config", "current-context": "x", "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}]}"#,
    )?;
    let identity = Ca::shared()?.server(&unique("memory"), &[])?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_catalogd"));
    command
        .arg("--cache-dir")
        .arg(dir.path().join("cache"))
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg("--tls-cert")
        .arg(identity.certificate)
        .arg("--tls-key")
        .arg(identity.key)
        .arg(format!("--catalogs-server-addr=127.0.0.1:{}", free_port()?))
        .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
        .env_remove("MALLOC_TRIM_THRESHOLD_")
        .envs(given.map(|given| ("MALLOC_TRIM_THRESHOLD_", given)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let lock = dir.path().join("cache/lock");
    let shown = loop {
        if let Some(status) = child.try_wait()? {
            break Err(anyhow::anyhow!("ended with {status}"));
        }
        // the cache is taken by the program that stays
        if lock.exists() {
            break Ok(std::fs::read(format!("/proc/{}/environ", child.id()))?);
        }
        if Instant::now() > deadline {
            break Err(anyhow::anyhow!("never came to its work"));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    child.kill()?;
    child.wait()?;
    let shown = String::from_utf8_lossy(&shown?).into_owned();
    let entries: Vec<&str> = shown.split('\0').filter(|entry| entry.starts_with("MALLOC_TRIM")).collect();
    ensure!(entries == [format!("MALLOC_TRIM_THRESHOLD_={want}")], "{entries:?}");
    Ok(())
}

#[test]
fn memory_threshold_is_set_once() -> Result<()> {
    environment_shows("131072", None)
}

#[test]
fn memory_threshold_of_the_environment_stays() -> Result<()> {
    environment_shows("4194304", Some("4194304"))
}
