//! The cost of OLM Classic's controllers: installs, an upgrade, rest, a restart, a large catalog, and copied ClusterServiceVersions.
//!
//! ```text
//! make bench-classic      # the sizes of `docs/internals/benchmarks.md`
//! ```
//!
//! Each package has eight objects (CRD, service account, two roles with bindings, ConfigMap, Deployment), and its pods run on kwok.
//! `OLM_CLASSIC=20,100` is how many Subscriptions come at the same time, each in its namespace; the last number stays for the rest and the
//! restart. `OLM_CLASSIC_NAMESPACES=200,1000` is how many namespaces a global operator is copied to, `OLM_CLASSIC_CATALOG=128` the size of a
//! catalog in MB, and `OLM_REST=120` the seconds of rest. `OLM_CLASSIC_REFERENCE=20` installs as many with the reference, too (see
//! [`reference`]). Requests and writes are those of the apiserver's record, without watches and leases.
//! `OLM_CLASSIC_REQUESTS=1` prints them by verb and resource; with `OLM_CLASSIC_COUNTS=1` only they are checked, which a program without
//! optimisation passes, too.

#![expect(clippy::print_stdout, reason = "a bench prints")]

mod copies;
mod installs;
mod plane;
mod reference;

use anyhow::{Context as _, Result};
use olm_integration::bounds::Bounds;

const MIB: f64 = 1024.0 * 1024.0;

#[tokio::main]
async fn main() -> Result<()> {
    let Some(sizes) = numbers("OLM_CLASSIC", "")? else {
        println!("SKIPPED: run the bench of OLM Classic's controllers by `make bench-classic`");
        return Ok(());
    };
    let mut bounds = Bounds::default();
    let rest = numbers("OLM_REST", "10")?.and_then(|all| all.first().copied()).unwrap_or(10);
    let catalog = numbers("OLM_CLASSIC_CATALOG", "16")?.and_then(|all| all.first().copied()).unwrap_or(16);
    for size in numbers("OLM_CLASSIC_REFERENCE", "")?.into_iter().flatten() {
        reference::measure(size, rest, &mut bounds).await?;
    }
    let slower = installs::measure(&sizes, rest, catalog, &mut bounds).await?;
    for namespaces in numbers("OLM_CLASSIC_NAMESPACES", "20")?.into_iter().flatten() {
        copies::measure(namespaces, slower, &mut bounds).await?;
    }
    bounds.check()
}

/// The numbers of an environment variable; `None` for an empty one.
fn numbers(variable: &str, default: &str) -> Result<Option<Vec<usize>>> {
    let text = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
    if text.is_empty() {
        return Ok(None);
    }
    let number =
        |text: &str| text.trim().parse().with_context(|| format!("{variable}: {text:?} is no number"));
    text.split(',').map(number).collect::<Result<_>>().map(Some)
}

/// Whether only requests and writes are checked.
fn only_counts() -> bool {
    std::env::var_os("OLM_CLASSIC_COUNTS").is_some()
}
