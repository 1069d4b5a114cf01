//! `uninstall`: deletes a ClusterExtension, with or without its objects.

use clap::Args;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, Preconditions};
use olm_api::{ClusterExtension, annotations};
use serde_json::json;

use super::{Waiting, named, patch_params, refused};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "Custom resources go first, while the operator still runs, then everything else in reverse order.\n\n\
                  Examples:\n  kubectl olm uninstall my-extension --wait\n  kubectl olm uninstall my-extension --keep\n  \
                  kubectl olm uninstall my-extension --dry-run\n\n\
                  Exit codes: 0 done, 1 not gone after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// Leave its objects where they are
    #[arg(long)]
    keep: bool,
    /// Only say what would be deleted
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    waiting: Waiting,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let (client, extension, own) = extensions::with_revisions(&arguments.cluster, name).await?;
    let objects = own.last().map_or(0, |set| set.spec.phases.iter().map(|phase| phase.objects.len()).sum());
    let fate = if arguments.keep { "stay" } else { "go with it, custom resources first" };
    let what = format!("ClusterExtension {name} is deleted; its {objects} objects {fate}");
    if arguments.dry_run {
        return Ok(CommandOutput { text: format!("{what} (nothing was changed)\n"), yes: true });
    }
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let named = named(&extension);
    if arguments.keep {
        let keep = json!({"metadata": {"annotations": {
            annotations::DELETION_POLICY: annotations::DELETION_POLICY_KEEP}}});
        api.patch(name, &patch_params(), &Patch::Merge(&keep))
            .await
            .map_err(|error| refused(&named, &error))?;
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: extension.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    api.delete(name, &params).await.map_err(|error| refused(&named, &error))?;
    if !arguments.waiting.wait {
        return Ok(CommandOutput { text: format!("{what}\n"), yes: true });
    }
    print_note(&what);
    let gone = arguments.waiting.gone(&client, &extension).await?;
    let end = if gone { "is gone" } else { "is still there" };
    Ok(CommandOutput { text: format!("ClusterExtension {name} {end}\n"), yes: gone })
}
