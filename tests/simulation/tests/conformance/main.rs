//! The simulated apiserver beside a real one: generated request sequences get the same codes, objects and watch events from both.
//!
//! `OLM_SIMULATION_SEQUENCES` sets their number, `OLM_SIMULATION_SEED` the first seed; a failure names its seed.

mod side;
mod steps;

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use olm_kit::{Cluster, Options, eventually, repository};
use olm_simulation::{ApiServer, Settings, documents};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use self::side::Side;
use self::steps::{KINDS, Kind, Sequence};

const SEQUENCES: u64 = 50;
const STEPS: usize = 25;
/// Sequences that run beside each other.
const BESIDE: usize = 4;
/// Differences that are printed.
const MAX_PRINTED: usize = 8;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test]
async fn apiserver_answers_as_the_real_one() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    let gadgets = include_str!("gadgets.yaml");
    let crds = repository().join("manifests/crds/olm.operatorframework.io_clusterextensions.yaml");
    let extensions = std::fs::read_to_string(crds)?;
    cluster.apply(gadgets).await?;
    cluster.apply(&extensions).await?;
    let real = cluster.client().await?;
    for kind in KINDS {
        eventually(&format!("{kind:?} is served"), Duration::from_secs(60), || async {
            let path = kind.path("default");
            let (code, body) = Side::new(real.clone()).send("GET", &path, "", &Value::Null).await?;
            anyhow::ensure!(code == 200, "{code}: {body}");
            Ok(())
        })
        .await?;
    }
    let settings = Settings {
        garbage_collector: false,
        deployments: None,
        manifests: documents(&[gadgets, &extensions]),
        ..Settings::default()
    };
    let simulated = ApiServer::new(1, settings);

    let first = number("OLM_SIMULATION_SEED", 1);
    let count = number("OLM_SIMULATION_SEQUENCES", SEQUENCES);
    let outcomes = futures::stream::iter(first..first + count)
        .map(|seed| {
            let (real, simulated) = (real.clone(), simulated.user());
            async move { (seed, run(seed, Side::new(real), Side::new(simulated)).await) }
        })
        .buffer_unordered(BESIDE)
        .collect::<Vec<_>>()
        .await;
    let mut failed = Vec::new();
    for (seed, outcome) in outcomes {
        if let Err(difference) = outcome {
            failed.push(format!("OLM_SIMULATION_SEED={seed} OLM_SIMULATION_SEQUENCES=1: {difference:#}"));
        }
    }
    failed.sort();
    println!("{count} sequences of {STEPS} requests, {} differ", failed.len());
    failed.truncate(MAX_PRINTED);
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

async fn run(seed: u64, mut real: Side, mut simulated: Side) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let namespace = format!("s{seed}");
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let kinds: [Kind; 2] = [0, 1].map(|_| KINDS[random.random_range(0..KINDS.len())]);
    let mut starts = Vec::new();
    for side in [&real, &simulated] {
        let (code, body) = side.send("POST", "/api/v1/namespaces", "application/json", &object).await?;
        anyhow::ensure!(code == 201, "namespace: {code} {body}");
        let mut versions = Vec::new();
        for kind in kinds {
            versions.push(side.version(&kind.path(&namespace)).await?);
        }
        starts.push(versions);
    }
    let mut sequence = Sequence { random: &mut random, namespace: namespace.clone(), kinds };
    for number in 0..STEPS {
        let step = sequence.step();
        let expected = real.take(&step).await.context("real")?;
        let got = simulated.take(&step).await.context("simulated")?;
        if expected != got {
            let messages = format!("real: {}, simulated: {}", real.message, simulated.message);
            anyhow::bail!(
                "request {number}: {step:?}\n{messages}\n{}",
                difference(&json!(expected), &json!(got))
            );
        }
    }
    anyhow::ensure!(simulated.rewrites == 0, "{} writes changed nothing", simulated.rewrites);
    for (at, kind) in kinds.into_iter().enumerate() {
        let end = format!("end-{namespace}-{at}");
        let (path, prefix) = (kind.path(&namespace), format!("{namespace}-"));
        let mut last = sequence.object(kind, &end, true);
        last["metadata"] = json!({"name": end});
        let mut events = Vec::new();
        for (side, start) in [(&mut real, &starts[0][at]), (&mut simulated, &starts[1][at])] {
            let (code, body) = side.send("POST", &path, "application/json", &last).await?;
            anyhow::ensure!(code == 201, "end: {code} {body}");
            events.push(side.events(&path, start, &prefix, &end).await?);
        }
        if events[0] != events[1] {
            anyhow::bail!("events of {path}\n{}", difference(&json!(events[0]), &json!(events[1])));
        }
    }
    Ok(())
}

/// The first places where two bodies differ.
fn difference(real: &Value, simulated: &Value) -> String {
    let mut out = Vec::new();
    differ(real, simulated, "", &mut out);
    out.truncate(MAX_PRINTED);
    out.join("\n")
}

fn differ(real: &Value, simulated: &Value, at: &str, out: &mut Vec<String>) {
    match (real, simulated) {
        (Value::Object(one), Value::Object(other)) => {
            let names: std::collections::BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let absent = Value::from("<absent>");
                let part = |map: &serde_json::Map<String, Value>| map.get(name).unwrap_or(&absent).clone();
                differ(&part(one), &part(other), &format!("{at}/{name}"), out);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.for_each(|(i, (one, other))| differ(one, other, &format!("{at}/{i}"), out));
        }
        _ if real == simulated => {}
        _ => out.push(format!("  {at}\n    real      {real}\n    simulated {simulated}")),
    }
}
