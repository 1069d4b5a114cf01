//! Makes the allocator return memory that the process has freed.
//!
//! The allocator of glibc raises its own thresholds whenever a large piece is freed, and from then on keeps megabytes that
//! nothing uses: after one pull catalogd would hold a quarter more than it needs, for ever. The thresholds stay where
//! they are when the environment names one, and only the environment of a new program is read: so the process starts
//! itself again, once, in place (same process id, 2 ms). Other allocators do not look.
//!
//! The same environment limits the heaps. The allocator would make up to eight for each processor, each with holes of its own;
//! threads that share one wait for each other a little.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// From how many unused bytes at the end of a heap memory is returned. A value of the environment wins.
const THRESHOLD: (&str, &str) = ("MALLOC_TRIM_THRESHOLD_", "131072");
/// Heaps, at most. A value of the environment wins.
const HEAPS: (&str, &str) = ("MALLOC_ARENA_MAX", "2");

/// Replaces this process by itself with the threshold set, unless it is set. Comes back when there is nothing to do or it
/// cannot be done, which costs nothing but memory. Call it before anything else has begun.
pub fn return_freed() {
    again_with(&[THRESHOLD]);
}

/// As [`return_freed`], for a process that makes many small things in many threads: with few heaps, too.
pub fn return_freed_of_few_heaps() {
    again_with(&[THRESHOLD, HEAPS]);
}

fn again_with(settings: &[(&str, &str)]) {
    let missing: Vec<_> = settings.iter().filter(|(name, _)| std::env::var_os(name).is_none()).collect();
    if missing.is_empty() || cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // It returns only with an error: then this is still the old process, and it continues.
    let _still_here = again.args(arguments).envs(missing.into_iter().copied()).exec();
}
