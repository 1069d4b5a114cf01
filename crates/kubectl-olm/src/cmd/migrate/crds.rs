//! The CustomResourceDefinitions: those of olm-rs are a superset of those of the Go implementation, and what installed these may not
//! own fields of them any more, or a later apply conflicts with it, and fields that are gone stay.
//!
//! Rule: decision 2.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use serde::Serialize;
use serde_json::{Value, json};

use crate::failure::CommandError;

/// The field manager of `kubectl apply --server-side`, with which the manifests of olm-rs are applied afterwards.
const MANAGER: &str = "kubectl";
/// The longest wait for the kinds after their definitions changed, and the time between two attempts.
const SERVED_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// What the control plane itself writes.
const CONTROL_PLANE: [&str; 2] = ["kube-apiserver", "kube-controller-manager"];

/// What becomes of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum CrdAction {
    /// It is as it should be.
    None,
    /// The cluster does not have it.
    Create,
    /// It gets the fields of olm-rs, and its fields belong to `kubectl apply --server-side`.
    TakeOver,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CrdChange {
    pub(super) name: String,
    pub(super) action: CrdAction,
    /// The managers whose fields are taken over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    managers: Vec<String>,
    /// Other managers that apply it: they have to stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    applied_by: Vec<String>,
}

impl CrdChange {
    pub(super) fn is_none(&self) -> bool {
        self.action == CrdAction::None
    }

    /// For tables and results.
    pub(super) fn verb(&self) -> &'static str {
        match self.action {
            CrdAction::None => "keep",
            CrdAction::Create => "create",
            CrdAction::TakeOver => "take over",
        }
    }

    pub(super) fn why(&self) -> String {
        let from = match (self.action, self.managers.as_slice()) {
            (CrdAction::None, _) => "it is current".to_owned(),
            (CrdAction::Create, _) => "the cluster does not have it".to_owned(),
            (CrdAction::TakeOver, []) => "it is not that of this version".to_owned(),
            (CrdAction::TakeOver, managers) => format!("its fields belong to {}", managers.join(", ")),
        };
        match self.applied_by.as_slice() {
            [] => from,
            others => format!("{from}; {} applies it, too, and has to stop that", others.join(", ")),
        }
    }
}

fn shipped() -> Result<Vec<CustomResourceDefinition>, CommandError> {
    olm_api::crds().map_err(|error| CommandError::Usage(format!("the shipped definitions: {error}")))
}

pub(super) async fn read(client: &Client) -> Result<Vec<CrdChange>, CommandError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut changes = Vec::new();
    for crd in shipped()? {
        let name = crd.name_any();
        let live = api.get_opt(&name).await;
        let live =
            live.map_err(|error| CommandError::from_request("read customresourcedefinitions", &error))?;
        let Some(live) = live else {
            let (managers, applied_by) = (Vec::new(), Vec::new());
            changes.push(CrdChange { name, action: CrdAction::Create, managers, applied_by });
            continue;
        };
        let names = |counts: fn(&ManagedFieldsEntry) -> bool| {
            let entries = live.managed_fields().iter().filter(|entry| counts(entry));
            let mut names: Vec<String> = entries.filter_map(|entry| entry.manager.clone()).collect();
            names.sort();
            names.dedup();
            names
        };
        let managers = names(is_taken_over);
        let applied_by = names(|entry| is_of_object(entry) && !is_taken_over(entry) && !is_ours(entry));
        let is_same = managers.is_empty() && content(&applied(&api, &crd, true).await?) == content(&live);
        let action = if is_same { CrdAction::None } else { CrdAction::TakeOver };
        changes.push(CrdChange { name, action, managers, applied_by });
    }
    Ok(changes)
}

/// What an apply may change.
fn content(crd: &CustomResourceDefinition) -> Value {
    json!({"spec": crd.spec, "annotations": crd.metadata.annotations, "labels": crd.metadata.labels})
}

/// Applies the definition, as a dry run or not.
async fn applied(
    api: &Api<CustomResourceDefinition>,
    crd: &CustomResourceDefinition,
    dry_run: bool,
) -> Result<CustomResourceDefinition, CommandError> {
    let params = PatchParams { dry_run, ..PatchParams::apply(MANAGER).force() };
    let name = crd.name_any();
    let applied = api.patch(&name, &params, &Patch::Apply(crd)).await;
    let doing = format!("apply CustomResourceDefinition {name:?}");
    applied.map_err(|error| CommandError::from_request(&doing, &error))
}

/// Takes the definition over, or creates it.
pub(super) async fn take_over(client: &Client, change: &CrdChange) -> Result<(), CommandError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let shipped = shipped()?;
    let Some(crd) = shipped.iter().find(|crd| crd.name_any() == change.name) else { return Ok(()) };
    let doing = format!("take over CustomResourceDefinition {:?}", change.name);
    let failed = |error: kube::Error| CommandError::from_request(&doing, &error);
    if let Some(live) = api.get_opt(&change.name).await.map_err(failed)?
        && let Some(entries) = taken_over(live.managed_fields())
    {
        // with the resourceVersion it fails if the object changed meanwhile
        let patch =
            json!({"metadata": {"resourceVersion": live.resource_version(), "managedFields": entries}});
        api.patch(&change.name, &PatchParams::default(), &Patch::Merge(&patch)).await.map_err(failed)?;
    }
    applied(&api, crd, false).await.map(drop)
}

/// Waits until the kinds can be listed: the apiserver sets their storage up again after a change of a definition.
pub(super) async fn until_served(client: &Client) -> Result<(), CommandError> {
    let one = ListParams::default().limit(1);
    let end = tokio::time::Instant::now() + SERVED_TIMEOUT;
    loop {
        let catalogs = Api::<ClusterCatalog>::all(client.clone()).list_metadata(&one).await.map(drop);
        let extensions = Api::<ClusterExtension>::all(client.clone()).list_metadata(&one).await.map(drop);
        let revisions = Api::<ClusterObjectSet>::all(client.clone()).list_metadata(&one).await.map(drop);
        match catalogs.and(extensions).and(revisions) {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() >= end => {
                return Err(CommandError::from_request("list the kinds of OLM", &error));
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Written into the object itself, by something else than the control plane.
fn is_of_object(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    entry.subresource.as_deref().unwrap_or_default().is_empty() && !CONTROL_PLANE.contains(&manager)
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply")
}

/// Fields that were written without server-side apply. A manager that applies, such as Argo CD, would take its own back.
fn is_taken_over(entry: &ManagedFieldsEntry) -> bool {
    is_of_object(entry) && entry.operation.as_deref() == Some("Update")
}

/// The managed fields with one entry of [`MANAGER`] in place of those that are taken over. `None` if there are none.
fn taken_over(entries: &[ManagedFieldsEntry]) -> Option<Vec<ManagedFieldsEntry>> {
    let (taken, mut kept): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_taken_over);
    let mut taken = taken.into_iter();
    let first = taken.next()?;
    let ours = kept.iter().position(is_ours).map(|at| kept.remove(at));
    let mut fields = first.fields_v1.clone().map_or(json!({}), |fields| fields.0);
    for entry in taken.chain(ours) {
        merge(&mut fields, entry.fields_v1.map_or(json!({}), |fields| fields.0));
    }
    kept.push(ManagedFieldsEntry {
        manager: Some(MANAGER.to_owned()),
        operation: Some("Apply".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        ..first
    });
    Some(kept)
}

/// The union of two sets of fields.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert_with(|| json!({})), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn managed_fields_are_taken_over() {
        let entry = |manager: &str, operation: &str, subresource: &str, fields: Value| {
            let entry = json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "apiextensions.k8s.io/v1",
                "fieldsType": "FieldsV1", "fieldsV1": fields});
            serde_json::from_value::<ManagedFieldsEntry>(entry).unwrap()
        };
        let status = entry("kube-apiserver", "Update", "status", json!({"f:status": {"f:conditions": {}}}));
        let argo = entry("argocd-controller", "Apply", "", json!({"f:spec": {"f:scope": {}}}));
        let live = [
            entry(
                "kubectl-client-side-apply",
                "Update",
                "",
                json!({"f:metadata": {"f:annotations": {"f:a": {}}}, "f:spec": {"f:group": {}}}),
            ),
            status.clone(),
            argo.clone(),
            entry("helm", "Update", "", json!({"f:spec": {"f:versions": {}}})),
            entry(
                "kubectl",
                "Apply",
                "",
                json!({"f:spec": {"f:group": {}}, "f:metadata": {"f:labels": {"f:b": {}}}}),
            ),
        ];
        let found = taken_over(&live).unwrap();
        let want = entry(
            "kubectl",
            "Apply",
            "",
            json!({"f:metadata": {"f:annotations": {"f:a": {}}, "f:labels": {"f:b": {}}}, "f:spec": {"f:group": {}, "f:versions": {}}}),
        );
        assert_eq!(found, [status, argo, want]);
        assert_eq!(taken_over(&found), None, "a second time there is nothing to take over");
    }
}
