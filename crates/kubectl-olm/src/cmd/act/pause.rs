//! `pause`, `resume` and `retry`: annotations of a ClusterExtension that its controller obeys immediately.

use clap::Args;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use olm_api::annotations;
use serde_json::{Value, json};

use super::{Change, Edit};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(after_help = "Sets the annotation olm.operatorframework.io/paused to \"true\".\n\n\
                  Examples:\n  kubectl olm pause my-extension\n  kubectl olm pause my-extension --dry-run -o yaml\n\n\
                  Exit codes: 0 done, 1 no such extension, 2 bad input, 3 no answer.")]
pub(crate) struct Pause {
    /// The ClusterExtension
    name: String,
    #[command(flatten)]
    edit: Edit,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Removes the annotation olm.operatorframework.io/paused. `kubectl olm plan NAME --resume` shows before what the \
                  controller will do.\n\n\
                  Examples:\n  kubectl olm resume my-extension\n  kubectl olm resume my-extension --wait\n\n\
                  Exit codes: 0 done, 1 not Ready after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Resume {
    /// The ClusterExtension
    name: String,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    cluster: Cluster,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Sets the annotation olm.operatorframework.io/requested-at to the time: the controller resolves and checks again \
                  instead of waiting for its next attempt, and reads a bundle in quarantine again.\n\n\
                  Examples:\n  kubectl olm retry my-extension\n\n\
                  Exit codes: 0 requested, 1 no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Retry {
    /// The ClusterExtension
    name: String,
    #[command(flatten)]
    edit: Edit,
    #[command(flatten)]
    cluster: Cluster,
}

fn annotation(key: &str, value: impl Into<Value>) -> Value {
    let value: Value = value.into();
    json!({"metadata": {"annotations": {key: value}}})
}

/// The annotation as the controller reads it: `true` alone pauses.
pub(crate) fn is_paused(extension: &olm_api::ClusterExtension) -> bool {
    extension.annotations().get(annotations::PAUSED).is_some_and(|value| value == "true")
}

pub(crate) async fn pause(arguments: &Pause) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let client = arguments.cluster.client().await?;
    let extension = extensions::named(&client, name).await?;
    extensions::refuse_deleted(&extension)?;
    if is_paused(&extension) {
        print_note(&format!("clusterextension/{name} was paused before"));
    }
    let stored = arguments.edit.patch(&client, &extension, annotation(annotations::PAUSED, "true")).await?;
    let what = format!(
        "clusterextension/{name} paused: nothing is resolved, applied or corrected until `kubectl olm resume {name}`"
    );
    Ok(arguments.edit.output_of(&stored, &json!(stored.spec), &what))
}

pub(crate) async fn resume(arguments: &Resume) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let client = arguments.cluster.client().await?;
    let extension = extensions::named(&client, name).await?;
    extensions::refuse_deleted(&extension)?;
    let what = resumed(&extension);
    let patch = annotation(annotations::PAUSED, Value::Null);
    let undo = format!("`kubectl olm pause {name}`");
    let resumed = arguments.change.edit(&client, &extension, patch, (&what, &undo)).await?;
    Ok(arguments.change.edit.print(&resumed))
}

/// What it means for the extension that the annotation is removed.
fn resumed(extension: &olm_api::ClusterExtension) -> String {
    let name = extension.name_any();
    match extension.annotations().get(annotations::PAUSED) {
        Some(_) if is_paused(extension) => format!("clusterextension/{name} resumed"),
        Some(value) => format!("clusterextension/{name}: the annotation paused={value} is removed"),
        None => format!("clusterextension/{name} was not paused"),
    }
}

pub(crate) async fn retry(arguments: &Retry) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let client = arguments.cluster.client().await?;
    let extension = extensions::named(&client, name).await?;
    extensions::refuse_deleted(&extension)?;
    if is_paused(&extension) {
        return Err(CommandError::NotFound(format!(
            "clusterextension/{name} is paused, so nothing is retried; run `kubectl olm resume {name}`"
        )));
    }
    let now = Timestamp::now().to_string();
    let stored =
        arguments.edit.patch(&client, &extension, annotation(annotations::REQUESTED_AT, now)).await?;
    let what =
        format!("clusterextension/{name}: retry requested; `kubectl olm status {name}` shows the result");
    Ok(arguments.edit.output_of(&stored, &json!(stored.spec), &what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(metadata: &Value) -> olm_api::ClusterExtension {
        serde_json::from_value(json!({
            "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": metadata,
            "spec": {"namespace": "x", "source": {"sourceType": "Catalog", "catalog": {"packageName": "x"}}},
        }))
        .unwrap()
    }

    #[test]
    fn resume_reports_the_annotation_that_is_removed() {
        for (all, want) in [
            (json!({annotations::PAUSED: "true"}), "clusterextension/x resumed"),
            (json!({annotations::PAUSED: "yes"}), "clusterextension/x: the annotation paused=yes is removed"),
            (json!({}), "clusterextension/x was not paused"),
        ] {
            assert_eq!(resumed(&extension(&json!({"name": "x", "annotations": all}))), want);
        }
    }

    #[test]
    fn deleted_extension_is_refused() {
        let deleted = extension(&json!({"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}));
        let error = extensions::refuse_deleted(&deleted).unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().as_str()),
            (1, "x is being deleted; see `kubectl olm status x`")
        );
        extensions::refuse_deleted(&extension(&json!({"name": "x"}))).unwrap();
    }
}
