//! Sources that wake a pass over a ClusterServiceVersion.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::rbac::v1::Subject;
use kube::{Resource, ResourceExt as _};
use olm_api::classic::{ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription};
use olm_classic::csv::rights::is_account;
use olm_classic::operator_group::{ApiSet, keys, providers, targets};
use olm_runtime::controller::Source;
use olm_runtime::watched::{Change, Object};

use super::cleanup::{is_ended, steps_of};
use super::observe::{named_accounts, named_api_services, named_crds};
use super::{key, labelled_owner};
use crate::cluster::Cluster;

/// All sources. Beside them a CSV that is not Succeeded is checked every minute.
pub(super) fn sources(cluster: &Arc<Cluster>) -> Vec<Source> {
    let shared = || Arc::clone(cluster);
    vec![
        Source::new("it changed, or is gone", cluster.csvs.subscribe(), |change| [change.key]),
        Source::new(
            "another one of its namespace changed its phase or its place",
            cluster.csvs.subscribe(),
            {
                let cluster = shared();
                move |change| others(&cluster, &change)
            },
        ),
        Source::new("its group, or one with the same APIs, changed", cluster.groups.subscribe(), {
            let cluster = shared();
            move |change| of_group(&cluster, &change)
        }),
        Source::new(
            "its Subscription names it or changed its settings",
            cluster.subscriptions.subscribe(),
            |change| of_subscription(&change),
        ),
        Source::new("the proxy of the cluster changed", cluster.proxies.subscribe(), {
            let cluster = shared();
            move |_| cluster.csvs.names()
        }),
        Source::new("the condition of the one that it replaces changed", cluster.conditions.subscribe(), {
            let cluster = shared();
            move |change| {
                let (namespace, name) = names(&change);
                in_namespace(&cluster, &namespace, |csv| csv.spec.replaces == name)
            }
        }),
        Source::new("a Deployment of it changed", cluster.deployments.subscribe(), |change| owners(&change)),
        Source::new("a Service of it changed", cluster.services.subscribe(), |change| owners(&change)),
        Source::new("a certificate of it changed", cluster.secrets.subscribe(), |change| owners(&change)),
        Source::new("a webhook of it changed", cluster.validating_webhooks.subscribe(), |it| owners(&it)),
        Source::new("a webhook of it changed", cluster.mutating_webhooks.subscribe(), |it| owners(&it)),
        Source::new("rights of it came, and it is gone", cluster.cluster_roles.subscribe(), {
            let cluster = shared();
            move |change| gone_owner(&cluster, &change)
        }),
        Source::new("rights of it came, and it is gone", cluster.cluster_role_bindings.subscribe(), {
            let cluster = shared();
            move |change| gone_owner(&cluster, &change)
        }),
        Source::new("a plan that names it ended, and it is gone", cluster.plans.subscribe(), {
            let cluster = shared();
            move |change| gone_of_plan(&cluster, &change)
        }),
        Source::new("a CustomResourceDefinition that it names changed", cluster.crds.subscribe(), {
            let cluster = shared();
            move |change| named(&cluster, |csv| named_crds(csv).any(|name| name == change.key))
        }),
        Source::new("an APIService that it names changed", cluster.api_services.subscribe(), {
            let cluster = shared();
            move |change| named(&cluster, |csv| named_api_services(csv).any(|name| name == change.key))
        }),
        Source::new("a ServiceAccount of it changed", cluster.accounts.subscribe(), {
            let cluster = shared();
            move |change| {
                let (namespace, name) = names(&change);
                in_namespace(&cluster, &namespace, |csv| named_accounts(csv).any(|account| account == name))
            }
        }),
        Source::new("rights of an account of it changed", cluster.role_bindings.subscribe(), {
            let cluster = shared();
            move |change| {
                let subjects = change.states().filter_map(Object::ok).filter_map(|it| it.subjects.clone());
                let subjects: Vec<Subject> = subjects.flatten().collect();
                bound(&cluster, &subjects, Some(names(&change).0))
            }
        }),
        Source::new("rights of an account of it changed", cluster.cluster_role_bindings.subscribe(), {
            let cluster = shared();
            move |change| {
                let subjects = change.states().filter_map(Object::ok).filter_map(|it| it.subjects.clone());
                let subjects: Vec<Subject> = subjects.flatten().collect();
                bound(&cluster, &subjects, None)
            }
        }),
        Source::new("a Role of an account of it changed", cluster.roles.subscribe(), {
            let cluster = shared();
            move |change| {
                let (namespace, name) = names(&change);
                let bindings = cluster.role_bindings.in_namespace(&namespace);
                let bindings =
                    bindings.iter().filter(|it| it.role_ref.kind == "Role" && it.role_ref.name == name);
                let subjects: Vec<Subject> =
                    bindings.flat_map(|it| it.subjects.clone().unwrap_or_default()).collect();
                bound(&cluster, &subjects, Some(namespace))
            }
        }),
        Source::new("a ClusterRole of an account of it changed", cluster.cluster_roles.subscribe(), {
            let cluster = shared();
            move |change| bound_to(&cluster, &change.key)
        }),
    ]
}

/// Namespace and name of what changed.
fn names<K: Resource>(change: &Change<String, Object<K>>) -> (String, String) {
    let meta = change.latest().map(Object::meta);
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    (text(meta.and_then(|it| it.namespace.as_ref())), text(meta.and_then(|it| it.name.as_ref())))
}

/// Keys of the CSVs of a namespace that `is_concerned`.
fn in_namespace(
    cluster: &Cluster,
    namespace: &str,
    is_concerned: impl Fn(&ClusterServiceVersion) -> bool,
) -> BTreeSet<String> {
    let here = cluster.csvs.in_namespace(namespace);
    here.iter().filter(|csv| is_concerned(csv)).map(|csv| key(csv)).collect()
}

/// Keys of all CSVs that `is_concerned`.
fn named(cluster: &Cluster, is_concerned: impl Fn(&ClusterServiceVersion) -> bool) -> BTreeSet<String> {
    cluster.csvs.all().iter().filter(|csv| is_concerned(csv)).map(|csv| key(csv)).collect()
}

/// The other CSVs of the namespace, if the change may matter to them.
fn others(cluster: &Cluster, change: &Change<String, Object<ClusterServiceVersion>>) -> BTreeSet<String> {
    let place = |object: &Object<ClusterServiceVersion>| {
        let csv = object.ok()?;
        let phase = csv.status.as_ref().map(|status| status.phase.clone());
        Some((phase, csv.metadata.generation, csv.metadata.deletion_timestamp.is_some()))
    };
    if !change.concerns(place) {
        return BTreeSet::new();
    }
    let mut others = in_namespace(cluster, &names(change).0, |_| true);
    others.remove(&change.key);
    others
}

fn of_group(cluster: &Cluster, change: &Change<String, Object<OperatorGroup>>) -> BTreeSet<String> {
    let mut woken = in_namespace(cluster, &names(change).0, |_| true);
    let annotation = |group: &OperatorGroup| group.annotations().get(keys::PROVIDED_APIS).cloned();
    let part = |object: &Object<OperatorGroup>| {
        object
            .ok()
            .map(|group| (annotation(group), targets::resolved(group), group.spec.static_provided_apis))
    };
    if change.concerns(part) {
        let apis = change.states().filter_map(Object::ok).filter_map(|group| annotation(group));
        let apis = apis.map(|text| ApiSet::parse(&text).0).fold(ApiSet::default(), |all, it| all.union(&it));
        let csvs = cluster.csvs.all();
        woken.extend(providers(&apis, &csvs).iter().map(|(namespace, name)| format!("{namespace}/{name}")));
    }
    woken
}

fn of_subscription(change: &Change<String, Object<Subscription>>) -> BTreeSet<String> {
    let part = |object: &Object<Subscription>| {
        let subscription = object.ok()?;
        let status = subscription.status.as_ref();
        let csvs = status.map(|status| (status.current_csv.clone(), status.installed_csv.clone()));
        Some((csvs, subscription.spec.config.clone()))
    };
    if !change.concerns(part) {
        return BTreeSet::new();
    }
    let namespace = names(change).0;
    let status = change.states().filter_map(Object::ok).filter_map(|it| it.status.as_ref());
    let csvs = status.flat_map(|status| [&status.current_csv, &status.installed_csv]);
    csvs.filter(|csv| !csv.is_empty()).map(|csv| format!("{namespace}/{csv}")).collect()
}

/// The CSVs that own an object, by its labels or by its references.
fn owners<K: Resource>(change: &Change<String, Object<K>>) -> BTreeSet<String> {
    let mut owners = BTreeSet::new();
    for object in change.states() {
        let meta = object.meta();
        owners.extend(labelled_owner(meta));
        let references = meta.owner_references.iter().flatten();
        let references = references.filter(|owner| owner.kind == "ClusterServiceVersion");
        owners.extend(
            references
                .map(|owner| format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), owner.name)),
        );
    }
    owners
}

/// The CSV of a role or binding, if it is gone.
fn gone_owner<K: Resource>(cluster: &Cluster, change: &Change<String, Object<K>>) -> Option<String> {
    let owner = labelled_owner(change.after.as_ref()?.meta())?;
    cluster.csvs.find(&owner).is_none().then_some(owner)
}

/// The CSVs of a plan that has ended or is gone, if they are gone, too.
fn gone_of_plan(cluster: &Cluster, change: &Change<String, Object<InstallPlan>>) -> BTreeSet<String> {
    let is_over = |object: &Object<InstallPlan>| object.ok().is_none_or(|plan| is_ended(plan));
    if !change.after.as_ref().is_none_or(is_over) {
        return BTreeSet::new();
    }
    let namespace = names(change).0;
    let plan = change.latest().and_then(Object::ok);
    let csvs = plan.into_iter().flat_map(|plan| steps_of(plan)).map(|name| format!("{namespace}/{name}"));
    csvs.filter(|csv| cluster.csvs.find(csv).is_none()).collect()
}

/// The CSVs with an account that is bound to a ClusterRole, in the whole cluster or in a namespace.
fn bound_to(cluster: &Cluster, role: &str) -> BTreeSet<String> {
    let (wide, here) = (cluster.cluster_role_bindings.all(), cluster.role_bindings.all());
    let wide = wide.iter().filter(|it| it.role_ref.name == role).filter_map(|it| it.subjects.clone());
    let here = here.iter().filter(|it| it.role_ref.kind == "ClusterRole" && it.role_ref.name == role);
    let here = here.filter_map(|it| it.subjects.clone());
    let subjects: Vec<Subject> = wide.chain(here).flatten().collect();
    bound(cluster, &subjects, None)
}

/// The CSVs with an account among the subjects of a binding: one that their permissions name, or the one that installs for their group.
fn bound(cluster: &Cluster, subjects: &[Subject], binding: Option<String>) -> BTreeSet<String> {
    if subjects.is_empty() {
        return BTreeSet::new();
    }
    let csvs = cluster.csvs.all();
    let groups = cluster.groups.read();
    let concerned = csvs.iter().filter(|csv| {
        let namespace = csv.metadata.namespace.as_deref().unwrap_or_default();
        let is_bound = |account: &str| {
            subjects.iter().any(|subject| is_account(subject, binding.as_deref(), namespace, account))
        };
        let here = groups.group(namespace).filter_map(Object::ok);
        let mut installing = here.map(|group| group.spec.service_account_name.as_str());
        named_accounts(csv).any(is_bound)
            || installing.any(|account| !account.is_empty() && is_bound(account))
    });
    concerned.map(|csv| key(csv)).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use olm_runtime::controller::{self, Requeue};
    use olm_runtime::metrics::Outcome;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{self, Apiserver};

    fn object<K: serde::de::DeserializeOwned + Resource>(value: Value) -> Object<K> {
        Object::new(serde_json::from_value(value).unwrap())
    }

    fn change<K>(before: Option<Object<K>>, after: Option<Object<K>>) -> Change<String, Object<K>> {
        Change { key: "ns/x".to_owned(), before, after, is_answer: false }
    }

    #[test]
    fn csv_is_woken_by_what_labels_or_references_bind_to_it() {
        let labels = json!({"olm.owner": "demo.v1", "olm.owner.namespace": "home", "olm.owner.kind": "ClusterServiceVersion"});
        let references = json!([
            {"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": "demo.v2", "uid": "u"},
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "v"},
        ]);
        let service =
            |metadata: Value| object::<k8s_openapi::api::core::v1::Service>(json!({"metadata": metadata}));
        let labelled = service(json!({"namespace": "ns", "name": "x", "labels": labels}));
        let owned = service(json!({"namespace": "ns", "name": "x", "ownerReferences": references}));
        let foreign = service(json!({"namespace": "ns", "name": "x"}));
        for (before, after, want) in [
            (None, Some(labelled.clone()), vec!["home/demo.v1"]),
            (Some(labelled), Some(owned), vec!["home/demo.v1", "ns/demo.v2"]),
            (Some(foreign.clone()), Some(foreign), vec![]),
        ] {
            let want: BTreeSet<String> = want.into_iter().map(str::to_owned).collect();
            assert_eq!(owners(&change(before, after)), want);
        }
    }

    #[tokio::test]
    async fn csv_is_woken_by_the_proxy_of_the_cluster() {
        let cluster = Cluster::new();
        let csv = json!({"metadata": {"namespace": "ns", "name": "x"}, "spec": {"displayName": "d", "install": {"strategy": "s"}}});
        cluster.csvs.insert("ns/x".to_owned(), object(csv));
        let context = testing::context("csv", &Apiserver::new(|_, _| (404, json!({}))), &cluster);
        let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();
        let pass = move |key: &str| {
            sender.send(key.to_owned()).unwrap();
            None::<std::future::Ready<(Requeue, Outcome)>>
        };
        let sources = sources(&cluster);
        let passes = controller::run(context.controller(sources), std::future::ready(()), pass);
        let script = async {
            assert_eq!(woken.recv().await.as_deref(), Some("ns/x"), "it is there");
            let proxy = [("HTTP_PROXY".to_owned(), "http://p".to_owned())];
            cluster.proxies.insert("cluster".to_owned(), proxy.into());
            assert_eq!(woken.recv().await.as_deref(), Some("ns/x"), "the proxy changed");
        };
        let both = async {
            tokio::select! { () = passes => {}, () = script => {} }
        };
        tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    }

    #[test]
    fn csv_is_woken_by_the_phase_and_the_spec_of_others() {
        let csv = |name: &str, generation: i64, phase: &str| {
            object::<ClusterServiceVersion>(json!({
                "metadata": {"namespace": "ns", "name": name, "uid": name, "generation": generation},
                "spec": {"displayName": "d", "install": {"strategy": "s"}},
                "status": {"phase": phase},
            }))
        };
        let cluster = Cluster::new();
        for name in ["x", "y"] {
            cluster.csvs.insert(format!("ns/{name}"), csv(name, 1, "Replacing"));
        }
        let first = csv("x", 1, "Installing");
        for (before, after, is_woken) in [
            (None, Some(first.clone()), true),
            (Some(first.clone()), Some(csv("x", 1, "Succeeded")), true),
            (Some(first.clone()), Some(csv("x", 2, "Installing")), true),
            (Some(first.clone()), None, true),
            (Some(first.clone()), Some(first), false),
        ] {
            let woken = others(&cluster, &change(before, after));
            assert!(woken.iter().eq(is_woken.then_some("ns/y")), "{woken:?}");
        }
    }

    #[test]
    fn csv_is_woken_by_rights_of_its_accounts() {
        let cluster = Cluster::new();
        let permissions = json!([{"serviceAccountName": "operator", "rules": []}]);
        let strategy =
            json!({"strategy": "deployment", "spec": {"deployments": [], "permissions": permissions}});
        let csv = json!({"metadata": {"namespace": "ns", "name": "x"}, "spec": {"displayName": "d", "install": strategy}});
        cluster.csvs.insert("ns/x".to_owned(), object(csv));
        let group = json!({"metadata": {"namespace": "ns", "name": "g"}, "spec": {"serviceAccountName": "installer"}});
        cluster.groups.insert("ns/g".to_owned(), object(group));
        for (version, account, is_woken) in
            [("1", "operator", true), ("2", "installer", true), ("3", "another", false)]
        {
            let subjects = json!([{"kind": "ServiceAccount", "namespace": "ns", "name": account}]);
            let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"});
            let metadata = json!({"namespace": "ns", "name": "b", "resourceVersion": version});
            let binding = json!({"metadata": metadata, "roleRef": role, "subjects": subjects});
            cluster.role_bindings.insert("ns/b".to_owned(), object(binding));
            let subjects: Vec<Subject> = serde_json::from_value(subjects).unwrap();
            for woken in [bound(&cluster, &subjects, None), bound_to(&cluster, "r")] {
                assert!(woken.iter().eq(is_woken.then_some("ns/x")), "{account}: {woken:?}");
            }
            assert_eq!(bound_to(&cluster, "q"), BTreeSet::new());
        }
    }

    #[test]
    fn csv_is_woken_by_settings_of_its_subscription() {
        let subscription = |channel: &str, env: &str, current: &str| {
            object::<Subscription>(json!({
                "metadata": {"namespace": "ns", "name": "x", "uid": "u"},
                "spec": {
                    "name": "demo", "channel": channel, "source": "s", "sourceNamespace": "ns",
                    "config": {"env": [{"name": "A", "value": env}]},
                },
                "status": {"currentCSV": current, "installedCSV": "demo.v1", "lastUpdated": "2024-01-01T00:00:00Z"},
            }))
        };
        let first = subscription("stable", "1", "demo.v1");
        for (after, want) in [
            (subscription("beta", "1", "demo.v1"), vec![]),
            (subscription("stable", "2", "demo.v1"), vec!["ns/demo.v1"]),
            (subscription("stable", "1", "demo.v2"), vec!["ns/demo.v1", "ns/demo.v2"]),
        ] {
            let got: Vec<String> =
                of_subscription(&change(Some(first.clone()), Some(after))).into_iter().collect();
            assert_eq!(got, want);
        }
    }
}
