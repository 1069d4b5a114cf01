//! Resources of each process during its life: memory, open files, threads, processor time.
//!
//! A process that is killed and started again begins a new life. The slope of a life is that of the line with the least
//! squares through the memory that it allocated (resident, without the pages of the program itself, of which more and more are
//! touched), its beginning left out: caches and watches fill then. While extensions and their
//! revisions become more, memory does; so only lives that began among all of them are judged by their slope.

use std::sync::Arc;
use std::time::{Duration, Instant};

use olm_kit::Holding;
use parking_lot::Mutex;

/// Between two samples of memory.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(3);
/// What a life's slope leaves out at its beginning, unless the life is short: then it is a third.
const WARM_UP: Duration = Duration::from_secs(120);
/// What a process may grow by, in MiB an hour, while extensions come and go.
pub(crate) const STEEPEST: f64 = 40.0;
/// A life must be watched for so long before its slope means anything.
pub(crate) const LONG: Duration = Duration::from_secs(8 * 60);
/// Files that may be open at rest above the first rest: connections of other processes that linger.
pub(crate) const MORE_FILES: usize = 16;
/// Threads at rest above the first rest: those for blocking work live for some seconds after it.
pub(crate) const MORE_THREADS: usize = 12;

/// What was held at an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Since the life began.
    pub(crate) at: Duration,
    pub(crate) held: Holding,
}

/// From the start of a process to its end.
#[derive(Debug, Clone)]
pub(crate) struct Life {
    pub(crate) process: String,
    pid: u32,
    began: Instant,
    pub(crate) ended: bool,
    /// It began when the cluster was full.
    pub(crate) late: bool,
    pub(crate) samples: Vec<Sample>,
    /// Those taken when nothing was to be done.
    pub(crate) rests: Vec<Sample>,
    pub(crate) cpu: Duration,
}

/// All lives. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sampler(Arc<Mutex<Vec<Life>>>);

impl Sampler {
    /// Samples the processes that live at intervals, until the task is dropped.
    pub(crate) fn watch(&self) -> tokio::task::JoinHandle<()> {
        let sampler = self.clone();
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
            loop {
                ticks.tick().await;
                sampler.update(|lives| {
                    for life in lives.iter_mut().filter(|life| !life.ended) {
                        // one that died by itself is found by the check
                        life.samples.extend(life.now());
                    }
                });
            }
        })
    }

    /// A process began to live.
    pub(crate) fn born(&self, process: &str, pid: u32, late: bool) {
        let (process, began, cpu) = (process.to_owned(), Instant::now(), Duration::ZERO);
        let (samples, rests) = (Vec::new(), Vec::new());
        let life = Life { process, pid, began, ended: false, late, samples, rests, cpu };
        self.update(|lives| lives.push(life));
    }

    /// It is about to be killed, having used this much of the processor.
    pub(crate) fn dies(&self, process: &str, cpu: Duration) {
        self.update(|lives| {
            for life in lives.iter_mut().filter(|life| life.process == process && !life.ended) {
                (life.ended, life.cpu) = (true, cpu);
            }
        });
    }

    /// Notes what the living hold at rest.
    pub(crate) fn rest(&self) {
        self.update(|lives| {
            for life in lives.iter_mut().filter(|life| !life.ended) {
                life.rests.extend(life.now());
            }
        });
    }

    /// All lives so far.
    pub(crate) fn lives(&self) -> Vec<Life> {
        self.update(|lives| lives.clone())
    }

    fn update<T>(&self, change: impl FnOnce(&mut Vec<Life>) -> T) -> T {
        change(&mut self.0.lock())
    }
}

impl Life {
    fn now(&self) -> Option<Sample> {
        Some(Sample { at: self.began.elapsed(), held: Holding::read(self.pid).ok()? })
    }

    /// How long it was watched.
    pub(crate) fn length(&self) -> Duration {
        self.samples.last().map_or(Duration::ZERO, |sample| sample.at)
    }

    /// The samples after its beginning.
    pub(crate) fn grown_up(&self) -> &[Sample] {
        let from = WARM_UP.min(self.length() / 3);
        let at = self.samples.partition_point(|sample| sample.at < from);
        &self.samples[at..]
    }

    /// MiB an hour; nothing when there are too few samples.
    pub(crate) fn slope(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> = self
            .grown_up()
            .iter()
            .map(|sample| (sample.at.as_secs_f64() / 3600.0, mib(sample.held.anonymous)))
            .collect();
        slope(&points)
    }

    /// What it holds too much of, in words.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.late
            && self.length() >= LONG
            && let Some(slope) = self.slope().filter(|slope| *slope > STEEPEST)
        {
            all.push(format!("{} grows by {slope:.1} MiB/h, more than {STEEPEST}", self.process));
        }
        let (Some(first), Some(last)) = (self.rests.first(), self.rests.last()) else { return all };
        for (what, first, last, more) in [
            ("files", first.held.files, last.held.files, MORE_FILES),
            ("threads", first.held.threads, last.held.threads, MORE_THREADS),
        ] {
            if last > first + more {
                all.push(format!("{} had {first} {what} at its first rest and has {last} now", self.process));
            }
        }
        all
    }
}

pub(crate) fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1024.0 * 1024.0)
}

/// Of the line with the least squares.
fn slope(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 {
        return None;
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    let common: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    (spread > 0.0).then(|| common / spread)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(anonymous: impl Fn(u64) -> u64, files: [usize; 2]) -> Life {
        let sample = |seconds: u64, files| Sample {
            at: Duration::from_secs(seconds),
            held: Holding { resident: 0, anonymous: anonymous(seconds), files, threads: 4 },
        };
        Life {
            process: "it".to_owned(),
            pid: 0,
            began: Instant::now(),
            ended: true,
            late: true,
            samples: (0..=200).map(|at| sample(at * 3, 10)).collect(),
            rests: files.map(|files| sample(60, files)).to_vec(),
            cpu: Duration::ZERO,
        }
    }

    #[test]
    fn soak_slopes_exclude_the_beginning() {
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), Some(2.0));
        assert_eq!(slope(&[(0.0, 1.0), (1.0, 3.0)]), None);
        // grows for 100 s, then stays
        let flat = life(|second| second.min(100) << 20, [20, 20]);
        assert!(flat.slope().unwrap().abs() < 1e-6, "{:?}", flat.slope());
        assert_eq!(flat.complaints(), Vec::<String>::new());
        // 1 MiB a minute
        let steep = life(|second| (second << 20) / 60, [20, 20]);
        assert!((steep.slope().unwrap() - 60.0).abs() < 0.1);
        assert_eq!(steep.complaints(), ["it grows by 60.0 MiB/h, more than 40"]);
        assert_eq!(Life { late: false, ..steep }.complaints(), Vec::<String>::new());
    }

    #[test]
    fn soak_reports_files_that_stay_open() {
        assert_eq!(life(|_| 0, [20, 36]).complaints(), Vec::<String>::new());
        let complaints = life(|_| 0, [20, 37]).complaints();
        assert_eq!(complaints, ["it had 20 files at its first rest and has 37 now"]);
    }
}
