//! A CPU profile: stacks of all threads that use the processor, sampled by a timer of the process.

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use pprof::{ProfilerGuardBuilder, Report};
use prost::Message as _;

use super::proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};

/// Libraries in which no stack is taken: their locks may be held where the timer interrupts.
const BLOCKED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Samples for this time. Returns the profile as pprof's file: protobuf, compressed.
pub(super) async fn take(length: Duration, frequency: i32) -> Result<Vec<u8>, String> {
    let guard = ProfilerGuardBuilder::default().frequency(frequency).blocklist(&BLOCKED).build();
    let guard = guard.map_err(|error| error.to_string())?;
    tokio::time::sleep(length).await;
    let made = tokio::task::spawn_blocking(move || {
        let report = guard.report().build().map_err(|error| error.to_string())?;
        drop(guard);
        compressed(&profile(&report)).map_err(|error| error.to_string())
    });
    made.await.map_err(|error| error.to_string())?
}

fn compressed(profile: &Profile) -> std::io::Result<Vec<u8>> {
    let mut file = GzEncoder::new(Vec::new(), Compression::default());
    file.write_all(&profile.encode_to_vec())?;
    file.finish()
}

/// Texts and their numbers; number 0 is the empty text.
#[derive(Default)]
struct Strings {
    all: Vec<String>,
    known: HashMap<String, i64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.known.get(text) {
            return *number;
        }
        let number = i64::try_from(self.all.len()).unwrap_or_default();
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }
}

fn profile(report: &Report) -> Profile {
    let mut strings = Strings::default();
    strings.number("");
    let period = 1_000_000_000 / i64::from(report.timing.frequency.max(1));
    let [count, cpu] = [("samples", "count"), ("cpu", "nanoseconds")]
        .map(|(kind, unit)| ValueType { r#type: strings.number(kind), unit: strings.number(unit) });
    let thread = strings.number("thread");
    let program = std::env::current_exe().unwrap_or_default();
    let mut profile = Profile {
        mapping: vec![Mapping {
            id: 1,
            filename: strings.number(&program.display().to_string()),
            has_functions: true,
            ..Mapping::default()
        }],
        time_nanos: nanos(report.timing.start_time.duration_since(UNIX_EPOCH).unwrap_or_default()),
        duration_nanos: nanos(report.timing.duration),
        period_type: Some(cpu.clone()),
        period,
        sample_type: vec![count, cpu],
        ..Profile::default()
    };
    let mut functions: HashMap<(i64, i64), u64> = HashMap::new();
    let mut locations: HashMap<Vec<(u64, i64)>, u64> = HashMap::new();
    for (stack, samples) in &report.data {
        let mut location_id = Vec::new();
        for frame in &stack.frames {
            // inlined functions stand before the one that holds them, as pprof wants them
            let mut lines = Vec::new();
            for symbol in frame {
                let (name, file) = (strings.number(&symbol.name()), strings.number(&symbol.filename()));
                let next = functions.len() as u64 + 1;
                let id = *functions.entry((name, file)).or_insert_with(|| {
                    let system_name = strings.number(&symbol.sys_name());
                    profile.function.push(Function { id: next, name, system_name, filename: file });
                    next
                });
                lines.push((id, i64::from(symbol.lineno())));
            }
            let next = locations.len() as u64 + 1;
            location_id.push(*locations.entry(lines).or_insert_with_key(|lines| {
                let line = lines.iter().map(|&(function_id, line)| Line { function_id, line }).collect();
                profile.location.push(Location { id: next, mapping_id: 1, address: 0, line });
                next
            }));
        }
        let samples = i64::try_from(*samples).unwrap_or_default();
        let label = vec![Label { key: thread, str: strings.number(&stack.thread_name_or_id()) }];
        profile.sample.push(Sample { location_id, value: vec![samples, samples * period], label });
    }
    profile.string_table = strings.all;
    profile
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or_default()
}
