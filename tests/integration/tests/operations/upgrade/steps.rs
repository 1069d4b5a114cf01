//! Comparisons after each step, and their table.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use olm_api::{ClusterExtension, labels};
use olm_kit::{Ca, Cluster, still};
use serde_json::{Value, json};

use super::conditions::ConditionWatch;
use super::content::{self, CATALOGS, EXTENSIONS};
use super::requests::{Effect, Requests};
use super::snapshot::{FileChanges, Files, Snapshot, blob_gets};
use super::system::{LIMIT, PROGRAMS, System, Version};

/// The programs are at rest after this time without a request.
const REST: Duration = Duration::from_secs(3);
/// Lines of one kind that a step adds to the findings.
const LINES: usize = 25;
/// Programs that cache files.
const CACHING: [&str; 2] = ["catalogd", "operator-controller"];

/// What was done before a comparison.
pub(crate) enum Step {
    /// The old programs were restarted: their writes are the reference for later ones.
    Reference,
    /// This program was replaced, and another process led after this time.
    Replaced(&'static str, Duration),
    /// Standbys of the other version were started; they are to run beside the leaders for this long.
    Beside(Duration),
}

/// One line of the table.
#[derive(Debug, Default)]
struct Row {
    title: String,
    handover: Option<Duration>,
    requests: usize,
    leases: usize,
    /// Writes that a restart of the old programs makes, too.
    known: usize,
    /// Writes of what older versions did not record in content Secrets.
    recorded: usize,
    writes: usize,
    changed: usize,
    by_kubernetes: usize,
    conditions: usize,
    catalog_gets: usize,
    bundle_gets: usize,
    files: FileChanges,
}

/// What was observed last.
struct Baseline {
    snapshot: Snapshot,
    requests: Requests,
    /// Writes of a restart of the old programs.
    reference: BTreeSet<String>,
    conditions: ConditionWatch,
    /// By program and cache folder.
    files: BTreeMap<std::path::PathBuf, Files>,
    /// Blob downloads of each catalog by the first pull.
    first_pull: BTreeMap<String, usize>,
    /// How far the registry's log was read.
    registry_log: u64,
    /// Digest of what catalogd serves for each catalog.
    served: BTreeMap<String, String>,
}

/// The comparisons of all steps.
#[derive(Default)]
pub(crate) struct Checks {
    baseline: Option<Baseline>,
    rows: Vec<Row>,
    /// What should not have happened.
    pub(crate) findings: Vec<String>,
}

impl Checks {
    /// Waits for the steady state that all later states are compared with.
    pub(crate) async fn begin(&mut self, system: &mut System) -> Result<()> {
        let client = system.cluster.client().await?;
        let mut requests = Requests::start(&system.cluster)?;
        still("the programs are at rest", LIMIT, REST, || requests.count()).await?;
        requests.take()?;
        let conditions = ConditionWatch::start(&client);
        let snapshot = Snapshot::take(&client).await?;
        let unhealthy = snapshot.unhealthy();
        ensure!(unhealthy.is_empty(), "not healthy before the upgrade:\n{}", unhealthy.join("\n"));
        let webhooks = (0..EXTENSIONS).filter(|index| content::has_webhooks(*index)).count();
        let certificates = snapshot.certificates().len();
        ensure!(certificates == webhooks, "{certificates} certificates for {webhooks} bundles with webhooks");
        let (log, registry_log) = system.registry_log(0)?;
        let first_pull = catalogs(blob_gets(&log));
        ensure!(first_pull.len() == CATALOGS, "the registry's log has pulls of {first_pull:?} alone");
        let mut files = BTreeMap::new();
        for program in CACHING {
            let folder = system.cache(program).context("no cache folder")?;
            files.insert(folder.clone(), Files::read(&folder)?);
        }
        let served = served(system).await?;
        let served = served.into_iter().next().context("catalogd does not serve")?;
        let reference = BTreeSet::new();
        #[rustfmt::skip]
        let baseline = Baseline {
            snapshot, requests, reference, conditions, files, first_pull, registry_log, served,
        };
        self.baseline = Some(baseline);
        Ok(())
    }

    /// Waits until the programs are at rest, and compares with the state after the last step.
    pub(crate) async fn compare(&mut self, system: &mut System, title: &str, step: &Step) -> Result<()> {
        println!("{title} …");
        let baseline = self.baseline.as_mut().context("no baseline")?;
        let mut found = Vec::new();
        let mut row = Row { title: title.to_owned(), ..Row::default() };
        let (mut replaced, mut standbys) = (None, false);
        let mut holders = Vec::new();
        for program in PROGRAMS {
            holders.push(system.holder(program).await?);
        }
        match *step {
            Step::Reference => {}
            Step::Replaced(program, took) => (replaced, row.handover) = (Some(program), Some(took)),
            Step::Beside(time) => {
                standbys = true;
                tokio::time::sleep(time).await;
            }
        }
        still("the programs are at rest", LIMIT, REST, || baseline.requests.count()).await?;

        // leadership
        for (program, before) in PROGRAMS.into_iter().zip(holders) {
            let after = system.holder(program).await?;
            if before != after {
                found.push(format!("the lease of {program} went from {before} to {after}"));
            }
        }

        let snapshot = Snapshot::take(&system.cluster.client().await?).await?;
        let changes = baseline.snapshot.changes(&snapshot);

        // requests
        let requests = baseline.requests.take()?;
        row.requests = requests.len();
        for own in &requests {
            let standby =
                standbys && system.replicas(own.program).get(1).is_some_and(|it| it.version == own.version);
            match own.effect() {
                Effect::Reads | Effect::Reviews | Effect::DryRun => {}
                Effect::Lease if standby => {
                    found.push(format!("a standby wrote the lease: {}", own.describe()))
                }
                Effect::Lease => row.leases += 1,
                Effect::Writes if matches!(step, Step::Reference) => {
                    row.known += 1;
                    baseline.reference.insert(own.operation());
                }
                Effect::Writes if baseline.reference.contains(&own.operation()) => row.known += 1,
                Effect::Writes if own.patches_one_of(&changes.recorded) => row.recorded += 1,
                Effect::Writes => {
                    row.writes += 1;
                    if row.writes <= LINES {
                        found.push(format!("write: {}", own.describe()));
                    }
                }
            }
        }

        // objects and conditions
        if row.recorded != changes.recorded.len() {
            found.push(format!("{} writes recorded {:?}", row.recorded, changes.recorded));
        }
        (row.changed, row.by_kubernetes) = (changes.lines.len(), changes.by_kubernetes);
        if !matches!(step, Step::Reference) {
            found.extend(changes.lines.into_iter().take(LINES).map(|line| format!("object: {line}")));
        }
        found.extend(snapshot.unhealthy());
        let (before, after) = (baseline.snapshot.certificates(), snapshot.certificates());
        let reissued = before.iter().filter(|(secret, certificate)| after.get(*secret) != Some(certificate));
        found.extend(
            reissued.map(|(secret, _)| format!("certificate of {secret} was issued again or removed")),
        );
        baseline.snapshot = snapshot;
        let flips = baseline.conditions.changes();
        row.conditions = flips.len();
        found.extend(flips.into_iter().take(LINES).map(|line| format!("condition: {line}")));

        // registry
        let (log, end) = system.registry_log(baseline.registry_log)?;
        baseline.registry_log = end;
        let gets = blob_gets(&log);
        row.catalog_gets =
            gets.iter().filter(|(it, _)| it.starts_with(content::CATALOG_REPOSITORY)).map(|(_, n)| n).sum();
        row.bundle_gets = gets.values().sum::<usize>() - row.catalog_gets;
        let fresh = standbys && system.replicas("catalogd").get(1).is_some_and(|replica| replica.fresh);
        let expected = if fresh { baseline.first_pull.clone() } else { BTreeMap::new() };
        let pulled = catalogs(gets);
        if pulled != expected {
            found.push(format!("blobs of catalogs were downloaded: {pulled:?}, expected {expected:?}"));
        }

        // files
        for program in CACHING {
            let folder = system.cache(program).context("no cache folder")?;
            let now = Files::read(&folder)?;
            let Some(before) = baseline.files.insert(folder.clone(), now) else { continue };
            let changes = before.changes(&baseline.files[&folder]);
            let rebuilt = changes.rebuilt();
            let lines = match system.replicas(program).first() {
                Some(leader) if replaced == Some(program) => rebuild_lines(&leader.process.log_text()),
                _ => Vec::new(),
            };
            if rebuilt.len() != lines.len() {
                found.push(format!(
                    "{program}: {rebuilt:?} of its cache was written again or removed, with these log lines: {lines:?}"
                ));
            }
            row.files.kept += changes.kept;
            row.files.added.extend(changes.added);
            row.files.lost.extend(changes.lost);
        }

        // content
        for served in served(system).await? {
            if served != baseline.served {
                found.push(format!(
                    "catalogd serves other content: {served:?} instead of {:?}",
                    baseline.served
                ));
            }
        }
        println!("  {} findings", found.len());
        self.findings.extend(found.into_iter().map(|line| format!("[{title}] {line}")));
        self.rows.push(row);
        Ok(())
    }

    /// Looks for errors in all logs.
    pub(crate) fn end(&mut self, system: &System) -> Result<()> {
        for log in system.logs() {
            let text = std::fs::read_to_string(&log).with_context(|| log.display().to_string())?;
            let bad = text.lines().filter(|line| line.contains("ERROR") || line.contains("panicked"));
            self.findings.extend(bad.take(LINES).map(|line| format!("[{}] {line}", log.display())));
        }
        Ok(())
    }

    /// Prints the tables.
    pub(crate) fn print(&self, took: Duration) {
        let Some(baseline) = &self.baseline else { return };
        let snapshot = &baseline.snapshot;
        println!("\n| compared after each step | |\n|---|---:|");
        let accounts = (0..EXTENSIONS).filter(|index| content::has_account(*index)).count();
        for (what, count) in [
            ("objects: resourceVersion, UID, managed fields", snapshot.len()),
            ("… ClusterExtensions", snapshot.count("ClusterExtension")),
            ("… of these with a service account", accounts),
            ("… ClusterObjectSets (revisions)", snapshot.count("ClusterObjectSet")),
            ("… ClusterCatalogs", snapshot.count("ClusterCatalog")),
            ("… Secrets", snapshot.count("Secret")),
            ("conditions: status, reason, transition time, watched throughout", baseline.conditions.count()),
            ("certificates of the built-in issuer", snapshot.certificates().len()),
            ("catalogs: blob downloads, served bytes", baseline.served.len()),
        ] {
            println!("| {what} | {count} |");
        }
        println!(
            "\n| step | new leader after | requests | lease writes | writes as the old restarted | recorded in content Secrets | other writes | objects changed | … by Kubernetes alone | \
             condition changes | catalog blobs pulled | bundle blobs pulled | cache files kept, added, rewritten |\n\
             |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
        );
        for row in &self.rows {
            println!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {}, {}, {} |",
                row.title,
                row.handover.map_or_else(String::new, |took| format!("{:.1} s", took.as_secs_f64())),
                row.requests,
                row.leases,
                row.known,
                row.recorded,
                row.writes,
                row.changed,
                row.by_kubernetes,
                row.conditions,
                row.catalog_gets,
                row.bundle_gets,
                row.files.kept,
                row.files.added.len(),
                row.files.lost.len(),
            );
        }
        println!("\n{} findings in {:.0} s", self.findings.len(), took.as_secs_f64());
    }
}

/// Downloads from repositories of catalogs.
fn catalogs(mut gets: BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    gets.retain(|repository, _| repository.starts_with(content::CATALOG_REPOSITORY));
    gets
}

/// Log lines that report files that could not be used and are made again.
fn rebuild_lines(log: &str) -> Vec<String> {
    const WORDS: [&str; 4] = ["rebuil", "pulled again", "cannot be used", "discarded"];
    let lines = log.lines().filter(|line| WORDS.iter().any(|word| line.contains(word)));
    lines.map(str::to_owned).collect()
}

/// For each replica of catalogd: the digest of each catalog's content.
async fn served(system: &System) -> Result<Vec<BTreeMap<String, String>>> {
    let http = Ca::shared()?.http_client()?;
    let mut all = Vec::new();
    for replica in system.replicas("catalogd") {
        let mut digests = BTreeMap::new();
        for name in (0..CATALOGS).map(content::catalog) {
            let url = format!("{}/catalogs/{name}/api/v1/all", replica.process.content_url());
            let body = http.get(&url).send().await?.error_for_status()?.bytes().await?;
            ensure!(!body.is_empty(), "{url} is empty");
            digests.insert(name, olm_kit::image::sha256(&body));
        }
        all.push(digests);
    }
    Ok(all)
}

/// Does what `OLM_UPGRADE_BREAK` asks for while `program` is stopped.
pub(crate) async fn inject(fault: &str, program: &'static str, system: &System) -> Result<()> {
    let name = content::extension(0);
    let client = system.cluster.client().await?;
    match (fault, program) {
        ("object", "operator-controller") => {
            let client = Cluster::client_from(system.kubeconfig(program, Version::New)?).await?;
            let maps: Api<ConfigMap> = Api::namespaced(client, &name);
            let patch = json!({"metadata": {"annotations": {"upgrade": "injected"}}});
            maps.patch(&format!("{name}-config"), &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        ("condition", "operator-controller") => {
            let extensions: Api<ClusterExtension> = Api::all(client);
            let mut status = serde_json::to_value(extensions.get(&name).await?.status)?;
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                if condition["type"] == "Ready" {
                    condition["status"] = Value::from("False");
                }
            }
            let patch = Patch::Merge(json!({"status": status}));
            extensions.patch_status(&name, &PatchParams::default(), &patch).await?;
        }
        ("certificate", "operator-controller") => {
            let secrets: Api<Secret> = Api::namespaced(client, &name);
            let issued = ListParams::default().labels(labels::WEBHOOK_CERTIFICATE);
            secrets.delete_collection(&DeleteParams::default(), &issued).await?;
        }
        ("cache", "catalogd") => {
            std::fs::remove_dir_all(system.slot(program, 'a'))?;
        }
        _ => {}
    }
    Ok(())
}
