//! The controllers of OperatorGroups: [`reconcile`](self) of a group itself, [`copied`] of what a CSV has in the target namespaces, with
//! [`rights`], and [`config`] of the switch that turns copies off.
//!
//! Rules: classic-apis §7, §10.

mod config;
mod copied;
mod rights;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, OperatorGroup, Time};
use olm_classic::install_plan::WAITING_EVENT;
use olm_classic::operator_group::account::Account;
use olm_classic::operator_group::{self, keys, roles, targets};
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::controller::{self, Requeue, Source};
use olm_runtime::events::NewEvent;
use olm_runtime::watched::{self, Change};
use olm_runtime::write_status;
use serde_json::{Value, json};
use tracing::{Instrument as _, info_span};

use crate::cluster::Cluster;
use crate::context::{Context, MANAGER, ended};
use crate::write::{ObjectWriter, cache_answer, named, object};

/// Its name in logs and metrics.
pub(crate) const NAME: &str = "group";
/// Passes at the same time.
pub(crate) const WORKERS: u16 = 4;

/// Runs until the process stops.
pub(crate) async fn controller(context: Arc<Context>) {
    tokio::join!(groups(&context), copied::controller(&context), config::controller(&context));
}

async fn groups(context: &Arc<Context>) {
    let sources = sources(&context.cluster);
    controller::run(context.controller(sources), context.cluster.wait_until_listed(), |key| {
        let (context, span) = (Arc::clone(context), info_span!("group", group = key));
        let key = key.to_owned();
        Some(async move { ended(reconcile(&context, &key).await) }.instrument(span))
    })
    .await;
}

/// What wakes a pass over a group.
fn sources(cluster: &Arc<Cluster>) -> Vec<Source> {
    let shared = || Arc::clone(cluster);
    vec![
        Source::new("it changed, or is gone", cluster.groups.subscribe(), |change| [change.key]),
        Source::new("another group of its namespace appeared or is gone", cluster.groups.subscribe(), {
            let cluster = shared();
            move |change| match (&change.before, &change.after) {
                (Some(_), Some(_)) => BTreeSet::new(),
                _ => in_namespace(&cluster, &namespace_of(&change)),
            }
        }),
        Source::new("a ClusterServiceVersion of its namespace changed", cluster.csvs.subscribe(), {
            let cluster = shared();
            move |change| {
                let part = |csv: &watched::Object<ClusterServiceVersion>| {
                    let csv = csv.ok()?;
                    let is_early = operator_group::is_early(csv);
                    Some((is_early, csv.metadata.generation, csv.metadata.annotations.clone()))
                };
                if change.concerns(part) {
                    in_namespace(&cluster, &namespace_of(&change))
                } else {
                    BTreeSet::new()
                }
            }
        }),
        Source::new("a namespace appeared, is gone, or has other labels", cluster.namespaces.subscribe(), {
            let cluster = shared();
            move |change| {
                let part = |namespace: &watched::Object<Namespace>| namespace.meta().labels.clone();
                if !change.concerns(part) {
                    return BTreeSet::new();
                }
                let mut woken = concerned(&cluster, &change.key);
                woken.extend(change.after.iter().flat_map(|it| gone(&cluster, it.meta().labels.as_ref())));
                woken
            }
        }),
        Source::new("its ServiceAccount appeared or is gone", cluster.accounts.subscribe(), {
            let cluster = shared();
            move |change| {
                let name = change.latest().map(watched::Object::name).unwrap_or_default();
                let here = cluster.groups.in_namespace(&namespace_of(&change));
                let named = here.iter().filter(|group| group.spec.service_account_name == name);
                named.map(|group| watched::key(&group.metadata)).collect::<Vec<_>>()
            }
        }),
        // not its rules, which Kubernetes fills from other roles
        Source::new("one of its roles changed", cluster.cluster_roles.subscribe(), |change| {
            let part = |role: &watched::Object<ClusterRole>| {
                let metadata = role.meta();
                let written = (metadata.labels.clone(), metadata.annotations.clone());
                let rule = role.ok().and_then(|role| role.aggregation_rule.clone());
                (written, rule, metadata.deletion_timestamp.is_some())
            };
            if !change.concerns(part) {
                return None;
            }
            let owner = change.latest().filter(|role| role.label(keys::OWNER_KIND) == Some("OperatorGroup"));
            owner.and_then(|role| {
                Some(format!("{}/{}", role.label(keys::OWNER_NAMESPACE)?, role.label(keys::OWNER)?))
            })
        }),
    ]
}

fn namespace_of<K: kube::Resource>(change: &Change<String, watched::Object<K>>) -> String {
    change.latest().and_then(|object| object.meta().namespace.clone()).unwrap_or_default()
}

fn in_namespace(cluster: &Cluster, namespace: &str) -> BTreeSet<String> {
    cluster.groups.in_namespace(namespace).iter().map(|group| watched::key(&group.metadata)).collect()
}

/// Groups that select namespaces, or that name this one.
fn concerned(cluster: &Cluster, namespace: &str) -> BTreeSet<String> {
    let groups = cluster.groups.all();
    let concerned = groups.iter().filter(|group| {
        group.spec.selector.is_some() || group.spec.target_namespaces.iter().any(|target| target == namespace)
    });
    concerned.map(|group| watched::key(&group.metadata)).collect()
}

/// What a pass is for when a namespace has the label of a group that went while no process saw it, and whose name nothing has.
const GONE: &str = "/";

fn gone(cluster: &Cluster, labels: Option<&BTreeMap<String, String>>) -> Option<String> {
    let uids = uids(cluster);
    stale(labels.into_iter().flatten(), &uids).next().map(|_| GONE.to_owned())
}

/// Those of all groups, also of one that does not fit its type.
fn uids(cluster: &Cluster) -> BTreeSet<String> {
    cluster.groups.read().rows().values().map(watched::Object::uid).collect()
}

/// The labels of groups that do not exist.
fn stale<'a>(
    labels: impl Iterator<Item = (&'a String, &'a String)>,
    uids: &BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    let is_stale =
        |label: &&String| label.strip_prefix(keys::GROUP_UID).is_some_and(|uid| !uids.contains(uid));
    labels.map(|(label, _)| label).filter(is_stale)
}

async fn reconcile(context: &Context, key: &str) -> kube::Result<Requeue> {
    let cluster = &context.cluster;
    let writer = ObjectWriter::new(context.client.clone());
    let Some(group) = cluster.groups.find(key) else {
        if cluster.groups.meta(key, |_| ()).is_some() {
            // it does not fit its type: what it has stays
            return Ok(Requeue::OnChange);
        }
        release(cluster, &writer, key).await?;
        release_namespaces(cluster, &writer, &namespaces(cluster)).await?;
        return Ok(Requeue::Gone);
    };
    let namespace = group.namespace().unwrap_or_default();
    let here = cluster.groups.in_namespace(&namespace);
    let namespaces = namespaces(cluster);
    let now = Time(Timestamp::now());
    let status = match operator_group::status(&group, &here, &namespaces, &account(cluster, &group), &now) {
        Ok(status) => status,
        Err(error) => {
            report_wait(context, &group, &error.to_string()).await;
            return Ok(Requeue::OnChange);
        }
    };
    let mut group = group;
    if let Some(status) = status {
        let before = group.status.as_ref().and_then(operator_group::group_wait);
        let api: Api<OperatorGroup> = Api::namespaced(context.client.clone(), &namespace);
        let written = write_status(&api, &*group, status, MANAGER).await.map_err(|error| error.0)?;
        if let Some(written) = written {
            group = cache(cluster, written);
            let wait = group.status.as_ref().and_then(operator_group::group_wait);
            if let Some(note) = wait.filter(|note| before.as_ref() != Some(note)) {
                report_wait(context, &group, &note).await;
            }
        }
    }
    label_account(cluster, &writer, &group).await?;
    let targets = targets::resolved(&group).unwrap_or_default();
    let labelled: &[String] = if targets::is_global(&targets) { &[] } else { &targets };
    // what one namespace refuses keeps neither others nor roles from the group
    let mut are_labelled = Ok(());
    for change in targets::labels(&group.uid().unwrap_or_default(), labelled, &namespaces) {
        let value = if change.add { json!("") } else { Value::Null };
        are_labelled = are_labelled.and(label(&writer, &change.namespace, &change.label, &value).await);
    }
    // it may have been deleted and made again between two events
    let are_labelled = are_labelled.and(release_namespaces(cluster, &writer, &namespaces).await);
    let csvs = cluster.own_csvs(&namespace);
    if let Some(apis) = operator_group::prune(&group, &here, &csvs) {
        group = set_provided_apis(context, &group, &apis).await?;
    }
    for role in roles::of_group(&group, &roles::aggregated(&group, &csvs)) {
        ensure_cluster_role(cluster, &writer, &role).await?;
    }
    are_labelled.map(|()| Requeue::OnChange)
}

/// Emits an event about what a group waits for.
async fn report_wait(context: &Context, group: &OperatorGroup, note: &str) {
    let event = NewEvent { warning: false, reason: WAITING_EVENT, action: "Reconcile", note };
    context.events.publish(&group.object_ref(&()), event).await;
}

/// Writes a ClusterRole unless it is there.
async fn ensure_cluster_role(cluster: &Cluster, writer: &ObjectWriter, role: &Object) -> kube::Result<()> {
    let live = cluster.cluster_roles.find(role.name()).map(|live| object(&*live));
    let written = writer.ensure(role, live.as_ref()).await?;
    cache_answer(&cluster.cluster_roles, live.is_none(), written);
    Ok(())
}

/// Names and labels of all namespaces.
pub(crate) fn namespaces(cluster: &Cluster) -> targets::Namespaces {
    let all = cluster.namespaces.all();
    all.iter().map(|namespace| (namespace.name_any(), namespace.labels().clone())).collect()
}

fn account(cluster: &Cluster, group: &OperatorGroup) -> Account {
    let name = &group.spec.service_account_name;
    if name.is_empty() {
        return Account::Unnamed;
    }
    match cluster.accounts.find(&format!("{}/{name}", group.namespace().unwrap_or_default())) {
        None => Account::Missing,
        Some(account) => Account::Present {
            uid: account.uid().unwrap_or_default(),
            resource_version: account.resource_version().unwrap_or_default(),
        },
    }
}

/// Labels the account that installs for the group as the reference does, whose caches hold labelled objects only.
async fn label_account(cluster: &Cluster, writer: &ObjectWriter, group: &OperatorGroup) -> kube::Result<()> {
    let (namespace, name) = (group.namespace().unwrap_or_default(), &group.spec.service_account_name);
    let Some(account) = cluster.accounts.find(&format!("{namespace}/{name}")) else { return Ok(()) };
    if account.labels().contains_key(keys::MANAGED) {
        return Ok(());
    }
    let patch = json!({ "metadata": { "labels": { keys::MANAGED: "true" } } });
    match writer.patch(&named("v1", "ServiceAccount", Some(&namespace), name), &patch).await {
        Err(error) if classify(&error) == ErrorClass::NotFound => Ok(()),
        answer => answer.map(drop),
    }
}

/// Writes the annotation `olm.providedAPIs` of a group.
pub(crate) async fn set_provided_apis(
    context: &Context,
    group: &OperatorGroup,
    apis: &str,
) -> kube::Result<Arc<OperatorGroup>> {
    let namespace = group.namespace().unwrap_or_default();
    let target = named("operators.coreos.com/v1", "OperatorGroup", Some(&namespace), &group.name_any());
    let annotations = BTreeMap::from([(keys::PROVIDED_APIS, apis)]);
    let patch =
        json!({ "metadata": { "annotations": annotations, "resourceVersion": group.resource_version() } });
    let written = ObjectWriter::new(context.client.clone()).patch(&target, &patch).await?;
    let written = serde_json::from_value(written.into_value()).map_err(kube::Error::SerdeError)?;
    Ok(cache(&context.cluster, written))
}

/// Shows a group as the apiserver answered it, before the watch does.
fn cache(cluster: &Cluster, group: OperatorGroup) -> Arc<OperatorGroup> {
    let group = Arc::new(watched::slim(group));
    cluster.groups.update(watched::key(&group.metadata), watched::Object(Ok(Arc::clone(&group))));
    group
}

async fn label(writer: &ObjectWriter, namespace: &str, label: &str, value: &Value) -> kube::Result<()> {
    let target = named("v1", "Namespace", None, namespace);
    let patch = json!({ "metadata": { "labels": { label: value } } });
    match writer.patch(&target, &patch).await {
        Err(error) if classify(&error) == ErrorClass::NotFound => Ok(()),
        answer => answer.map(drop),
    }
}

/// Deletes the roles that a group leaves behind.
async fn release(cluster: &Cluster, writer: &ObjectWriter, key: &str) -> kube::Result<()> {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    for role in cluster.cluster_roles.all() {
        let labels = role.labels();
        let has = |key: &str, value: &str| labels.get(key).is_some_and(|label| label == value);
        if has(keys::OWNER_KIND, "OperatorGroup")
            && has(keys::OWNER, name)
            && has(keys::OWNER_NAMESPACE, namespace)
        {
            writer.delete(&object(&*role)).await?;
        }
    }
    Ok(())
}

/// Removes the labels of groups that do not exist.
async fn release_namespaces(
    cluster: &Cluster,
    writer: &ObjectWriter,
    namespaces: &targets::Namespaces,
) -> kube::Result<()> {
    let uids = uids(cluster);
    let mut are_released = Ok(());
    for (namespace, labels) in namespaces {
        for stale in stale(labels.iter(), &uids) {
            are_released = are_released.and(label(writer, namespace, stale, &Value::Null).await);
        }
    }
    are_released
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::{self, Apiserver, failure_with};

    #[tokio::test]
    async fn group_label_that_one_namespace_refuses_is_on_others() {
        let cluster = Cluster::new();
        let group = json!({
            "metadata": {"namespace": "ns", "name": "og", "uid": "u"}, "spec": {"targetNamespaces": ["a", "b"]},
            "status": {"namespaces": ["a", "b"], "lastUpdated": "2026-01-01T00:00:00Z"},
        });
        testing::put(&cluster.groups, group);
        for name in ["a", "b"] {
            testing::put(&cluster.namespaces, json!({"metadata": {"name": name}}));
        }
        let apiserver = Apiserver::new(|_, uri| match uri.contains("/namespaces/a?") {
            true => failure_with(403, "Forbidden", "no"),
            false => (200, json!({"metadata": {"name": "any"}})),
        });
        let context = testing::context(NAME, &apiserver, &cluster);
        assert!(reconcile(&context, "ns/og").await.is_err(), "it is tried again");
        let requests = apiserver.requests();
        let is_labelled = |line: &String| line.starts_with("PATCH ") && line.contains("/namespaces/b?");
        assert!(requests.iter().any(is_labelled), "{requests:?}");
    }

    #[test]
    fn group_is_woken_by_the_namespaces_that_it_may_select() {
        let cluster = Cluster::new();
        for (name, spec) in [
            ("selects", json!({"selector": {"matchLabels": {"a": "b"}}})),
            ("lists", json!({"targetNamespaces": ["x"]})),
            ("lists-another", json!({"targetNamespaces": ["y"]})),
            ("global", json!({})),
        ] {
            let group = json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec});
            let group: OperatorGroup = serde_json::from_value(group).unwrap();
            cluster.groups.insert(format!("ns/{name}"), watched::Object::new(group));
        }
        let woken = concerned(&cluster, "x");
        assert!(woken.iter().eq(["ns/lists", "ns/selects"]), "{woken:?}");
    }

    #[tokio::test]
    async fn group_wait_is_an_event() {
        for (spec, want) in [
            (json!({"targetNamespaces": [""]}), "TargetNamespaces cannot contain NamespaceAll"),
            (json!({"serviceAccountName": "worker"}), "ServiceAccount worker not found; create it"),
        ] {
            let cluster = Cluster::new();
            let group: OperatorGroup = serde_json::from_value(
                json!({"metadata": {"namespace": "ns", "name": "og", "uid": "u"}, "spec": spec}),
            )
            .unwrap();
            let status = json!({"namespaces": [], "lastUpdated": "2026-01-01T00:00:00Z", "conditions": [{
                "type": "OperatorGroupServiceAccount", "status": "True", "reason": "ServiceAccountNotFound",
                "message": "ServiceAccount worker not found", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]});
            let mut answer = serde_json::to_value(&group).unwrap();
            answer["status"] = status;
            cluster.groups.insert("ns/og".to_owned(), watched::Object::new(group));
            let apiserver = Apiserver::new(move |_, _| (200, answer.clone()));
            let context = testing::context(NAME, &apiserver, &cluster);
            for _ in 0..2 {
                reconcile(&context, "ns/og").await.unwrap();
            }
            let requests = apiserver.requests();
            let events: Vec<_> = requests.iter().filter(|line| line.contains("/events")).collect();
            let [event] = events.as_slice() else { panic!("{requests:?}") };
            assert!(event.contains(r#""reason":"Waiting""#) && event.contains(want), "{event}");
        }
    }

    #[tokio::test]
    async fn group_that_went_unseen_leaves_no_label() {
        let labels = |uids: &[&str]| -> Value {
            uids.iter().map(|uid| (format!("{}{uid}", keys::GROUP_UID), json!(""))).collect()
        };
        let cluster = Cluster::new();
        let group = json!({"metadata": {"namespace": "ns", "name": "og", "uid": "now"}, "spec": {}});
        testing::put(&cluster.groups, group);
        for (name, labels) in [("a", labels(&["now", "before"])), ("b", labels(&["now"]))] {
            let namespace = json!({"metadata": {"name": name, "labels": labels}});
            let namespace: Namespace = serde_json::from_value(namespace).unwrap();
            let woken = gone(&cluster, namespace.metadata.labels.as_ref());
            assert_eq!(woken.as_deref(), (name == "a").then_some(GONE), "{name}");
            cluster.namespaces.insert(name.to_owned(), watched::Object::new(namespace));
        }
        let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"name": "a"}})));
        let writer = ObjectWriter::new(apiserver.client());
        release_namespaces(&cluster, &writer, &namespaces(&cluster)).await.unwrap();
        let requests = apiserver.requests();
        let want = format!(r#"{{"metadata":{{"labels":{{"{}before":null}}}}}}"#, keys::GROUP_UID);
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert!(
            requests[0].starts_with("PATCH /api/v1/namespaces/a") && requests[0].ends_with(&want),
            "{requests:?}"
        );
    }

    #[tokio::test]
    async fn group_that_does_not_fit_its_type_keeps_roles_and_labels() {
        let cluster = Cluster::new();
        let spec = json!({"targetNamespaces": "a"});
        let group = json!({"metadata": {"namespace": "ns", "name": "og", "uid": "now"}, "spec": spec});
        let group: watched::Received<OperatorGroup> = serde_json::from_value(group).unwrap();
        cluster.groups.insert("ns/og".to_owned(), watched::Object::from(group));
        assert!(cluster.groups.find("ns/og").is_none());
        let labels =
            json!({"olm.owner": "og", "olm.owner.namespace": "ns", "olm.owner.kind": "OperatorGroup"});
        let role = json!({"metadata": {"name": "olm.og.og.admin-x", "labels": labels}});
        testing::put(&cluster.cluster_roles, role);
        let label = format!("{}now", keys::GROUP_UID);
        let namespace = json!({"metadata": {"name": "a", "labels": {(label.as_str()): ""}}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        assert_eq!(gone(&cluster, namespace.metadata.labels.as_ref()), None);
        cluster.namespaces.insert("a".to_owned(), watched::Object::new(namespace));
        let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"name": "a"}})));
        let context = testing::context(NAME, &apiserver, &cluster);
        reconcile(&context, "ns/og").await.unwrap();
        assert_eq!(apiserver.requests(), Vec::<String>::new());
    }

    /// A group may be deleted and made again between two events, so that no pass is for the one that went.
    #[tokio::test]
    async fn pass_over_a_group_removes_labels_of_its_predecessor() {
        let cluster = Cluster::new();
        let group: OperatorGroup =
            serde_json::from_value(json!({"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
                "metadata": {"namespace": "ns", "name": "og", "uid": "now"}, "spec": {"targetNamespaces": ["ns"]}}))
            .unwrap();
        let answer = serde_json::to_value(&group).unwrap();
        cluster.groups.insert("ns/og".to_owned(), watched::Object::new(group));
        let label = format!("{}before", keys::GROUP_UID);
        let namespace = json!({"metadata": {"name": "a", "labels": {(label.as_str()): ""}}});
        testing::put(&cluster.namespaces, namespace);
        let apiserver = Apiserver::new(move |_, uri| match uri.contains("/namespaces/a") {
            true => (200, json!({"metadata": {"name": "a"}})),
            false => (200, answer.clone()),
        });
        let context = testing::context(NAME, &apiserver, &cluster);
        reconcile(&context, "ns/og").await.unwrap();
        let requests = apiserver.requests();
        let removes = |line: &String| {
            line.starts_with("PATCH /api/v1/namespaces/a?") && line.contains(&format!(r#""{label}":null"#))
        };
        assert!(requests.iter().any(removes), "{requests:?}");
    }

    #[tokio::test]
    async fn group_account_gets_the_label_of_the_reference() {
        let group: OperatorGroup = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "og"}, "spec": {"serviceAccountName": "worker"},
        }))
        .unwrap();
        let account =
            |labels: Value| json!({"metadata": {"namespace": "ns", "name": "worker", "labels": labels}});
        for (case, live, is_written) in [
            ("missing", None, false),
            ("plain", Some(account(json!({"mine": "x"}))), true),
            ("labelled", Some(account(json!({"olm.managed": "true"}))), false),
        ] {
            let cluster = Cluster::new();
            let apiserver = Apiserver::new(|_, _| (200, json!({"metadata": {"name": "worker"}})));
            if let Some(live) = live {
                testing::put(&cluster.accounts, live);
            }
            let writer = ObjectWriter::new(apiserver.client());
            label_account(&cluster, &writer, &group).await.unwrap();
            let requests = apiserver.requests();
            let is_patch = |line: &String| {
                line.starts_with("PATCH /api/v1/namespaces/ns/serviceaccounts/worker")
                    && line.contains(r#""olm.managed":"true""#)
            };
            assert_eq!(
                requests.iter().filter(|line| is_patch(line)).count(),
                usize::from(is_written),
                "{case}"
            );
            assert_eq!(requests.len(), usize::from(is_written), "{case}: {requests:?}");
        }
    }
}
