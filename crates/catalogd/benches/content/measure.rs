//! Processor time and memory of processes, from the kernel; running this program again; medians of rounds.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Asks the scheduler to favour this program and what it starts, where that is permitted.
pub(crate) fn raise_priority() {
    // without the right to it the figures are as good, only noisier
    let _ = std::fs::write("/proc/self/autogroup", "-15");
}

/// Processor time of this process so far, user and system, threads that have ended included.
pub(crate) fn own_cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// Processor time of a process and its children, in steps of 10 ms.
pub(crate) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the process has ended")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|&at| fields.get(at)?.parse::<u64>().ok()).sum();
    let mut sum = Duration::from_millis(ticks * 10);
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_ascii_whitespace() {
        sum += cpu(child.parse()?)?;
    }
    Ok(sum)
}

/// Resident memory in bytes: now, and the most so far.
pub(crate) fn memory(pid: u32) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.map(|kib| kib * 1024).with_context(|| format!("no {name}"))
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

/// Bytes that a process has written so far, to files and pipes.
pub(crate) fn written(pid: u32) -> Result<u64> {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).context("the process has ended")?;
    let bytes = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    bytes.context("no wchar")?.parse().context("wchar is no number")
}

/// Runs this program with arguments and reads the JSON that it prints last.
pub(crate) fn again(arguments: &[&str]) -> Result<Value> {
    let output = Command::new(std::env::current_exe()?)
        .arg("child")
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start this program again")?;
    ensure!(output.status.success(), "{arguments:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    serde_json::from_str(text.trim()).with_context(|| format!("{arguments:?} printed {text:?}"))
}

/// The middle one.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    percentile(figures.into_iter().collect(), 50)
}

/// The figure below which `percent` of all lie.
pub(crate) fn percentile(mut figures: Vec<f64>, percent: usize) -> f64 {
    figures.sort_by(f64::total_cmp);
    let at = (figures.len() * percent / 100).min(figures.len().saturating_sub(1));
    figures.get(at).copied().unwrap_or(f64::NAN)
}
