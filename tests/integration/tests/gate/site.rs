//! cluster-operator alone: a control plane without controllers, and extensions and revisions made by the test.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use olm_api::openshift::ClusterOperator;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_kit::{Ca, Cluster, Options, Process, Program, Request, eventually};
use serde_json::{Value, json};

use crate::view::{LIMIT, View, condition};

/// Who the process is.
const ACCOUNT: &str = "system:serviceaccount:olmv1-system:cluster-operator-controller-manager";
/// All that it may do (rule: cluster-operator §11 step 6): what is installed with it.
const RIGHTS: &str = include_str!("../../../../manifests/base/cluster-operator/rbac.yaml");
/// An account that may read its metrics.
const READER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-operator-metrics-reader}
subjects: [{kind: ServiceAccount, name: metrics-reader, namespace: default}]
";

/// cluster-operator under an account of its own that may do no more than it must.
async fn program(cluster: &Cluster) -> Result<Program> {
    cluster.apply(RIGHTS).await?;
    cluster.apply(READER).await?;
    let account = ACCOUNT.rsplit(':').next().context("no account")?;
    let kubeconfig = cluster.kubeconfig_for_service_account("olmv1-system", account).await?;
    Ok(Program::cluster_operator(cluster)?.kubeconfig(&kubeconfig))
}

/// A control plane with the kinds of OLM.
async fn cluster() -> Result<Cluster> {
    let options = Options { audit: true, api_only: true, ..Options::default() };
    let cluster = Cluster::start_with(&options).await?;
    cluster.install_olm().await?;
    Ok(cluster)
}

async fn openshift(version: &str) -> Result<Cluster> {
    let cluster = cluster().await?;
    cluster.install_openshift_kinds().await?;
    cluster.set_openshift_version(version).await?;
    Ok(cluster)
}

/// An extension whose bundle has these properties.
async fn installed(client: &Client, name: &str, bundle: &str, properties: Option<&str>) -> Result<()> {
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}},
    });
    extensions.create(&PostParams::default(), &serde_json::from_value(extension)?).await?;
    revision(client, name, 1, bundle, properties).await
}

async fn revision(
    client: &Client,
    extension: &str,
    number: i64,
    bundle: &str,
    properties: Option<&str>,
) -> Result<()> {
    let mut annotations = json!({"olm.operatorframework.io/bundle-name": bundle});
    if let Some(properties) = properties {
        annotations["olm.properties"] = json!(properties);
    }
    let set = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {
            "name": format!("{extension}-{number}"), "annotations": annotations,
            "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": extension},
        },
        "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
    });
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    Ok(())
}

async fn annotate(client: &Client, set: &str, properties: &str) -> Result<()> {
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let patch = json!({"metadata": {"annotations": {"olm.properties": properties}}});
    sets.patch(set, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

fn max(value: &str) -> String {
    json!([{"type": "olm.maxOpenShiftVersion", "value": value}]).to_string()
}

/// The metrics of the process, as an administrator reads them.
async fn metrics(cluster: &Cluster, process: &Process) -> Result<String> {
    let kubeconfig = cluster.kubeconfig_for_service_account("default", "metrics-reader").await?;
    let kubeconfig: Value = serde_json::from_str(&std::fs::read_to_string(kubeconfig)?)?;
    let token = kubeconfig.pointer("/users/0/user/token").and_then(Value::as_str).context("no token")?;
    let http = Ca::shared()?.http_client()?;
    let url = format!("{}/metrics", process.metrics_url());
    Ok(http.get(url).bearer_auth(token).send().await?.error_for_status()?.text().await?)
}

#[tokio::test]
async fn gate_waits_until_the_api_appears() -> Result<()> {
    let cluster = cluster().await?;
    let client = cluster.client().await?;
    installed(&client, "e", "b.v1", Some(&max("4.17"))).await?;
    let process = program(&cluster).await?.flag("--openshift-version", "4.17.0").start().await?;
    let view = View::new(&cluster, process.log()).await?;
    // it looks whether the kinds are there, once each, and then listens
    let definitions = || -> Result<Vec<String>> {
        let all = cluster.audited(0, |it| {
            it.user == ACCOUNT
                && it.resource == "customresourcedefinitions"
                && it.uri.contains("fieldSelector")
                && ["clusteroperators", "clusterversions"].iter().any(|name| it.uri.contains(name))
        })?;
        Ok(all.into_iter().map(|it| it.verb).collect())
    };
    eventually("both definitions were looked for", LIMIT, || async {
        let seen = definitions()?;
        anyhow::ensure!(seen.iter().filter(|verb| *verb == "list").count() == 2, "{seen:?}");
        Ok(())
    })
    .await?;
    // case 47: meanwhile extensions change, and no request is made about the missing API
    for number in 2..6 {
        revision(&client, "e", number, "b.v1", Some(&max("4.17"))).await?;
    }
    let about = |what: &str| -> Result<usize> {
        Ok(cluster.audited(0, |it| it.user == ACCOUNT && it.resource.starts_with(what))?.len())
    };
    assert_eq!((about("clusteroperators")?, about("clusterversions")?), (0, 0));
    assert_eq!(about("events")?, 0, "no event was emitted");

    cluster.install_openshift_kinds().await?;
    view.upgradeable("False", "bundle \"b.v1\" for ClusterExtension \"e\".").await?;
    let asked = definitions()?;
    assert_eq!(asked.iter().filter(|verb| *verb == "list").count(), 2, "no second look: {asked:?}");

    // and when the API goes, so does the work
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let crds: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    crds.delete("clusteroperators.config.openshift.io", &DeleteParams::default()).await?;
    olm_kit::Wait::new(&crds, "clusteroperators.config.openshift.io").within(LIMIT).to_be_gone().await?;
    cluster.install_openshift_kinds().await?;
    view.upgradeable("False", "bundle \"b.v1\"").await?;
    Ok(())
}

/// A ClusterServiceVersion of OLM Classic counts from the moment when its kind is there; a copy of it does not.
#[tokio::test]
async fn gate_blocks_on_a_bundle_of_olm_classic() -> Result<()> {
    let cluster = openshift("4.18.2").await?;
    let process = program(&cluster).await?.start().await?;
    let view = View::new(&cluster, process.log()).await?;
    view.upgradeable("True", "All is well").await?;
    cluster.install_classic().await?;
    let csv = |namespace: &str, labels: Value, limit: &str| {
        json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": "demo.v1", "namespace": namespace, "labels": labels, "annotations": {"olm.properties": max(limit)}},
            "spec": {"displayName": "demo", "install": {"strategy": "deployment", "spec": {"deployments": []}}}})
        .to_string()
    };
    cluster.apply(&csv("olm", json!({}), "4.18.0")).await?;
    cluster.apply(&csv("default", json!({"olm.copiedFrom": "olm"}), "4.18")).await?;
    let closed =
        view.upgradeable("False", "bundle \"demo.v1\" for ClusterServiceVersion \"olm/demo.v1\".").await?;
    assert!(!closed.message.contains("default/demo.v1"), "{}", closed.message);
    let text = metrics(&cluster, &process).await?;
    let row = "olm_extension_blocks_cluster_upgrade{extension=\"olm/demo.v1\",bundle=\"demo.v1\",max_openshift_version=\"4.18\"} 1";
    assert!(text.contains(row), "{text}");
    cluster.apply(&csv("olm", json!({}), "v4.19")).await?;
    view.upgradeable("True", "All is well").await?;
    Ok(())
}

#[tokio::test]
async fn gate_blocks_on_an_unreadable_value_with_the_reason() -> Result<()> {
    let cluster = openshift("4.17.0").await?;
    let client = cluster.client().await?;
    installed(&client, "fine", "fine.v1", None).await?;
    installed(&client, "bad", "bad.v1", Some(&max("latest"))).await?;
    let mut process = program(&cluster).await?.start().await?;
    let view = View::new(&cluster, process.log()).await?;
    let found = view.upgradeable("False", "error converting to semver for version \"latest\"").await?;
    assert_eq!(found.reason, "InstalledOLMOperators_FailureGettingExtensionMetadata");
    let head =
        "InstalledOLMOperatorsUpgradeable: error(s) with cluster extension bad: error in bundle bad.v1: ";
    assert!(found.message.starts_with(head), "{}", found.message);
    let note = view.until_event("ClusterExtension", "bad", "BlocksClusterUpgrade").await?;
    assert!(
        note.starts_with("the cluster cannot be updated to 4.18: error(s) with cluster extension bad"),
        "{note}"
    );

    // the revision alone changes, without a word in the extension's status
    annotate(&client, "bad-1", &max("4.18")).await?;
    view.upgradeable("True", "All is well").await?;

    // case 35 and decision 17: the newest revision counts before it is installed
    revision(&client, "bad", 2, "bad.v2", Some(&max("4.17"))).await?;
    let closed = view.upgradeable("False", "bundle \"bad.v2\" for ClusterExtension \"bad\".").await?;

    // case 49: deleted by hand
    view.operators.delete("olm", &DeleteParams::default()).await?;
    let uid = view.until("is there again", |it| condition(it, "Upgradeable").is_some()).await?.metadata.uid;
    let again = view.upgradeable("False", "bundle \"bad.v2\"").await?;
    assert_eq!(again.message, closed.message);

    // what a person writes is put right
    let edited = json!({"status": {"conditions": [{"type": "Upgradeable", "status": "True", "reason": "Me", "message": "go",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let person = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    view.operators.patch_status("olm", &person, &Patch::Merge(&edited)).await?;
    let right = view.until("is put right", |it| {
        condition(it, "Upgradeable").is_some_and(|it| it.status.as_str() == "False") && it.metadata.uid == uid
    });
    right.await?;

    // case 45: a restart and changes that change nothing write nothing
    // the record is written after the answer: the person's patch and what put it right must be in it
    // (in the order in which they came in, not in that in which they were recorded)
    let before = eventually("the record has the last write", LIMIT, || async {
        let writes = cluster.audited(0, |it| it.writes() && it.resource.starts_with("clusteroperators"))?;
        let person = writes.iter().find(|it| it.verb == "patch").context("no patch yet")?;
        let restored = |it: &Request| it.verb == "update" && it.code == 200 && it.received > person.received;
        anyhow::ensure!(writes.iter().any(restored), "{writes:?}");
        Ok(writes.len())
    })
    .await?;
    let events = view.events("ClusterExtension", "bad").await?;
    process.restart().await?;
    annotate(&client, "fine-1", "[]").await?;
    eventually("the restarted process has judged", LIMIT, || async {
        let text = metrics(&cluster, &process).await?;
        anyhow::ensure!(
            text.contains("olm_extension_blocks_cluster_upgrade{extension=\"bad\",bundle=\"bad.v2\",max_openshift_version=\"4.17\"} 1"),
            "{text}"
        );
        Ok(())
    })
    .await?;
    cluster.apply("{apiVersion: apps/v1, kind: Deployment, metadata: {name: other, namespace: olmv1-system}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}").await?;
    eventually("it has checked again", LIMIT, || async {
        let text = metrics(&cluster, &process).await?;
        let passes = text.lines().find(|it| {
            it.starts_with("controller_runtime_reconcile_total{")
                && it.contains("\"success\"")
                && it.contains("cluster-operator")
        });
        let passes: u64 = passes.and_then(|it| it.rsplit(' ').next()?.parse().ok()).unwrap_or_default();
        anyhow::ensure!(passes >= 2, "{passes} passes");
        Ok(())
    })
    .await?;
    assert_eq!(view.writes()?.len(), before, "{:?}", view.writes()?);
    assert_eq!(view.events("ClusterExtension", "bad").await?, events, "nothing is reported twice");
    assert!(process.stop(), "ends cleanly:\n{}", process.log_text());
    Ok(())
}

#[tokio::test]
async fn gate_only_reports_while_another_manager_has_the_object() -> Result<()> {
    let cluster = openshift("4.17.0").await?;
    let client = cluster.client().await?;
    installed(&client, "e", "b.v1", Some(&max("4.17"))).await?;
    let operators: Api<ClusterOperator> = Api::all(client.clone());
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": "olm"}, "spec": {}});
    operators.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
    let mut theirs = object;
    theirs["status"] = json!({"conditions": [{"type": "Upgradeable", "status": "True", "reason": "AsExpected", "message": "theirs",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let params = PatchParams::apply("cluster-olm-operator");
    operators.patch_status("olm", &params, &Patch::Apply(&theirs)).await?;
    let process = program(&cluster).await?.start().await?;
    let view = View::new(&cluster, process.log()).await?;
    let before = view.writes()?.len();
    let note = view.until_event("ClusterOperator", "olm", "ManagedElsewhere").await?;
    assert!(note.starts_with("cluster-olm-operator writes the conditions"), "{note}");
    view.until_event("ClusterExtension", "e", "BlocksClusterUpgrade").await?;
    let text = metrics(&cluster, &process).await?;
    for line in [
        "olm_cluster_operator_managed_elsewhere{manager=\"cluster-olm-operator\"} 1",
        "olm_extension_blocks_cluster_upgrade{extension=\"e\",bundle=\"b.v1\",max_openshift_version=\"4.17\"} 1",
        "olm_cluster_operator_condition{condition=\"Upgradeable\",reason=\"InstalledOLMOperators_IncompatibleOperatorsInstalled\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(view.writes()?.len(), before, "it is theirs");
    let kept = view.operators.get("olm").await?;
    assert_eq!(condition(&kept, "Upgradeable").map(|it| it.message.as_str()), Some("theirs"));
    // when it goes, this one takes its place
    view.operators.delete("olm", &DeleteParams::default()).await?;
    view.upgradeable("False", "bundle \"b.v1\"").await?;
    Ok(())
}

/// The events about writes that fail; each wait ends as soon as the right is there.
#[tokio::test]
async fn gate_reports_rejected_writes() -> Result<()> {
    let cluster = openshift("4.17.0").await?;
    let program = program(&cluster).await?;
    let (create, update) = (
        "resources: [clusteroperators]\n  verbs: [create]",
        "resources: [clusteroperators/status]\n  resourceNames: [olm]\n  verbs: [update]",
    );
    assert!(RIGHTS.contains(create) && RIGHTS.contains(update), "other manifests");
    let may_not = |what: &str, verb: &str| what.replace(&format!("verbs: [{verb}]"), "verbs: [get]");
    let no_update = RIGHTS.replace(update, &may_not(update, "update"));
    cluster.apply(&no_update.replace(create, &may_not(create, "create"))).await?;
    // the apiserver takes the changed rights up a little later
    let account = Cluster::client_from(&cluster.kubeconfig_as(ACCOUNT, &[])?).await?;
    let operators: Api<ClusterOperator> = Api::all(account);
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": "olm"}, "spec": {}});
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("it must not create", LIMIT, || async {
        let answer = operators.create(&dry, &serde_json::from_value(object.clone())?).await;
        let refused = matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403);
        anyhow::ensure!(refused, "{answer:?}");
        Ok(())
    })
    .await?;
    let process = program.start().await?;
    let view = View::new(&cluster, process.log()).await?;
    let note = view.until_event("ClusterOperator", "olm", "StatusCreateFailed").await?;
    assert!(note.contains("clusteroperators.config.openshift.io is forbidden"), "{note}");
    cluster.apply(&no_update).await?;
    let note = view.until_event("ClusterOperator", "olm", "StatusFailed").await?;
    assert!(note.contains("clusteroperators.config.openshift.io \"olm\" is forbidden"), "{note}");
    cluster.apply(RIGHTS).await?;
    view.upgradeable("True", "All is well").await?;
    view.until_event("ClusterOperator", "olm", "OperatorStatusChanged").await?;
    Ok(())
}

#[tokio::test]
async fn gate_writes_once_for_many_extensions() -> Result<()> {
    let cluster = openshift("4.17.0").await?;
    let client = Arc::new(cluster.client().await?);
    futures::stream::iter(0..500)
        .map(|number| {
            let client = Arc::clone(&client);
            async move {
                let limit = if number % 5 == 0 { "4.17" } else { "4.20" };
                installed(&client, &format!("e{number:03}"), &format!("b{number:03}.v1"), Some(&max(limit)))
                    .await
            }
        })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await?;
    let process = program(&cluster).await?.start().await?;
    let view = View::new(&cluster, process.log()).await?;
    let found =
        view.upgradeable("False", "Declared to run on at most: 4.17 (100); upgrade or remove them").await?;
    assert_eq!(found.message.matches("ClusterExtension \"").count(), 100);
    let message = &found.message;
    let bundles = "bundle \"b000.v1\" for ClusterExtension \"e000\",bundle \"b005.v1\"";
    assert!(message.contains(bundles), "{message}");
    // the status may be seen before the record of it is written
    let writes = eventually("the record has an update", LIMIT, || async {
        let writes = view.writes()?;
        anyhow::ensure!(writes.iter().any(|(verb, ..)| verb == "update"), "{writes:?}");
        Ok(writes)
    })
    .await?;
    let updates = writes.iter().filter(|(verb, ..)| verb == "update").count();
    assert_eq!(updates, 1, "{writes:?}");
    Ok(())
}
