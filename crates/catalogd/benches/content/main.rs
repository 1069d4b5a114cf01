//! The costs of catalog content: ingest, serving beside a file server, restart and polls. Prints one Markdown table.
//!
//! `cargo bench -p catalogd --bench content` takes the quick sizes (about a minute); `OLM_BENCH=full` takes those of the
//! goals (about fifteen). `OLM_BENCH_ONLY=ingest,serve,grpc,start,poll` chooses parts.
//!
//! Other work on the machine must not decide, so figures are CPU seconds (of the measured process alone), ratios to an
//! anchor of the same run that is measured alternately, and medians of several rounds. Every figure of a
//! process comes from a process of its own: this program starts itself again for that, and the real catalogd.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its result and its progress")]

mod anchor;
mod api;
mod catalog;
mod grpc;
mod ingest;
mod load;
mod measure;
mod normal;
mod process;
mod registry;
mod serve;
mod start;
mod table;

use anyhow::{Result, bail};

/// What is measured how often.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The sizes of the goals.
    full: bool,
    only: Vec<String>,
}

impl Plan {
    fn from_env() -> Result<Self> {
        let full = match std::env::var("OLM_BENCH").as_deref() {
            Ok("full") => true,
            Ok("quick" | "") | Err(_) => false,
            Ok(other) => bail!("OLM_BENCH is {other:?}; it can be quick or full"),
        };
        let only = std::env::var("OLM_BENCH_ONLY").unwrap_or_default();
        let only = only.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Ok(Self { full, only })
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == part)
    }

    fn rounds(&self) -> usize {
        if self.full { 7 } else { 3 }
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        return ingest::child(arguments.get(1..).unwrap_or_default());
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --benches` only wants to know that it builds
        return Ok(());
    }
    let plan = Plan::from_env()?;
    measure::raise_priority();
    let mut table = table::Table::default();
    if plan.wants("ingest") {
        ingest::measure(&plan, &mut table)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        if plan.wants("serve") {
            serve::measure(&plan, &mut table).await?;
        }
        if plan.wants("grpc") {
            grpc::measure(&plan, &mut table).await?;
        }
        if plan.wants("start") {
            start::measure(&plan, &mut table).await?;
        }
        if plan.wants("poll") {
            start::measure_polls(&plan, &mut table).await?;
        }
        anyhow::Ok(())
    })?;
    println!("{table}");
    Ok(())
}
