//! After churn: the wait until all targets are met and nothing is written any more, and the invariants that must hold then.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt as _};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, condition, labels};
use olm_integration::inventory::Inventory;
use olm_kit::{Request, SYSTEM_NAMESPACE, eventually};

use crate::shelf::{has_webhook, objects, version};
use crate::target::Want;
use crate::world::World;

/// How long convergence may take.
const LIMIT: Duration = Duration::from_secs(300);
/// How long nothing must be written to count as rest.
pub(crate) const REST: Duration = Duration::from_secs(6);
/// When rest must have come.
const REST_LIMIT: Duration = Duration::from_secs(120);
/// For what follows the last write: garbage of Kubernetes itself, copies that are compressed.
const CLEANUP_LIMIT: Duration = Duration::from_secs(30);
/// Idle connections stay open for a minute and a half.
const CONNECTION_LIMIT: Duration = Duration::from_secs(150);
/// Archived revisions that an extension keeps (rule: revisions §4.5).
const MAX_ARCHIVED: usize = 5;
/// Bundles that were used within two minutes stay; the cache is checked each minute.
const EVICTION_LIMIT: Duration = Duration::from_secs(200);
/// Bundles that operator-controller may keep beside those that are installed.
const MAX_SPARE_BUNDLES: usize = 24;

/// What is checked against, and how often it was.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// The objects of the cluster without extensions.
    bare: BTreeSet<String>,
    /// Of each invariant, how often it was found to hold.
    pub(crate) held: BTreeMap<&'static str, usize>,
    /// From the last operation until all targets were met.
    pub(crate) converged: Vec<Duration>,
    /// Bundles in the cache of operator-controller, at each check.
    pub(crate) bundles: Vec<usize>,
}

impl Checks {
    /// Waits for the steady state of a cluster without extensions, and records its objects.
    pub(crate) async fn begin(world: &mut World) -> Result<Self> {
        fulfilled(world).await?;
        rest(world).await?;
        let bare = keys(&Inventory::take(&world.client).await?);
        world.sampler.rest();
        Ok(Self { bare, ..Self::default() })
    }

    /// Waits for convergence and rest, then checks everything.
    pub(crate) async fn all(&mut self, world: &mut World) -> Result<()> {
        let since = Instant::now();
        fulfilled(world).await?;
        self.converged.push(since.elapsed());
        self.hold("conditions are those of the specs");
        rest(world).await?;
        self.hold("nothing is written at rest");
        for process in &mut world.processes {
            ensure!(process.child().exited().is_none(), "{} ended by itself", process.name());
        }
        self.check(world).await
    }

    async fn check(&mut self, world: &World) -> Result<()> {
        let expected = expected(&self.bare, world)?;
        let client = world.client.clone();
        eventually("the cluster holds what is desired and nothing else", CLEANUP_LIMIT, || async {
            differences(&expected, &keys(&Inventory::take(&client).await?))
        })
        .await?;
        self.hold("the cluster holds what is desired and nothing else");
        let sets = world.sets.list(&ListParams::default()).await?.items;
        revisions(world, &sets)?;
        self.hold("one active revision each, at most five archived");
        let secrets: Vec<Secret> =
            Api::<Secret>::all(world.client.clone()).list(&ListParams::default()).await?.items;
        content_secrets(&sets, &secrets)?;
        self.hold("content Secrets are those of revisions");
        certificates(world, &secrets)?;
        self.hold("certificates are those of bundles with webhooks");
        content(world).await?;
        self.hold("ConfigMaps have the installed version");
        eventually("catalogd keeps what is served and nothing else", CLEANUP_LIMIT, || async {
            store(world)
        })
        .await?;
        self.hold("catalogd keeps what is served and nothing else");
        self.bundles.push(
            eventually("operator-controller gives bundles up", EVICTION_LIMIT, || async { caches(world) })
                .await?,
        );
        self.hold("operator-controller's caches are tidy and bounded");
        for log in world.logs() {
            let text = std::fs::read_to_string(&log)?;
            let panic = text.lines().find(|line| line.contains("panicked at"));
            ensure!(panic.is_none(), "{}: {}", log.display(), panic.unwrap_or_default());
        }
        self.hold("no process has panicked or died");
        eventually("memory, files and threads stay", CONNECTION_LIMIT, || async { held(world) }).await?;
        self.hold("memory, files and threads stay");
        Ok(())
    }

    /// Everything was taken away: the caches are empty in the end.
    pub(crate) async fn empty(&mut self, world: &World, within: Duration) -> Result<()> {
        eventually("operator-controller keeps no bundle that no extension has", within, || async {
            let left = caches(world)?;
            ensure!(left == 0, "{left} bundles are kept");
            Ok(())
        })
        .await?;
        self.hold("no bundle is kept that no extension has");
        Ok(())
    }

    fn hold(&mut self, what: &'static str) {
        *self.held.entry(what).or_default() += 1;
    }
}

/// Waits until catalogs are served as they were pushed last and every target is met.
async fn fulfilled(world: &mut World) -> Result<()> {
    let since = Instant::now();
    loop {
        world.new_requests()?;
        let missing = missing(world).await?;
        if missing.is_empty() {
            return Ok(());
        }
        if since.elapsed() > LIMIT {
            let names: Vec<&str> = missing.keys().map(String::as_str).collect();
            let known = world.explain(&names).await;
            let known = known.unwrap_or_else(|error| format!("no report: {error:#}"));
            let missing: Vec<String> = missing.into_values().collect();
            bail!("not converged after {} s:\n{}\n{known}", LIMIT.as_secs(), missing.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// What is still missing, by the name of the catalog or extension.
async fn missing(world: &mut World) -> Result<BTreeMap<String, String>> {
    let mut missing = BTreeMap::new();
    for shelf in &world.shelves {
        let found = world.catalogs.get_opt(&shelf.name).await?;
        let status = found.as_ref().and_then(|catalog| catalog.status.as_ref());
        let served = status.is_some_and(|status| {
            let image = status.resolved_source.as_ref().map(|source| source.image.reference.as_str());
            condition::is_true(&status.conditions, condition::SERVING)
                && image.is_some_and(|image| image.ends_with(&shelf.digest))
        });
        if !served {
            missing.insert(shelf.name.clone(), format!("{} does not serve {}", shelf.name, shelf.digest));
        }
    }
    let found = world.extensions.list(&ListParams::default()).await?.items;
    let mut settled = Vec::new();
    for target in &world.targets {
        let one = found.iter().find(|extension| extension.name_any() == target.name);
        match target.fulfilled(one, world.newest(target)) {
            Ok(installed) => settled.push(installed),
            Err(why) => {
                missing.insert(target.name.clone(), why);
            }
        }
    }
    if missing.is_empty() {
        for (target, installed) in world.targets.iter_mut().zip(settled) {
            target.maybe = [installed].into();
        }
    }
    Ok(missing)
}

/// Waits until our programs have written nothing for a while. Leases and questions about rights do not count.
async fn rest(world: &mut World) -> Result<()> {
    let since = Instant::now();
    let mut last_write = Instant::now();
    let mut written = Vec::new();
    while last_write.elapsed() < REST {
        for (program, request) in world.new_requests()? {
            let counts = request.resource != "leases" && !request.resource.ends_with("reviews");
            if request.writes() && counts {
                last_write = Instant::now();
                let Request { received, verb, resource, namespace, name, code, .. } = &request;
                written.push(format!("{received} {program} {verb} {resource} {namespace}/{name} -> {code}"));
            }
        }
        if since.elapsed() > REST_LIMIT {
            let last = written.split_off(written.len().saturating_sub(30));
            bail!("no rest after {} s; written last:\n{}", REST_LIMIT.as_secs(), last.join("\n"));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// The keys of an inventory without the kinds that are checked in more detail, or made by the apiserver for each CRD.
fn keys(inventory: &Inventory) -> BTreeSet<String> {
    let closely = |key: &str| {
        let secret = key.starts_with("v1 Secret ");
        secret || key.contains(" ClusterObjectSet ") || key.contains(" APIService ")
    };
    inventory.keys().filter(|key| !closely(key)).map(str::to_owned).collect()
}

/// What the cluster should hold now.
struct Expected {
    all: BTreeSet<String>,
    /// Of these, the objects of paused extensions: they are not restored before the extension resumes.
    left_alone: BTreeSet<String>,
}

fn expected(bare: &BTreeSet<String>, world: &World) -> Result<Expected> {
    let (mut all, mut left_alone) = (bare.clone(), BTreeSet::new());
    for target in world.targets.iter().filter(|target| target.want != Want::Nothing) {
        all.insert(format!("{}/{} ClusterExtension /{}", olm_api::GROUP, olm_api::VERSION, target.name));
        let Some(installed) = target.highest() else { continue };
        for object in objects(&target.name, installed)? {
            let namespace = object.namespace().unwrap_or_default();
            let key = format!("{} {} {namespace}/{}", object.api_version(), object.kind(), object.name());
            if target.paused {
                left_alone.insert(key.clone());
            }
            all.insert(key);
        }
    }
    Ok(Expected { all, left_alone })
}

fn differences(expected: &Expected, found: &BTreeSet<String>) -> Result<()> {
    let absent = expected.all.difference(found).filter(|key| !expected.left_alone.contains(*key));
    let absent = absent.map(|key| format!("- {key}"));
    let extra = found.difference(&expected.all).map(|key| format!("+ {key}"));
    let all: Vec<String> = absent.chain(extra).collect();
    ensure!(all.is_empty(), "- expected, + found:\n{}", all.join("\n"));
    Ok(())
}

fn revisions(world: &World, sets: &[ClusterObjectSet]) -> Result<()> {
    for target in &world.targets {
        let own = sets.iter().filter(|set| set.labels().get(labels::OWNER_NAME) == Some(&target.name));
        let (archived, active): (Vec<_>, Vec<_>) =
            own.partition(|set| set.spec.lifecycle_state == LifecycleState::Archived);
        let names = || active.iter().map(|set| set.name_any()).collect::<Vec<_>>().join(", ");
        let expected = usize::from(target.highest().is_some());
        let (name, found) = (&target.name, names());
        ensure!(active.len() == expected, "{name}: {expected} active revision expected, found: {found}");
        ensure!(archived.len() <= MAX_ARCHIVED, "{name}: {} archived revisions", archived.len());
        ensure!(expected == 1 || archived.is_empty(), "{name}: archived revisions without extension");
    }
    let known: BTreeSet<&str> = world.targets.iter().map(|target| target.name.as_str()).collect();
    let stray = sets
        .iter()
        .find(|set| set.labels().get(labels::OWNER_NAME).is_none_or(|owner| !known.contains(owner.as_str())));
    let name = stray.map(|set| set.name_any()).unwrap_or_default();
    ensure!(stray.is_none(), "revision {name} belongs to no extension");
    Ok(())
}

/// What the programs that live hold.
fn held(world: &World) -> Result<()> {
    world.sampler.rest();
    let lives = world.sampler.lives();
    let complaints: Vec<String> =
        lives.iter().filter(|life| !life.ended).flat_map(crate::sampler::Life::complaints).collect();
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

/// Each Secret with content is referred to by the revision that it names, and each that is referred to is there.
fn content_secrets(sets: &[ClusterObjectSet], secrets: &[Secret]) -> Result<()> {
    let place = |meta: &ObjectMeta| {
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    };
    let mut expected = BTreeSet::new();
    for set in sets {
        let references =
            set.spec.phases.iter().flat_map(|phase| &phase.objects).filter_map(|it| it.reference.as_ref());
        for reference in references {
            let namespace = reference.namespace.clone().unwrap_or_else(|| SYSTEM_NAMESPACE.to_owned());
            expected.insert(((namespace, reference.name.clone()), Some(set.name_any())));
        }
    }
    let found: BTreeSet<_> = secrets
        .iter()
        .filter(|secret| {
            let marks = [labels::OWNER_NAME, labels::REVISION_NAME];
            let certificate = secret.labels().contains_key(labels::WEBHOOK_CERTIFICATE);
            !certificate && marks.iter().any(|mark| secret.labels().contains_key(*mark))
        })
        .map(|secret| (place(&secret.metadata), secret.labels().get(labels::REVISION_NAME).cloned()))
        .collect();
    let orphans: Vec<_> = found.difference(&expected).collect();
    let absent: Vec<_> = expected.difference(&found).collect();
    ensure!(
        orphans.is_empty() && absent.is_empty(),
        "Secrets that no revision has: {orphans:?}; that are not there: {absent:?}"
    );
    Ok(())
}

/// A certificate for each installed bundle with a webhook.
fn certificates(world: &World, secrets: &[Secret]) -> Result<()> {
    let found: Vec<String> = secrets
        .iter()
        .filter(|secret| secret.labels().contains_key(labels::WEBHOOK_CERTIFICATE))
        .map(|secret| secret.namespace().unwrap_or_default())
        .collect();
    for target in &world.targets {
        let expected = usize::from(target.highest().is_some() && has_webhook(&target.name));
        let own = found.iter().filter(|namespace| **namespace == target.name).count();
        ensure!(own == expected, "{}: {own} webhook certificates, {expected} expected", target.name);
    }
    Ok(())
}

async fn content(world: &World) -> Result<()> {
    // while an extension is paused, drift is not corrected
    for target in world.targets.iter().filter(|target| !target.paused) {
        let Some(installed) = target.highest() else { continue };
        let maps: Api<ConfigMap> = Api::namespaced(world.client.clone(), &target.name);
        let map = maps.get(&format!("{}-config", target.name)).await?;
        let shown = map.data.as_ref().and_then(|data| data.get("version")).cloned();
        let (name, is_shown) = (&target.name, shown == Some(version(installed)));
        ensure!(is_shown, "{name}: the ConfigMap has {shown:?}, not 1.{installed}.0");
    }
    Ok(())
}

/// catalogd's folder.
fn store(world: &World) -> Result<()> {
    let cache = world.process("catalogd")?.cache();
    let served: BTreeSet<String> = world.shelves.iter().map(|shelf| shelf.digest.clone()).collect();
    let catalogs: BTreeSet<String> = world.shelves.iter().map(|shelf| shelf.name.clone()).collect();
    same("catalogd's contents", &entries(&cache.join("content"))?, &served)?;
    same("catalogd's names", &entries(&cache.join("names"))?, &catalogs)?;
    same("catalogd's staging", &entries(&cache.join("staging"))?, &BTreeSet::new())
}

/// operator-controller's folder; how many bundles it keeps.
fn caches(world: &World) -> Result<usize> {
    let cache = world.process("operator-controller")?.cache();
    let kept = entries(&cache.join("bundles/content"))?;
    same("staging of bundles", &entries(&cache.join("bundles/staging"))?, &BTreeSet::new())?;
    let stray: Vec<_> = entries(&cache.join("bundles/locks"))?.difference(&kept).cloned().collect();
    ensure!(stray.is_empty(), "locks of bundles that are not there: {stray:?}");
    let unfinished: Vec<_> =
        entries(&cache.join("packages"))?.into_iter().filter(|name| name.starts_with('.')).collect();
    ensure!(unfinished.is_empty(), "unfinished package content: {unfinished:?}");
    let installed = world.targets.iter().filter(|target| target.highest().is_some()).count();
    let kept = kept.len();
    ensure!(kept <= installed + MAX_SPARE_BUNDLES, "{kept} bundles are kept, {installed} are installed");
    Ok(kept)
}

fn same(what: &str, found: &BTreeSet<String>, expected: &BTreeSet<String>) -> Result<()> {
    ensure!(found == expected, "{what}: {found:?}, expected {expected:?}");
    Ok(())
}

/// Names in a folder; none when there is no folder.
fn entries(dir: &Path) -> Result<BTreeSet<String>> {
    match std::fs::read_dir(dir) {
        Ok(all) => all
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<std::io::Result<_>>()
            .with_context(|| dir.display().to_string()),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(problem) => Err(problem).with_context(|| dir.display().to_string()),
    }
}

#[test]
fn soak_differences_are_missing_and_extra_objects() {
    let set = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<BTreeSet<String>>();
    let expected = |paused: &[&str]| Expected { all: set(&["a", "b"]), left_alone: set(paused) };
    assert!(differences(&expected(&[]), &set(&["a", "b"])).is_ok());
    assert!(differences(&expected(&["a"]), &set(&["b"])).is_ok());
    assert!(differences(&expected(&["b"]), &set(&["b"])).is_err());
    let error = differences(&expected(&["b"]), &set(&["b", "c"])).unwrap_err().to_string();
    assert_eq!(error, "- expected, + found:\n- a\n+ c");
}
