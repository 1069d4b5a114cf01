//! Memory of the process as the kernel counts it, as text. The allocator records no stacks, so there is no heap profile (decision 49).

use std::fmt::Write as _;

/// Rows of `/proc/self/status` about memory and threads.
const STATUS: [&str; 9] =
    ["VmPeak", "VmSize", "VmHWM", "VmRSS", "RssAnon", "RssFile", "VmData", "VmSwap", "Threads"];
/// Settings of the allocator (decision 42).
const SETTINGS: [&str; 2] = ["MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX"];

/// The text of the page. What cannot be read is left out.
pub(super) fn report() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let settings = SETTINGS.map(|name| (name, std::env::var(name).ok()));
    page(&read("/proc/self/status"), &read("/proc/self/smaps_rollup"), &read("/proc/self/smaps"), &settings)
}

fn page(status: &str, rollup: &str, maps: &str, settings: &[(&str, Option<String>)]) -> String {
    let mut text =
        "The allocator records no stacks: this is what the kernel counts, not a heap profile.\n\nprocess\n"
            .to_owned();
    let mut add =
        |line: &str| text.push_str(&format!("  {}\n", line.split_whitespace().collect::<Vec<_>>().join(" ")));
    let is_asked = |line: &&str| STATUS.iter().any(|name| line.split(':').next() == Some(name));
    status.lines().filter(is_asked).for_each(&mut add);
    let (mut heaps, mut resident) = (0_u64, 0_u64);
    let mut is_heap = false;
    for line in maps.lines() {
        match line.split_once(':') {
            // a row of values of the mapping above
            Some((name, value)) if !name.contains(' ') && !name.contains('-') => {
                if is_heap && name == "Rss" {
                    resident += value
                        .split_whitespace()
                        .next()
                        .and_then(|kilobytes| kilobytes.parse::<u64>().ok())
                        .unwrap_or(0);
                }
            }
            _ => {
                is_heap = line.ends_with("[heap]");
                heaps += u64::from(is_heap);
            }
        }
    }
    let _ = write!(text, "\nmain heap\n  mappings: {heaps}\n  resident: {resident} kB\n\nall mappings\n");
    for line in rollup.lines().skip(1) {
        let _ = writeln!(text, "  {}", line.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    text.push_str("\nsettings of the allocator\n");
    for (name, value) in settings {
        let _ = writeln!(text, "  {name}: {}", value.as_deref().unwrap_or("not set"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_page_sums_the_heap() {
        let maps = "55a0-55b0 rw-p 00000000 00:00 0    [heap]\nSize:  64 kB\nRss:   40 kB\n7f00-7f10 rw-p 00000000 00:00 0\nRss:  8 kB\n";
        let page = page(
            "Name:\tx\nVmRSS:\t  100 kB\nThreads:\t3\n",
            "55a0-7f10 ---p 00000000 00:00 0 [rollup]\nRss:   90 kB\n",
            maps,
            &[("MALLOC_ARENA_MAX", Some("1".to_owned()))],
        );
        let want = "process\n  VmRSS: 100 kB\n  Threads: 3\n\nmain heap\n  mappings: 1\n  resident: 40 kB\n\nall mappings\n  Rss: 90 kB\n\n\
                    settings of the allocator\n  MALLOC_ARENA_MAX: 1\n";
        assert!(page.ends_with(want), "{page}");
    }
}
