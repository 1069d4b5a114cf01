//! Verbs that change the spec of a ClusterExtension, through the public API and nothing else.
//!
//! `--dry-run=client -o yaml` prints the same edit as a manifest, for git. A warning names fields that another manager owns,
//! because it would revert the edit.

pub(crate) mod install;
mod losses;
pub(crate) mod rollback;
mod settle;
pub(crate) mod uninstall;
pub(crate) mod upgrade;
mod waiting;

use clap::{Args, ValueEnum};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_runtime::duration::GoDuration;
use olm_runtime::error_text::chain;
use serde_json::{Value, json};

use super::output::Output;
use crate::CommandOutput;
use crate::failure::{CommandError, print_note};
pub(crate) use waiting::Waiting;

/// Field manager of the edits.
const MANAGER: &str = "kubectl-olm";
/// How often an edit is tried when the controller writes the status at the same time.
const TRIES: u32 = 10;

/// How a change is made.
#[derive(Debug, Args)]
pub(crate) struct Change {
    /// Change nothing: print what would be sent (client), or what the apiserver would store (server)
    #[arg(long, value_enum, default_value_t, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: DryRun,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    /// With --wait, how long the containers are watched once it is Ready; exit 1 if one restarts
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    settle: GoDuration,
}

/// The place of a dry run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum DryRun {
    /// It is no question.
    #[default]
    None,
    /// This program.
    Client,
    /// The apiserver, with admission.
    Server,
}

impl Change {
    fn writes(&self) -> bool {
        self.dry_run == DryRun::None
    }

    async fn create(
        &self,
        client: &Client,
        extension: ClusterExtension,
        what: &str,
    ) -> Result<CommandOutput, CommandError> {
        if self.dry_run == DryRun::Client {
            return Ok(self.output_of(&extension, what));
        }
        let api: Api<ClusterExtension> = Api::all(client.clone());
        let params =
            PostParams { dry_run: self.dry_run == DryRun::Server, field_manager: Some(MANAGER.to_owned()) };
        let stored = api.create(&params, &extension).await.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 409 => CommandError::Usage(format!(
                "there is a ClusterExtension {:?} already; `kubectl olm upgrade {0}` changes its version, --name gives this one another name",
                extension.name_any()
            )),
            _ => refused(&extension.name_any(), &error),
        })?;
        self.done(client, stored, what).await
    }

    /// Merges `patch` into the extension as it was read, unless it changed meanwhile.
    async fn edit(
        &self,
        client: &Client,
        extension: &ClusterExtension,
        mut patch: Value,
        what: &str,
    ) -> Result<CommandOutput, CommandError> {
        for (path, manager) in owners(extension, &patch) {
            print_note(&format!(
                "note: {path} is also written by {manager:?}; change it there too, or it may be put back"
            ));
        }
        if self.dry_run == DryRun::Client {
            let mut edited = serde_json::to_value(extension).unwrap_or_default();
            json_patch::merge(&mut edited, &patch);
            let edited =
                serde_json::from_value(edited).map_err(|error| CommandError::Usage(error.to_string()))?;
            return Ok(self.output_of(&edited, what));
        }
        let api: Api<ClusterExtension> = Api::all(client.clone());
        let params = PatchParams {
            dry_run: self.dry_run == DryRun::Server,
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let name = extension.name_any();
        let mut version = extension.resource_version();
        let mut tries = 0;
        let stored = loop {
            patch["metadata"]["resourceVersion"] = json!(version);
            let error = match api.patch(&name, &params, &Patch::Merge(&patch)).await {
                Ok(stored) => break stored,
                Err(error) => error,
            };
            tries += 1;
            if tries == TRIES || !matches!(&error, kube::Error::Api(status) if status.code == 409) {
                return Err(refused(&name, &error));
            }
            let now = api.get(&name).await.map_err(|error| refused(&name, &error))?;
            if !same_spec(extension, &now) {
                return Err(refused(&name, &error));
            }
            version = now.resource_version();
        };
        self.done(client, stored, what).await
    }

    async fn done(
        &self,
        client: &Client,
        stored: ClusterExtension,
        what: &str,
    ) -> Result<CommandOutput, CommandError> {
        if self.dry_run == DryRun::Server || !self.waiting.wait {
            return Ok(self.output_of(&stored, what));
        }
        print_note(what);
        let (last, ready) = self.waiting.ready(client, &stored).await?;
        let GoDuration(time) = self.settle;
        let failure = if ready { settle::watch(client, &last, time).await? } else { None };
        let end = match (ready, &failure) {
            (false, _) => "is not Ready".to_owned(),
            (true, None) => "is Ready".to_owned(),
            (true, Some(failure)) => format!("was Ready, and then failed: {failure}"),
        };
        let yes = ready && failure.is_none();
        Ok(CommandOutput { yes, ..self.output_of(&last, &format!("{} {end}", last.name_any())) })
    }

    /// The result as text, or the manifest.
    fn output_of(&self, extension: &ClusterExtension, what: &str) -> CommandOutput {
        let manifest = manifest(extension);
        let dry = if self.dry_run == DryRun::None { "" } else { " (nothing was changed)" };
        let people = |wide: bool| {
            let spec =
                if wide { serde_saphyr::to_string(&manifest).unwrap_or_default() } else { String::new() };
            format!("{what}{dry}\n{spec}")
        };
        let names = || vec![format!("clusterextension.olm.operatorframework.io/{}", extension.name_any())];
        CommandOutput { text: self.output.print(&manifest, names, people), yes: true }
    }
}

/// Whether only the status can have changed: the controller writes it at any time.
fn same_spec(read: &ClusterExtension, now: &ClusterExtension) -> bool {
    read.uid() == now.uid() && read.metadata.generation == now.metadata.generation
}

/// The manifest of the extension, without status and generated metadata.
fn manifest(extension: &ClusterExtension) -> Value {
    let metadata = &extension.metadata;
    let mut user_metadata = json!({"name": metadata.name});
    let maps = [("annotations", &metadata.annotations), ("labels", &metadata.labels)];
    for (key, map) in maps {
        if let Some(map) = map.as_ref().filter(|map| !map.is_empty()) {
            user_metadata[key] = json!(map);
        }
    }
    json!({"apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": user_metadata, "spec": extension.spec})
}

/// Fields that `patch` changes and that another manager applied.
fn owners(extension: &ClusterExtension, patch: &Value) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in leaves(patch, &mut Vec::new()) {
        for entry in extension.metadata.managed_fields.iter().flatten() {
            let manager = entry.manager.clone().unwrap_or_default();
            let applied = entry.operation.as_deref() == Some("Apply");
            let owns = entry.fields_v1.as_ref().is_some_and(|fields| {
                path.iter().try_fold(&fields.0, |at, step| at.get(format!("f:{step}"))).is_some()
            });
            if applied && owns && manager != MANAGER {
                found.push((path.join("."), manager));
            }
        }
    }
    found
}

/// The paths of all leaves of a patch.
fn leaves(value: &Value, at: &mut Vec<String>) -> Vec<Vec<String>> {
    let Value::Object(map) = value else { return vec![at.clone()] };
    let mut all = Vec::new();
    for (key, value) in map {
        at.push(key.clone());
        all.extend(leaves(value, at));
        at.pop();
    }
    all
}

fn refused(name: &str, error: &kube::Error) -> CommandError {
    let text = chain(error);
    match error {
        kube::Error::Api(status) if status.code == 409 => CommandError::Unreachable(format!(
            "ClusterExtension {name:?} was changed by somebody else just now; look at it and try again"
        )),
        kube::Error::Api(status) if status.code == 422 || status.code == 400 => CommandError::Usage(text),
        kube::Error::Api(status) if status.code == 403 => {
            CommandError::Unreachable(format!("{text}; ask for the right to change clusterextensions"))
        }
        _ => CommandError::Unreachable(format!("cannot write ClusterExtension {name:?}: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_warns_about_fields_of_other_appliers() {
        let extension: ClusterExtension = serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
            "metadata": {"name": "x", "managedFields": [
                {"manager": "flux", "operation": "Apply",
                 "fieldsV1": {"f:spec": {"f:source": {"f:catalog": {"f:version": {}}}}}},
                {"manager": "kubectl-edit", "operation": "Update",
                 "fieldsV1": {"f:spec": {"f:source": {"f:catalog": {"f:version": {}}}}}},
            ]},
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap();
        let version = json!({"spec": {"source": {"catalog": {"version": "1.0.0"}}}});
        let want = [("spec.source.catalog.version".to_owned(), "flux".to_owned())];
        assert_eq!(owners(&extension, &version), want);
        assert_eq!(owners(&extension, &json!({"spec": {"source": {"catalog": {"channels": ["a"]}}}})), []);
    }

    #[test]
    fn edit_detects_changed_spec_or_object() {
        let read = |uid: &str, generation: i64, version: &str| -> ClusterExtension {
            serde_json::from_value(json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension",
                "metadata": {"name": "x", "uid": uid, "generation": generation, "resourceVersion": version},
                "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
            }))
            .unwrap()
        };
        let first = read("a", 1, "10");
        assert!(same_spec(&first, &read("a", 1, "11")), "the status was written");
        assert!(!same_spec(&first, &read("a", 2, "11")), "another spec was applied");
        assert!(!same_spec(&first, &read("b", 1, "11")), "it was deleted and created again");
    }
}
