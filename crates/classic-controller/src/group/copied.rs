//! Objects beside a ClusterServiceVersion: copies in the target namespaces of its group, the rights of its operator there, and
//! the roles of its APIs for users.
//!
//! Copies are cached as metadata and hashes ([`crate::copies`]), and written when a hash differs: in steady state nothing is.
//!
//! Rules: classic-apis §7.7, §7.8.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, OperatorGroup};
use olm_classic::operator_group::copies::{self, CopySettings, CopyWrite, ObservedCsv, is_copied};
use olm_classic::operator_group::{keys, roles, targets};
use olm_runtime::apply::{self, ErrorClass, classify, is_namespace_terminating};
use olm_runtime::controller::{self, Controller, Requeue, Source};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{self, Change};
use tracing::{Instrument as _, info_span};

use super::rights::{narrow, spread};
use super::{ensure_cluster_role, namespace_of};
use crate::cluster::Cluster;
use crate::context::{Context, MANAGER, ended};
use crate::csv::{key, labelled_owner};
use crate::write::ObjectWriter;

const NAME: &str = "copied-csv";
/// A CSV that is being installed changes its phase several times within a second; its copies follow once.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// Copies that are written at the same time.
const WRITES: usize = 8;
/// A CSV that changed within this time is reported when its copies are disabled; older ones were.
const REPORTED: Duration = Duration::from_mins(1);

pub(super) async fn controller(context: &Arc<Context>) {
    let controller = Controller { debounce: DEBOUNCE, ..context.further(NAME, sources(&context.cluster)) };
    controller::run(controller, context.cluster.wait_until_listed(), |key| {
        let (context, span) = (Arc::clone(context), info_span!("copies", csv = key));
        let key = key.to_owned();
        Some(async move { ended(reconcile(&context, &key).await) }.instrument(span))
    })
    .await;
}

/// What wakes a pass over what a CSV has beside itself.
fn sources(cluster: &Arc<Cluster>) -> Vec<Source> {
    let shared = || Arc::clone(cluster);
    vec![
        Source::new("it changed, or one of its name is gone", cluster.csvs.subscribe(), {
            let cluster = shared();
            move |change| {
                let mut woken = beside(&cluster, &change);
                woken.insert(change.key);
                woken
            }
        }),
        Source::new("a copy of it changed, or one of its name is gone", cluster.copies.subscribe(), {
            let cluster = shared();
            move |change| {
                let copies = change.states().map(|row| &row.observed);
                let originals =
                    copies.filter_map(|copy| Some(format!("{}/{}", copy.copied_from.as_ref()?, copy.name)));
                originals.chain(beside(&cluster, &change)).collect::<BTreeSet<_>>()
            }
        }),
        Source::new("the targets of its group changed", cluster.groups.subscribe(), {
            let cluster = shared();
            move |change| {
                let part = |group: &watched::Object<OperatorGroup>| group.ok().map(|it| targets::settled(it));
                if !change.concerns(part) {
                    return BTreeSet::new();
                }
                cluster.csvs.in_namespace(&namespace_of(&change)).iter().map(|csv| key(csv)).collect()
            }
        }),
        Source::new("a namespace appeared or is gone", cluster.namespaces.subscribe(), {
            let cluster = shared();
            move |change| match (&change.before, &change.after) {
                (Some(_), Some(_)) => BTreeSet::new(),
                _ => targeting(&cluster, &change.key),
            }
        }),
        Source::new("copies are switched off or on", cluster.configs.subscribe(), {
            let cluster = shared();
            move |_| cluster.csvs.names()
        }),
        Source::new("a Role of its operator changed", cluster.roles.subscribe(), |change| owner(&change)),
        Source::new("a RoleBinding of its operator changed", cluster.role_bindings.subscribe(), |it| {
            owner(&it)
        }),
        Source::new("a ClusterRole of it changed, or is gone", cluster.cluster_roles.subscribe(), |it| {
            changed_owner(&it)
        }),
        Source::new(
            "a ClusterRoleBinding of it changed, or is gone",
            cluster.cluster_role_bindings.subscribe(),
            |it| changed_owner(&it),
        ),
    ]
}

/// All CSVs with the name of an object that is gone, original or copy: its place is free for a copy of each.
fn beside<V>(cluster: &Cluster, change: &Change<String, V>) -> BTreeSet<String> {
    let name = change.key.split_once('/').map(|(_, name)| name).filter(|_| change.after.is_none());
    let Some(name) = name else { return BTreeSet::new() };
    let all = cluster.csvs.all();
    all.iter().filter(|csv| csv.name_any() == name).map(|csv| key(csv)).collect()
}

/// The original whose label an object, or the copy of one, has.
fn owner<K: Resource>(change: &Change<String, watched::Object<K>>) -> Option<String> {
    let object = change.latest()?;
    let home = object.label(keys::COPIED_FROM).or(object.label(keys::OWNER_NAMESPACE))?;
    Some(format!("{home}/{}", object.label(keys::OWNER)?))
}

/// The CSV that an object of the whole cluster had as its owner, unless the object has just appeared: a pass made it.
fn changed_owner<K: Resource>(change: &Change<String, watched::Object<K>>) -> Option<String> {
    labelled_owner(change.before.as_ref()?.meta())
}

/// The CSVs of groups that are global or have a namespace as target.
fn targeting(cluster: &Cluster, namespace: &str) -> BTreeSet<String> {
    let groups = cluster.groups.all();
    let targeting = groups.iter().filter(|group| {
        let targets = targets::resolved(group).unwrap_or_default();
        targets::is_global(&targets) || targets.iter().any(|target| target == namespace)
    });
    let csvs = targeting.flat_map(|group| cluster.csvs.in_namespace(&group.namespace().unwrap_or_default()));
    csvs.map(|csv| key(&csv)).collect()
}

pub(super) fn settings(context: &Context) -> CopySettings {
    let config = context.cluster.configs.find("cluster");
    CopySettings::new(config.as_deref(), context.settings.protected_namespaces.clone())
}

async fn reconcile(context: &Context, key: &str) -> kube::Result<Requeue> {
    let cluster = &context.cluster;
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let present = cluster.csvs.find(key).filter(|csv| csv.metadata.deletion_timestamp.is_none());
    let stays = cluster.csvs.meta(key, |metadata| metadata.deletion_timestamp.is_none()) == Some(true);
    let Some(csv) = present else {
        if stays {
            // it does not fit its type: its copies stay, too
            return Ok(Requeue::OnChange);
        }
        let namespaces: Vec<String> = cluster.copies.uids(namespace, name).into_keys().collect();
        return delete_all(context, &namespaces, name).await.map(|()| Requeue::Gone);
    };
    if cluster.groups.read().group(namespace).any(|group| group.ok().is_none()) {
        // the targets of a group that does not fit its type are not known: the copies stay
        return Ok(Requeue::OnChange);
    }
    let groups = cluster.groups.in_namespace(namespace);
    let targets = match groups.as_slice() {
        [] => Vec::new(),
        // what the operator has stays until the targets are known
        [group] => match targets::settled(group) {
            Some(targets) => targets,
            None => return Ok(Requeue::OnChange),
        },
        // the CSV fails, and its copies stay until there is one group again
        _ => return Ok(Requeue::OnChange),
    };
    // what is refused in one namespace keeps no rights from the operator
    let copied = write_copies(context, &csv, &targets).await;
    let writer = ObjectWriter::new(context.client.clone());
    if is_copied(&csv) {
        spread(cluster, &writer, &csv, &targets).await?;
    }
    // also of a CSV that failed for the new targets
    if !groups.is_empty() && !targets::is_global(&targets) {
        narrow(cluster, &writer, &csv).await?;
    }
    if csv.status.as_ref().is_some_and(|status| status.phase == "Succeeded") {
        let uids = |all: BTreeMap<String, Option<String>>| -> roles::Uids {
            all.into_iter().filter_map(|(name, uid)| Some((name, uid?))).collect()
        };
        let crds = cluster.crds.all().iter().map(|crd| (crd.name_any(), crd.uid())).collect();
        let services = cluster.api_services.all().iter().map(|it| (it.name_any(), it.uid())).collect();
        for role in roles::of_apis(&csv, &uids(crds), &uids(services)) {
            ensure_cluster_role(cluster, &writer, &role).await?;
        }
    }
    copied.map(|()| Requeue::OnChange)
}

/// Creates, updates and deletes the copies of a CSV.
async fn write_copies(
    context: &Context,
    csv: &ClusterServiceVersion,
    targets: &[String],
) -> kube::Result<()> {
    let cluster = &context.cluster;
    let name = csv.name_any();
    let settings = settings(context);
    let plan = copies::plan(csv, targets, &living(cluster), &observed(cluster, &name), &settings);
    let is_disabled = settings.is_disabled && targets::is_global(targets) && is_copied(csv);
    if is_disabled && (!plan.delete.is_empty() || is_recent(csv)) {
        let note = copies::disabled_message(csv);
        let event = NewEvent { warning: true, reason: copies::DISABLED_EVENT, action: "Copy", note: &note };
        context.events.publish_whole(&csv.object_ref(&()), event).await;
    }
    let writes = plan.write.into_iter().map(|write| write_copy(context, write));
    // one that fails keeps no other from being written
    let written: Vec<kube::Result<()>> = stream::iter(writes).buffer_unordered(WRITES).collect().await;
    let written = written.into_iter().collect::<kube::Result<()>>();
    written.and(delete_all(context, &plan.delete, &name).await)
}

/// Namespaces that are not being deleted.
pub(super) fn living(cluster: &Cluster) -> BTreeSet<String> {
    let all = cluster.namespaces.all();
    let living = all.iter().filter(|namespace| namespace.metadata.deletion_timestamp.is_none());
    living.map(|namespace| namespace.name_any()).collect()
}

/// Copies and originals of this name.
fn observed(cluster: &Cluster, name: &str) -> Vec<ObservedCsv> {
    let mut observed = cluster.copies.named(name);
    let originals = cluster.csvs.all();
    observed
        .extend(originals.iter().filter(|csv| csv.name_any() == name).map(|csv| ObservedCsv::from_csv(csv)));
    observed
}

fn is_recent(csv: &ClusterServiceVersion) -> bool {
    let since = csv.status.as_ref().and_then(|status| status.last_transition_time.as_ref());
    since.is_some_and(|since| Timestamp::now().duration_since(since.0).unsigned_abs() < REPORTED)
}

async fn write_copy(context: &Context, write: CopyWrite) -> kube::Result<()> {
    let cluster = &context.cluster;
    let copy = &write.copy;
    let key = key(copy);
    let api: Api<ClusterServiceVersion> =
        Api::namespaced(context.client.clone(), &copy.namespace().unwrap_or_default());
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let mut version = cluster.copies.get(&key).map(|row| row.resource_version);
    if write.create {
        let written = match api.create(&params, copy).await {
            Err(error) if is_namespace_gone(&error) => return Ok(()),
            written => written?,
        };
        version = written.resource_version();
        cluster.copies.insert(&written);
    } else if write.content {
        let mut body = copy.clone();
        body.metadata.resource_version = version;
        let written = found(cluster, &key, api.replace(&copy.name_any(), &params, &body).await)?;
        version = written.resource_version();
        cluster.copies.update(&written);
    }
    if write.status {
        let mut body = copy.clone();
        body.metadata.resource_version = version;
        let written = found(cluster, &key, api.replace_status(&copy.name_any(), &params, &body).await)?;
        cluster.copies.update(&written);
    }
    Ok(())
}

/// A copy that the apiserver does not find is evicted, so that the next pass creates it.
fn found<T>(cluster: &Cluster, key: &str, written: kube::Result<T>) -> kube::Result<T> {
    written.inspect_err(|error| {
        if classify(error) == ErrorClass::NotFound {
            cluster.copies.remove(key);
        }
    })
}

/// Whether the namespace is being deleted, or has just gone. What is refused otherwise may be allowed later: an apiserver that starts has
/// not read the roles yet.
fn is_namespace_gone(error: &kube::Error) -> bool {
    classify(error) == ErrorClass::NotFound || is_namespace_terminating(error)
}

/// Deletes the copies in these namespaces; one that is refused keeps no other from being deleted.
async fn delete_all(context: &Context, namespaces: &[String], name: &str) -> kube::Result<()> {
    let mut deleted = Ok(());
    for namespace in namespaces {
        deleted = deleted.and(delete(context, namespace, name).await);
    }
    deleted
}

/// Deletes a copy in the state that was observed: without its label, which a user may have removed since, it is no copy any more.
async fn delete(context: &Context, namespace: &str, name: &str) -> kube::Result<()> {
    let key = format!("{namespace}/{name}");
    let Some(row) = context.cluster.copies.get(&key) else { return Ok(()) };
    let api: Api<ClusterServiceVersion> = Api::namespaced(context.client.clone(), namespace);
    let this = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(row.uid),
        resource_version: Some(row.resource_version),
        ..ObjectMeta::default()
    };
    if let Some(conflict) = apply::delete(&api, &this, DeleteParams::background()).await? {
        return Err(conflict);
    }
    context.cluster.copies.remove(&key);
    Ok(())
}

#[cfg(test)]
mod tests;
