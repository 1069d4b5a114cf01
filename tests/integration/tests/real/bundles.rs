//! Every published bundle of the sample, rendered in every way in which it can be installed, and every object offered to a real
//! apiserver: created and applied, both as a server-side dry run.
//!
//! Kinds that a bare cluster does not have come from the sample where it has them (cert-manager), else from a stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, ValidationDirective};
use kube::discovery::{Discovery, Scope};
use kube::{Client, Error};
use olm_bundle::{CertProvider, InstallMode, Level, RegistryV1, RenderOptions, lint, render_with_report};
use olm_core::Object;
use olm_kit::{Cluster, Options};
use serde_json::{Value, json};

use crate::page::{self, cell};
use crate::sample;

const INSTALLED_IN: &str = "operators";
const WATCHED: &str = "watched";

/// A way to install a bundle.
struct Way {
    mode: InstallMode,
    config: Option<Value>,
    issuer: CertProvider,
}

/// All ways that the bundle supports, the most usual first. The issuer makes a difference only where there are webhooks.
fn ways(bundle: &RegistryV1) -> Vec<Way> {
    let modes = [
        (InstallMode::AllNamespaces, None),
        (InstallMode::OwnNamespace, Some(json!({"watchNamespace": INSTALLED_IN}))),
        (InstallMode::SingleNamespace, Some(json!({"watchNamespace": WATCHED}))),
    ];
    let issuers: &[CertProvider] = match bundle.csv.webhooks.is_empty() {
        true => &[CertProvider::BuiltIn],
        false => &[CertProvider::BuiltIn, CertProvider::CertManager, CertProvider::ServiceCa],
    };
    let supported = modes.into_iter().filter(|(mode, _)| bundle.csv.install_modes.supports(*mode));
    let all = supported.flat_map(|(mode, config)| {
        issuers.iter().map(move |&issuer| Way { mode, config: config.clone(), issuer })
    });
    all.collect()
}

fn render(bundle: &RegistryV1, way: &Way) -> Result<Vec<Object>> {
    let mut options = RenderOptions::new(INSTALLED_IN);
    options.cert_provider = Some(way.issuer);
    options.config.clone_from(&way.config);
    Ok(render_with_report(bundle, &options)?.objects)
}

/// An apiserver that is offered objects.
struct Taker {
    client: Client,
    kinds: Discovery,
}

impl Taker {
    async fn new(client: Client) -> Result<Self> {
        let kinds = Discovery::new(client.clone()).run_aggregated().await?;
        Ok(Self { client, kinds })
    }

    fn knows(&self, object: &Object) -> bool {
        self.kinds.resolve_gvk(&kind_of(object)).is_some()
    }

    /// Offers one object; gives what the apiserver has against it, or what it does not know of it.
    async fn offer(&self, object: &Object) -> Result<(Option<String>, Option<String>)> {
        let Some((resource, able)) = self.kinds.resolve_gvk(&kind_of(object)) else {
            return Ok((Some(format!("the cluster has no kind {}", object.kind())), None));
        };
        let api: Api<DynamicObject> = match able.scope {
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().context("a namespaced object without namespace")?;
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
        };
        let value: DynamicObject = serde_json::from_value(object.to_value())?;
        let post = PostParams { dry_run: true, field_manager: Some("test".to_owned()) };
        let apply = PatchParams { dry_run: true, ..PatchParams::apply("test").force() };
        let created = match api.create(&post, &value).await {
            // kinds of the sample that other bundles brought exist already: applying them finds the rest
            Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
            answer => answer.map(|_| ()),
        };
        let applied = api.patch(object.name(), &apply, &Patch::Apply(&value)).await.map(|_| ());
        let strict = PatchParams { field_validation: Some(ValidationDirective::Strict), ..apply };
        let exact = api.patch(object.name(), &strict, &Patch::Apply(&value)).await.map(|_| ());
        let against = rejection("create", created)?.or(rejection("apply", applied)?);
        let unknown = rejection("strict", exact)?.filter(|_| against.is_none());
        Ok((against, unknown))
    }
}

fn kind_of(object: &Object) -> GroupVersionKind {
    let (group, version) = object.api_version().split_once('/').unwrap_or(("", object.api_version()));
    GroupVersionKind::gvk(group, version, object.kind())
}

/// What the apiserver answered, if it was a no.
fn rejection(what: &str, answer: std::result::Result<(), Error>) -> Result<Option<String>> {
    match answer {
        Ok(()) => Ok(None),
        Err(Error::Api(status)) => Ok(Some(format!("{what}: {}", status.message))),
        Err(problem) => Err(problem.into()),
    }
}

/// How one bundle fares, as a row of the list.
async fn row(name: &str, folder: &Path, bare: &Taker, ready: &Taker) -> Result<(String, Fare)> {
    let bytes: u64 = ["manifests", "metadata"]
        .iter()
        .map(|part| Ok(std::fs::read_dir(folder.join(part))?))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .map(|file| Ok(file?.metadata()?.len()))
        .sum::<Result<u64>>()?;
    let bundle = RegistryV1::load_dir(folder).with_context(|| name.to_owned())?;
    let findings = lint(&bundle);
    let count = |level: Level| findings.iter().filter(|finding| finding.level == level).count();
    let ways = ways(&bundle);
    let (mut offered, mut against) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    let (mut kinds, mut unknown) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    let mut sizes = Vec::new();
    for way in &ways {
        let objects = render(&bundle, way).with_context(|| format!("{name} in {:?}", way.mode))?;
        sizes.push(objects.len());
        let missing = objects.iter().filter(|object| !bare.knows(object));
        // what our own issuer of choice brings along is no need of the bundle
        let missing = missing.filter(|object| !object.api_version().starts_with("cert-manager.io/"));
        kinds.extend(missing.map(|object| object.kind().to_owned()));
        // many renderings share most of their objects
        let fresh: Vec<&Object> =
            objects.iter().filter(|object| offered.insert(object.to_value().to_string())).collect();
        let answers: Vec<_> = futures::stream::iter(fresh)
            .map(|object| async move { ready.offer(object).await.with_context(|| object.key().to_string()) })
            .buffered(8)
            .try_collect()
            .await?;
        for (refused, unknown_field) in answers {
            refused.into_iter().for_each(|text| *against.entry(text).or_default() += 1);
            unknown_field.into_iter().for_each(|text| *unknown.entry(text).or_default() += 1);
        }
    }
    let fare = Fare { offered: offered.len(), refused: against.values().sum(), renderings: ways.len() };
    let list = |texts: BTreeMap<String, usize>| texts.into_keys().collect::<Vec<_>>().join("; ");
    let outcome = match (against.is_empty(), unknown.is_empty()) {
        (true, true) => "accepted".to_owned(),
        (true, false) => format!("accepted; ignored: {}", list(unknown)),
        (false, _) => format!("refused: {}", list(against)),
    };
    let (least, most) =
        (sizes.iter().min().context("no way to install it")?, sizes.iter().max().context("no way")?);
    let objects = if least == most { most.to_string() } else { format!("{least}–{most}") };
    let kinds =
        if kinds.is_empty() { "–".to_owned() } else { kinds.into_iter().collect::<Vec<_>>().join(", ") };
    let row = format!(
        "| {name} | {} kB | {} | {} / {} / {} | {} | {objects} | {} | {kinds} | {} |\n",
        bytes / 1000,
        bundle.csv.install_modes,
        count(Level::Error),
        count(Level::Warning),
        count(Level::Note),
        ways.len(),
        offered.len(),
        cell(&outcome),
    );
    Ok((row, fare))
}

/// What is summed up.
#[derive(Default)]
struct Fare {
    offered: usize,
    refused: usize,
    renderings: usize,
}

/// The kinds of others that bundles of the sample use.
async fn bring_kinds(cluster: &Cluster, data: &Path) -> Result<()> {
    for kind in [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")] {
        let crd = sample::stand_in("monitoring.coreos.com", "v1", kind.0, kind.1);
        cluster.apply(&crd.to_string()).await?;
    }
    let cert_manager = RegistryV1::load_dir(&data.join("bundles/cert-manager/1.7.1"))?;
    let way = ways(&cert_manager).into_iter().next().context("cert-manager cannot be installed")?;
    for object in render(&cert_manager, &way)? {
        if object.kind() == "CustomResourceDefinition" {
            cluster.apply(&object.to_value().to_string()).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn bundles_are_accepted_in_each_supported_install_mode() -> Result<()> {
    let Some(data) = sample::data() else { return Ok(()) };
    let began = std::time::Instant::now();
    // its own: kinds of cert-manager would change what other tests see
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    for namespace in [INSTALLED_IN, WATCHED] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.apply(&namespace.to_string()).await?;
    }
    let bare = Taker::new(cluster.client().await?).await?;
    bring_kinds(&cluster, &data).await?;
    let ready = Taker::new(cluster.client().await?).await?;

    let (mut rows, mut sum) = (String::new(), Fare::default());
    let bundles = sample::bundles(&data)?;
    for (name, folder) in &bundles {
        let (row, fare) = row(name, folder, &bare, &ready).await?;
        rows.push_str(&row);
        sum.offered += fare.offered;
        sum.refused += fare.refused;
        sum.renderings += fare.renderings;
    }
    println!("real bundles: {} objects offered in {:.1?}", sum.offered, began.elapsed());
    ensure!(bundles.len() >= 20 && sum.offered > 500, "the sample is whole: {rows}");
    let text = format!(
        "{} bundles, {} renderings (install modes × issuers of webhook certificates), {} different objects offered, {} refused.\n\n\
         | Bundle | Size | Install modes | Findings | Renderings | Objects | Offered | Kinds of others | Outcome |\n\
         |---|---:|---|---|---:|---:|---:|---|---|\n{rows}",
        bundles.len(),
        sum.renderings,
        sum.offered,
        sum.refused,
    );
    page::check("bundles", text.trim_end())
}

/// The check can fail: a bundle that a real cluster rejects is rejected here.
#[tokio::test]
async fn bundles_that_are_damaged_are_rejected() -> Result<()> {
    let Some(data) = sample::data() else { return Ok(()) };
    let cluster = Cluster::shared().await?;
    let taker = Taker::new(cluster.client().await?).await?;
    let bundle = RegistryV1::load_dir(&data.join("bundles/patterns-operator/0.0.63"))?;
    let way = Way { mode: InstallMode::AllNamespaces, config: None, issuer: CertProvider::BuiltIn };
    let objects = render(&bundle, &way)?;
    let Some(deployment) = objects.iter().find(|object| object.kind() == "Deployment") else {
        bail!("no Deployment")
    };
    let mut value = deployment.to_value();
    value["metadata"]["namespace"] = "default".into();
    value["spec"]["replicas"] = json!(-1);
    let (against, _) = taker.offer(&Object::from_value(value.clone())?).await?;
    ensure!(against.as_deref().is_some_and(|text| text.contains("spec.replicas")), "{against:?}");
    value["spec"]["replicas"] = json!(1);
    value["kind"] = "Deploiment".into();
    let (against, _) = taker.offer(&Object::from_value(value)?).await?;
    ensure!(against.as_deref() == Some("the cluster has no kind Deploiment"), "{against:?}");
    Ok(())
}
