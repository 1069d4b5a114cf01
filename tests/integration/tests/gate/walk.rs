//! The whole way with every process of ours: install what blocks, upgrade it, remove it.

use anyhow::{Context as _, Result, ensure};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_api::openshift::ClusterOperator;
use olm_api::{ClusterExtension, condition};
use olm_integration::package::push_bundle;
use olm_kit::{BundleImage, CatalogImage, Entry, Options, Package, Stack, Wait, eventually, unique};
use serde_json::json;

use crate::view::{LIMIT, View};

const VERSIONS: [(&str, &str); 3] = [("1.0.0", "4.18"), ("1.1.0", "4.18"), ("1.2.0", "4.19")];

/// A catalog with three versions of a package, of which only the last runs on 4.19.
async fn serve(stack: &Stack, name: &str) -> Result<()> {
    let second = Entry::new("1.1.0").replaces("1.0.0");
    let third = Entry::new("1.2.0").replaces("1.1.0").skips("1.0.0");
    let mut package = Package::new(name).channel("stable", [Entry::new("1.0.0"), second, third]);
    for (version, limit) in VERSIONS {
        let bundle = BundleImage::new(name, version).crds([]);
        let properties = json!([{"type": "olm.maxOpenShiftVersion", "value": limit}]).to_string();
        // both fields in which an author may set it
        let bundle = match version {
            "1.0.0" => bundle.csv_patch(json!({"metadata": {"annotations": {"olm.properties": properties}}})),
            _ => bundle.file(
                "metadata/properties.yaml",
                &format!("properties:\n- type: olm.maxOpenShiftVersion\n  value: \"{limit}\"\n"),
            ),
        };
        package = package.bundle(version, &push_bundle(&stack.registry, name, version, &bundle).await?);
    }
    let image = CatalogImage::new().package(&package).image();
    let pushed = stack.registry.push(&format!("{name}/catalog"), "latest", &image).await?;
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name},
        "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}},
    });
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    stack.cluster.apply(&format!("{namespace}\n---\n{catalog}")).await?;
    Ok(())
}

async fn want(extensions: &Api<ClusterExtension>, name: &str, version: &str) -> Result<()> {
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": name, "source": {"sourceType": "Catalog", "catalog": {"packageName": name, "version": version}}},
    });
    extensions.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&extension)).await?;
    Wait::new(extensions, name)
        .within(LIMIT)
        .until(&format!("{version} is installed"), |it: &ClusterExtension| {
            let Some(status) = &it.status else { return false };
            status.install.as_ref().is_some_and(|install| install.bundle.version == version)
                && condition::is_true(&status.conditions, condition::READY)
        })
        .await?;
    Ok(())
}

fn since(operator: &ClusterOperator, type_: &str) -> Option<String> {
    let found = crate::view::condition(operator, type_)?;
    Some(found.last_transition_time.0.to_string())
}

#[tokio::test]
async fn gate_closes_until_a_blocking_bundle_is_upgraded_or_removed() -> Result<()> {
    let options = Options { audit: true, ..Options::default() };
    let mut stack = Stack::start_with(&options, |program| program).await?;
    stack.report("4.18.5").await?;
    let log = stack.cluster_operator.as_ref().context("not started")?.log();
    let _logs = stack.logs_on_failure();
    let view = View::new(&stack.cluster, log).await?;
    let name = unique("blocker");
    let extensions: Api<ClusterExtension> = Api::all(stack.cluster.client().await?);
    serve(&stack, &name).await?;

    // nothing is installed: the gate is open, and the table shows the state of OLM
    let open = view.upgradeable("True", "All is well").await?;
    assert_eq!(open.reason, "AsExpected");
    let table = view.kubectl(&["get", "co", "olm"])?;
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "VERSION", "AVAILABLE", "PROGRESSING", "DEGRADED", "SINCE"], "{table}");
    assert_eq!(lines[1][..5], ["olm", "4.18.5", "True", "False", "False"], "{table}");
    let want_writes = [("create", "clusteroperators", 201), ("update", "clusteroperators/status", 200)];
    let want_writes: Vec<_> =
        want_writes.map(|(verb, what, code)| (verb.to_owned(), what.to_owned(), code)).into();
    // the status may be seen before the record of it is written
    eventually("one creation, one status", LIMIT, || async {
        let writes = view.writes()?;
        ensure!(writes == want_writes, "{writes:?}");
        Ok(())
    })
    .await?;
    let note = view.until_event("ClusterOperator", "olm", "OperatorStatusChanged").await?;
    assert!(note.starts_with("Status for clusteroperator/olm changed: "), "{note}");
    assert!(note.contains("Upgradeable set to True (\"All is well\")"), "{note}");
    let note = view.until_event("ClusterOperator", "olm", "OperatorVersionChanged").await?;
    assert_eq!(note, "clusteroperator/olm version \"operator\" changed from \"\" to \"4.18.5\"");

    // case 6
    want(&extensions, &name, "1.0.0").await?;
    let closed = view.upgradeable("False", &format!("{name}.v1.0.0")).await?;
    assert_eq!(closed.reason, "InstalledOLMOperators_IncompatibleOperatorsInstalled");
    let want_message = format!(
        "InstalledOLMOperatorsUpgradeable: Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: \
         bundle \"{name}.v1.0.0\" for ClusterExtension \"{name}\". Declared to run on at most: {name}.v1.0.0 4.18; upgrade or remove it"
    );
    assert_eq!(closed.message, want_message);
    let seen =
        view.kubectl(&["get", "co", "olm", "-o", "jsonpath={.status.conditions[?(@.type=='Upgradeable')]}"])?;
    assert!(seen.contains("\"status\":\"False\""), "{seen}");
    let note = view.until_event("ClusterExtension", &name, "BlocksClusterUpgrade").await?;
    assert!(note.contains("declares to run on OpenShift 4.18 at most"), "{note}");

    // case 40: another bundle that blocks; the time of the change stays
    want(&extensions, &name, "1.1.0").await?;
    let still = view
        .until("names only the new bundle", |it| {
            crate::view::condition(it, "Upgradeable")
                .is_some_and(|it| it.message.contains(".v1.1.0") && !it.message.contains(".v1.0.0"))
        })
        .await?;
    assert_eq!(since(&still, "Upgradeable"), Some(closed.last_transition_time.0.to_string()));

    // case 39: one that runs on 4.19
    want(&extensions, &name, "1.2.0").await?;
    view.upgradeable("True", "All is well").await?;
    view.until_event("ClusterExtension", &name, "ClusterUpgradeUnblocked").await?;

    // case 48: the cluster itself moves on, and now that is the last version
    stack.cluster.set_openshift_version("4.19.0").await?;
    view.upgradeable("False", "upgrading cluster to version 4.20: ").await?;
    view.until("the version is reported", |it| {
        it.status.as_ref().and_then(|status| status.operator_version()) == Some("4.19.0")
            && crate::view::condition(it, "Progressing").is_some_and(|it| it.status.as_str() == "False")
    })
    .await?;

    // case 38: removed
    extensions.delete(&name, &DeleteParams::default()).await?;
    view.upgradeable("True", "All is well").await?;
    let updates = view.writes()?;
    assert!(updates.iter().all(|(_, _, code)| *code < 300), "{updates:?}");
    Ok(())
}
