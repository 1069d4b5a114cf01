//! `process_*` metrics from `/proc/self`; where there is no such folder they are absent.

use std::fmt;
use std::fs;

use olm_api::observe::metric_named;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::encode_row;

/// Clock ticks a second in `/proc`; the kernel shows 100 to all programs, whatever it uses itself.
const TICKS: f64 = 100.0;
/// `/proc/self/status` has `kB` and means 1024 bytes.
const KIB: f64 = 1024.0;

#[derive(Debug)]
pub(super) struct Process {
    /// seconds since 1970, if known
    started: Option<f64>,
}

impl Process {
    pub(super) fn new() -> Self {
        Self { started: started() }
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        if let Some(seconds) = cpu_seconds() {
            let row = const { metric_named("process_cpu_seconds_total") };
            ConstCounter::new(seconds).encode(encode_row(&mut encoder, row)?)?;
        }
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (row, value) in [
            (const { metric_named("process_resident_memory_bytes") }, status_bytes(&status, "VmRSS:")),
            (const { metric_named("process_virtual_memory_bytes") }, status_bytes(&status, "VmSize:")),
            (const { metric_named("process_open_fds") }, open_files()),
            (const { metric_named("process_max_fds") }, max_files()),
            (const { metric_named("process_start_time_seconds") }, self.started),
        ] {
            let Some(value) = value else { continue };
            ConstGauge::new(value).encode(encode_row(&mut encoder, row)?)?;
        }
        Ok(())
    }
}

/// The fields of `/proc/self/stat` behind the program's name, which may hold anything.
fn stat() -> Option<Vec<String>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

fn ticks(fields: &[String], index: usize) -> Option<f64> {
    fields.get(index)?.parse::<f64>().ok()
}

fn cpu_seconds() -> Option<f64> {
    let fields = stat()?;
    Some((ticks(&fields, 11)? + ticks(&fields, 12)?) / TICKS)
}

fn started() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse::<f64>().ok()?;
    Some(boot + ticks(&stat()?, 19)? / TICKS)
}

fn status_bytes(status: &str, name: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * KIB)
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    u32::try_from(count).ok().map(f64::from)
}

fn max_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_the_process_are_plausible() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status_bytes(&status, "VmRSS:").unwrap();
        assert!(resident > 1e5 && resident < status_bytes(&status, "VmSize:").unwrap());
        assert!(cpu_seconds().unwrap() >= 0.0);
        assert!(open_files().unwrap() >= 3.0 && max_files().unwrap() > 3.0);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
        let started = started().unwrap();
        assert!(started <= now + 2.0 && started > now - 86_400.0, "{started} {now}");
    }
}
