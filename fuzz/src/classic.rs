//! Objects of OLM Classic: ClusterServiceVersions, and the constraints of bundles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use olm_api::classic::{ClusterServiceVersion, Time};
use olm_classic::csv::requirements::{self, Cluster};
use olm_classic::csv::{InstallResult, Observed, chain, decide, health, strategy, webhooks};
use olm_classic::install_plan::{PlannedBundle, bundle_objects};
use olm_core::{KubernetesVersion, Object};
use olm_resolver::constraint;
use olm_solver::{
    BundleDraft, Catalog, CatalogSource, ChannelDraft, ChannelEntry, ChosenBundle, Limits, Namespace,
    PackageDraft, Property, SolveError, Subscription, explain, solve,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{parts, texts};

/// Steps after which the phase machine must be at rest.
const MAX_STEPS: usize = 32;

fn read(part: &[u8]) -> Option<(Object, ClusterServiceVersion)> {
    let mut json = Vec::new();
    olm_yaml::yaml_to_json(part, &mut json, &olm_yaml::Limits::default()).ok()?;
    Some((serde_json::from_slice(&json).ok()?, serde_json::from_slice(&json).ok()?))
}

/// A ClusterServiceVersion and another one of its namespace.
pub(crate) fn csv(input: &[u8]) {
    let [own, other] = parts::<2>(input);
    let Some((object, csv)) = read(own) else { return };
    let all: Vec<ClusterServiceVersion> =
        [csv.clone()].into_iter().chain(read(other).map(|(_, csv)| csv)).collect();
    let settings = strategy::Settings::default();
    let deployments = strategy::deployments(&csv, &settings);
    assert_eq!(deployments.as_ref().err(), strategy::check(&csv).err().as_ref());
    let desired = deployments.unwrap_or_default();
    let version = KubernetesVersion { major: 1, minor: 33, patch: 0 };
    let cluster = Cluster {
        version,
        crds: &BTreeMap::new(),
        apis: &BTreeSet::new(),
        api_services: &BTreeMap::new(),
        has_replaced: true,
        service_accounts: &BTreeMap::new(),
        may: &|_, _, _| true,
    };
    if let Err(error) = webhooks::check(&csv.spec.webhook_definitions) {
        assert!(!error.to_string().is_empty());
    }
    let observed = |are_met: bool| {
        let mut requirements = requirements::check(&csv, &cluster);
        requirements.are_met |= are_met;
        Observed {
            requirements,
            neighbors: chain::neighbors(&csv, &all, &BTreeMap::new()),
            install: InstallResult::Succeeded,
            health: health::check(&desired, &desired, &chain::others(&csv, &all)),
            ..Observed::default()
        }
    };
    for are_met in [false, true] {
        rests(csv.clone(), &observed(are_met));
    }
    plan(&object);
}

/// Runs the phase machine with unchanged facts.
fn rests(mut csv: ClusterServiceVersion, observed: &Observed) {
    let now = Time(Timestamp::UNIX_EPOCH);
    for _ in 0..MAX_STEPS {
        let step = decide(&csv, observed, &now);
        assert_eq!(step, decide(&csv, observed, &now));
        if step.keeps_status() {
            return;
        }
        csv.status = Some(step.apply(csv.status.as_ref(), &now));
    }
    let status = csv.status.unwrap_or_default();
    unreachable!("no rest after {MAX_STEPS} steps: {} {}", status.phase, status.reason);
}

/// The steps of a plan with this ClusterServiceVersion alone.
fn plan(object: &Object) {
    let chosen = ChosenBundle {
        namespace: "olm".to_owned(),
        catalog: "sample".to_owned(),
        channel: "stable".to_owned(),
        name: object.name().to_owned(),
        package: "package".to_owned(),
        replaces: String::new(),
    };
    let objects = [object.clone()];
    let bundle = PlannedBundle { chosen: &chosen, objects: &objects, properties: &[], image: None };
    match bundle_objects(&bundle, "operators", &[]) {
        Ok(objects) => {
            assert!(objects.iter().all(|object| !object.kind().is_empty() && !object.name().is_empty()))
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[derive(Deserialize)]
struct RawProperty<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

fn package(name: &str, properties: Vec<Property>) -> PackageDraft {
    let bundle = format!("{name}.v1.0.0");
    let entry = ChannelEntry { name: bundle.clone(), ..ChannelEntry::default() };
    PackageDraft {
        name: name.to_owned(),
        default_channel: "stable".to_owned(),
        channels: vec![ChannelDraft { name: "stable".to_owned(), entries: vec![entry] }],
        bundles: vec![BundleDraft {
            name: bundle,
            version: "1.0.0".to_owned(),
            properties,
            ..BundleDraft::default()
        }],
    }
}

/// A dependency of one bundle, and the properties of another.
pub(crate) fn constraint(input: &[u8]) {
    let [need, properties] = texts::<2>(input);
    let properties: Vec<RawProperty<'_>> = serde_json::from_str(&properties).unwrap_or_default();
    let offered: Vec<Property> = properties
        .iter()
        .map(|it| Property { kind: it.kind.as_str().into(), value: it.value.get().into() })
        .collect();
    for kind in ["olm.constraint", "olm.package.required", "olm.gvk.required", "olm.label.required"] {
        let need = Property { kind: kind.into(), value: need.as_str().into() };
        let is_unreadable = matches!(constraint::read(&need), Some(Err(_)));
        let catalog = Catalog::new([package("a", vec![need]), package("b", offered.clone())]);
        let subscription = Subscription {
            name: "a".to_owned(),
            package: "a".to_owned(),
            channel: "stable".to_owned(),
            catalog: "own".to_owned(),
            catalog_namespace: "ns".to_owned(),
            ..Subscription::default()
        };
        let source = CatalogSource {
            name: "own".to_owned(),
            namespace: "ns".to_owned(),
            priority: 0,
            content: Ok(Arc::new(catalog)),
        };
        let namespace = Namespace {
            name: "ns".to_owned(),
            catalogs: vec![source],
            subscriptions: vec![subscription],
            ..Namespace::default()
        };
        agrees(&namespace, is_unreadable);
    }
}

fn agrees(namespace: &Namespace, is_unreadable: bool) {
    let limits = Limits { steps: 200_000, decisions: 20_000 };
    let one = solve(namespace, limits);
    assert_eq!(one, solve(namespace, limits));
    match &one {
        Ok(solution) => {
            assert!(!is_unreadable, "a constraint that cannot be read is met");
            let choices = explain(namespace, limits).unwrap_or_default();
            let mut bundles: Vec<ChosenBundle> =
                choices.into_iter().filter_map(|choice| choice.bundle).collect();
            bundles.sort();
            assert_eq!(bundles, solution.bundles);
        }
        Err(SolveError::Unsatisfiable(conflict)) => {
            assert!(!is_unreadable && !conflict.clauses.is_empty());
            assert!(conflict.clauses.iter().all(|clause| !clause.hint().is_empty()));
        }
        Err(error @ (SolveError::Input(_) | SolveError::TooMuchWork { .. })) => {
            assert!(!error.to_string().is_empty());
        }
    }
}
