//! The end of a simulation of OLM Classic: whether the cluster is as the user wants it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::content::{Content, csv_name, only, packages};
use super::harness::ORCHARD;
use super::invariants::{COPIED_FROM, GROUP, TARGET_LABEL, is_copy, text};
use crate::ApiServer;

/// Conditions that report no defect of what is installed: the user deleted the plan of an earlier time.
const HARMLESS: [&str; 1] = ["InstallPlanMissing"];

/// The objects of a kind in a namespace.
pub(super) fn list(server: &ApiServer, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
    let mut found = server.list(resource);
    found.retain(|object| text(object, "/metadata/namespace") == namespace);
    found
}

/// The ClusterServiceVersions of a namespace, without copies.
pub(super) fn csvs(server: &ApiServer, namespace: &str) -> Vec<Arc<Value>> {
    let mut found = list(server, "clusterserviceversions", namespace);
    found.retain(|csv| !is_copy(csv));
    found
}

/// The newest version of each package of the namespace is installed, and nothing of earlier ones is left.
pub(super) fn installed(server: &ApiServer, content: &Content, namespace: &str) -> Result<(), String> {
    for package in packages(namespace) {
        package_installed(server, content, (namespace, package))
            .map_err(|problem| format!("{namespace}/{package}: {problem}"))?;
    }
    let csvs = csvs(server, namespace);
    if csvs.len() != packages(namespace).len() {
        let names: Vec<&str> = csvs.iter().map(|csv| text(csv, "/metadata/name")).collect();
        return Err(format!("{namespace}: {names:?} are there"));
    }
    copied(server, namespace)
}

fn package_installed(server: &ApiServer, content: &Content, at: (&str, &str)) -> Result<(), String> {
    let (namespace, package) = at;
    let version = content.head(package);
    let name = csv_name(package, version);
    let get = |resource: &str, name: &str| {
        let found = server.get(resource, Some(namespace), name);
        found.ok_or_else(|| format!("{resource} {name} is not there"))
    };
    let mut subscriptions = list(server, "subscriptions", namespace);
    subscriptions.retain(|it| text(it, "/spec/name") == package);
    let [subscription] = subscriptions.as_slice() else {
        return Err(format!("{} Subscriptions", subscriptions.len()));
    };
    let (state, current) = (text(subscription, "/status/state"), text(subscription, "/status/installedCSV"));
    let conditions = subscription["status"]["conditions"].as_array().into_iter().flatten();
    let mut bad = conditions.filter(|it| it["status"] == "True" && !HARMLESS.contains(&text(it, "/type")));
    if let Some(bad) = bad.next() {
        return Err(format!("{} ({}): {}", bad["type"], bad["reason"], bad["message"]));
    }
    if state != "AtLatestKnown" || current != name {
        return Err(format!("the Subscription is {state:?} with {current:?}, not with {name}"));
    }
    let csv = get("clusterserviceversions", &name)?;
    if text(&csv, "/status/phase") != "Succeeded" {
        return Err(format!("{name} is {}: {}", csv["status"]["phase"], csv["status"]["message"]));
    }
    let deployment = get("deployments", package)?;
    // the ClusterServiceVersion may have been edited
    let image = |object: &Value, path: &str| text(object, path).to_owned();
    let desired = image(&csv, "/spec/install/spec/deployments/0/spec/template/spec/containers/0/image");
    let live = image(&deployment, "/spec/template/spec/containers/0/image");
    if desired != live {
        return Err(format!("the image of the Deployment is {live}, not {desired}"));
    }
    for config in [format!("{package}-settings"), only(package, version)] {
        if get("configmaps", &config)?["data"]["version"] != version {
            return Err(format!("ConfigMap {config} is not of {version}"));
        }
    }
    for object in content.objects(package, version) {
        if object.kind() == "CustomResourceDefinition"
            && server.get("customresourcedefinitions", None, object.name()).is_none()
        {
            return Err(format!("CustomResourceDefinition {} is not there", object.name()));
        }
    }
    for resource in ["operatorconditions", "roles", "rolebindings"] {
        get(resource, &name)?;
    }
    get("serviceaccounts", package)?;
    for resource in ["clusterroles", "clusterrolebindings"] {
        let is_owned = |it: &Arc<Value>| {
            it["metadata"]["labels"]["olm.owner"] == name.as_str()
                && it["metadata"]["labels"]["olm.owner.namespace"] == namespace
        };
        if !server.list(resource).iter().any(is_owned) {
            return Err(format!("no {resource} of {name}"));
        }
    }
    if !csv["spec"]["webhookdefinitions"].is_null() {
        served(server, namespace, package, &name)?;
    }
    Ok(())
}

/// The webhook of a package has its configuration, its Service and its certificate.
fn served(server: &ApiServer, namespace: &str, package: &str, csv: &str) -> Result<(), String> {
    let mut webhooks = server.list("validatingwebhookconfigurations");
    webhooks.retain(|it| it["metadata"]["labels"]["olm.owner"] == csv);
    let [webhook] = webhooks.as_slice() else {
        return Err(format!("{} webhook configurations of {csv}", webhooks.len()));
    };
    let bundle = text(webhook, "/webhooks/0/clientConfig/caBundle");
    let secrets = list(server, "secrets", namespace);
    let mut certificates = secrets.iter().filter(|it| it["type"] == "kubernetes.io/tls");
    let Some(certificate) = certificates.find(|it| text(it, "/metadata/name").starts_with(package)) else {
        return Err("its certificate is not there".to_owned());
    };
    if bundle.is_empty() || text(certificate, "/data/tls.crt").is_empty() {
        return Err("its webhook has no certificate".to_owned());
    }
    let service = text(webhook, "/webhooks/0/clientConfig/service/name");
    match server.get("services", Some(namespace), service) {
        Some(_) => Ok(()),
        None => Err(format!("Service {service} is not there")),
    }
}

/// A global group has copies of its ClusterServiceVersions in all other namespaces.
fn copied(server: &ApiServer, namespace: &str) -> Result<(), String> {
    if namespace != ORCHARD {
        return Ok(());
    }
    for csv in csvs(server, namespace) {
        let name = text(&csv, "/metadata/name");
        for target in server.list("namespaces") {
            let target = text(&target, "/metadata/name").to_owned();
            if target == namespace {
                continue;
            }
            let copy = server.get("clusterserviceversions", Some(&target), name);
            let copy = copy.ok_or_else(|| format!("no copy of {name} in {target}"))?;
            if !is_copy(&copy) || copy["spec"] != csv["spec"] || text(&copy, "/status/reason") != "Copied" {
                return Err(format!("the copy of {name} in {target} is outdated"));
            }
        }
    }
    Ok(())
}

/// Nothing of the packages is left but their definitions.
pub(super) fn removed(server: &ApiServer, namespace: &str) -> Result<(), String> {
    let left = server.find(|resource, object| {
        let metadata = &object["metadata"];
        let labels = &metadata["labels"];
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let is_of_csv = labels["olm.owner.kind"] == "ClusterServiceVersion"
            && labels["olm.owner.namespace"] == namespace
            || labels[COPIED_FROM] == namespace
            || metadata["namespace"] == namespace
                && (["clusterserviceversions", "installplans", "subscriptions"].contains(&resource)
                    || owners.into_iter().any(|owner| owner["kind"] == "ClusterServiceVersion"));
        // copies from the other namespace are here as well
        let is_foreign_copy = is_copy(object) && labels[COPIED_FROM] != namespace;
        let is_left = is_of_csv && !is_foreign_copy;
        is_left.then(|| format!("{resource} {} of {namespace} is still there", metadata["name"]))
    });
    left.map_or(Ok(()), Err)
}

/// Nothing is being deleted, copies have their originals, and namespaces only labels of groups that exist.
pub(super) fn tidy(server: &ApiServer) -> Result<(), String> {
    let groups = server.list("operatorgroups");
    let groups: BTreeSet<&str> = groups.iter().map(|group| text(group, "/metadata/uid")).collect();
    let mut copies = Vec::new();
    let untidy = server.find(|resource, object| {
        let metadata = &object["metadata"];
        let place = format!("{resource} {}", metadata["name"]);
        if !metadata["deletionTimestamp"].is_null() {
            return Some(format!("{place} is still being deleted"));
        }
        if resource == "clusterserviceversions" && is_copy(object) {
            copies.push((text(object, "/metadata/name").to_owned(), metadata["labels"][COPIED_FROM].clone()));
        }
        let labels = metadata["labels"].as_object().into_iter().flatten();
        let mut targets = labels.filter_map(|(key, _)| key.strip_prefix(TARGET_LABEL));
        let stale = targets.find(|uid| resource == "namespaces" && !groups.contains(uid));
        stale.map(|uid| format!("{place} has the label of the group {uid}, which is gone"))
    });
    if let Some(untidy) = untidy {
        return Err(untidy);
    }
    for (name, from) in copies {
        let from = from.as_str().unwrap_or_default();
        if server.get("clusterserviceversions", Some(from), &name).is_none() {
            return Err(format!("a copy of {name}.{GROUP} from {from} is left"));
        }
    }
    Ok(())
}
