//! Random bytes from a seed and clocks from tokio's paused time, for all code of a test program, its dependencies included.
//!
//! Two functions of libc are defined here, which the linker then prefers to those of libc: `getrandom`, from which the standard
//! library seeds its hashers, tokio its `select!` and `rand` its generators; and `clock_gettime`, from which `SystemTime` and
//! `Instant` of the standard library come. A thread that has not asked for anything gets the kernel's.
//!
//! The state is that of a thread, so a simulation runs on one thread of its own. tokio counts the runtimes of a process and seeds
//! its random numbers with the count as well: only the first runtime of a process repeats exactly.

mod fork;

pub use fork::{Copied, Fork, fork};

use std::cell::Cell;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use libc::{c_int, c_uint, c_void, clockid_t, size_t, ssize_t, timespec};
use tokio::time::Instant;

/// What the clocks of a thread show.
#[derive(Clone, Copy)]
struct Clocks {
    start: Instant,
    /// The wall clock at the start.
    epoch: Timestamp,
    /// By how much the wall clock is wrong.
    shift: SignedDuration,
    /// The monotonic clock of the machine at the start.
    monotonic: Duration,
}

thread_local! {
    static RANDOM: Cell<Option<u64>> = const { Cell::new(None) };
    static CLOCKS: Cell<Option<Clocks>> = const { Cell::new(None) };
}

/// From now on random bytes of this thread follow from `seed`. To be called before the thread uses a hash map.
pub fn seed(seed: u64) {
    RANDOM.set(Some(seed));
}

/// From now on the clocks of this thread follow tokio's paused clock, and the wall clock shows `epoch` now. To be called within a
/// runtime whose time is paused.
pub fn follow_tokio(epoch: Timestamp) {
    let monotonic = of_kernel(libc::CLOCK_MONOTONIC);
    CLOCKS.set(Some(Clocks { start: Instant::now(), epoch, shift: SignedDuration::ZERO, monotonic }));
}

/// Sets the wall clock of this thread wrong by `shift`.
pub fn shift_wall_clock(shift: SignedDuration) {
    CLOCKS.set(CLOCKS.get().map(|clocks| Clocks { shift, ..clocks }));
}

/// The time by a clock of this thread; `None` if it is that of the kernel.
fn time(clock: clockid_t) -> Option<Duration> {
    // without the state while tokio is asked, so that what it asks of the kernel is answered by the kernel
    let clocks = CLOCKS.take()?;
    let elapsed = clocks.start.elapsed();
    CLOCKS.set(Some(clocks));
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => {
            let wall = clocks.epoch.as_duration() + clocks.shift + SignedDuration::try_from(elapsed).ok()?;
            Duration::try_from(wall).ok()
        }
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_BOOTTIME => Some(clocks.monotonic + elapsed),
        _ => None,
    }
}

/// The next eight random bytes (SplitMix64); `None` if they come from the kernel.
fn random() -> Option<[u8; 8]> {
    let state = RANDOM.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
    RANDOM.set(Some(state));
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    Some((mixed ^ (mixed >> 31)).to_le_bytes())
}

fn of_kernel(clock: clockid_t) -> Duration {
    let mut read = timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "a system call that writes to `read`")]
    unsafe {
        libc::syscall(libc::SYS_clock_gettime, clock, &raw mut read);
    }
    Duration::new(read.tv_sec.unsigned_abs(), u32::try_from(read.tv_nsec).unwrap_or_default())
}

/// # Safety
/// As of libc's: `read` can be written.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "defines a function of libc")]
unsafe extern "C" fn clock_gettime(clock: clockid_t, read: *mut timespec) -> c_int {
    match time(clock) {
        Some(time) => {
            let (seconds, nanos) =
                (i64::try_from(time.as_secs()).unwrap_or(i64::MAX), i64::from(time.subsec_nanos()));
            unsafe { read.write(timespec { tv_sec: seconds, tv_nsec: nanos }) };
            0
        }
        None => unsafe { c_int::try_from(libc::syscall(libc::SYS_clock_gettime, clock, read)).unwrap_or(-1) },
    }
}

/// # Safety
/// As of libc's: `bytes` has space for `length`.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "defines a function of libc")]
unsafe extern "C" fn getrandom(bytes: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    let mut written = 0;
    while written < length {
        let Some(chunk) = random() else {
            return unsafe {
                ssize_t::try_from(libc::syscall(libc::SYS_getrandom, bytes, length, flags)).unwrap_or(-1)
            };
        };
        let count = chunk.len().min(length - written);
        unsafe { std::ptr::copy_nonoverlapping(chunk.as_ptr(), bytes.cast::<u8>().add(written), count) };
        written += count;
    }
    ssize_t::try_from(length).unwrap_or(-1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::SystemTime;

    use super::*;

    /// The order of a hash set that is filled on a thread of its own.
    fn order(seed: Option<u64>) -> Vec<u32> {
        let filled = move || {
            if let Some(seed) = seed {
                super::seed(seed);
            }
            (0..100).collect::<HashSet<u32>>().into_iter().collect()
        };
        std::thread::spawn(filled).join().unwrap()
    }

    #[test]
    fn hashers_follow_the_seed() {
        assert_eq!(order(Some(7)), order(Some(7)));
        assert_ne!(order(Some(7)), order(Some(8)));
        assert_ne!(order(None), order(None), "other threads are random");
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_follow_paused_time() {
        let wall = || Timestamp::try_from(SystemTime::now()).unwrap();
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        follow_tokio(epoch);
        let (began, hour) = (std::time::Instant::now(), Duration::from_secs(3_600));
        assert_eq!(wall(), epoch);
        tokio::time::sleep(hour).await;
        assert_eq!((wall(), began.elapsed()), (epoch + hour, hour));
        shift_wall_clock(SignedDuration::from_hours(-1));
        assert_eq!((wall(), began.elapsed()), (epoch, hour));
    }
}
