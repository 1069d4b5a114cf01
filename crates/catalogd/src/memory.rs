//! Lets the process give back memory that it has freed.
//!
//! The allocator of glibc raises its own thresholds whenever a large piece is freed, and from then on keeps megabytes that
//! nothing uses: after one pull the process would hold a quarter more than it needs, for ever. The thresholds stay where
//! they are when the environment names one, and only the environment of a new program is looked at: so the process starts
//! itself again, once, in place (same process id, 2 ms). Other allocators do not look.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// From how many unused bytes at the end of a heap memory is given back. Whoever sets it decides.
const THRESHOLD: (&str, &str) = ("MALLOC_TRIM_THRESHOLD_", "131072");

/// Replaces this process by itself with the threshold set, unless it is set. Comes back when there is nothing to do or it
/// cannot be done, which costs nothing but memory. Call it before anything else has begun.
pub fn give_back() {
    let set = std::env::var_os(THRESHOLD.0).is_some();
    if set || cfg!(not(all(target_os = "linux", target_env = "gnu"))) {
        return;
    }
    let mut arguments = std::env::args_os();
    let mut again = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // It returns only with an error: then this is still the old process, and it goes on.
    let _still_here = again.args(arguments).env(THRESHOLD.0, THRESHOLD.1).exec();
}
