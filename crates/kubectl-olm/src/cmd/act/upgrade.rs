//! `upgrade`: another range of versions, or other channels.

use clap::Args;
use serde_json::{Value, json};

use super::Change;
use crate::CommandOutput;
use crate::extensions;
use crate::failure::CommandError;
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "The catalog's upgrade edges bind; `kubectl olm explain` says what would be chosen, `kubectl olm rollback` goes back.\n\n\
                  Examples:\n  kubectl olm upgrade my-extension --version '>=2.0.0 <3.0.0' --wait\n  \
                  kubectl olm upgrade my-extension --any-version\n  \
                  kubectl olm upgrade my-extension --version 2.x --channel fast --dry-run -o yaml\n\n\
                  Exit codes: 0 done, 1 not Ready after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// Versions to stay within, such as '>=2.0.0 <3.0.0'
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Any version: the newest that can be reached; a new major version is held
    #[arg(long, conflicts_with = "version")]
    any_version: bool,
    /// Only bundles and edges of this channel; may be repeated, replaces the present ones
    #[arg(long)]
    channel: Vec<String>,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let mut catalog = json!({"upgradeConstraintPolicy": "CatalogProvided"});
    let mut changes = Vec::new();
    if let Some(version) = &arguments.version {
        olm_resolver::parse_range(version).map_err(|error| CommandError::Usage(error.condition_message()))?;
        catalog["version"] = json!(version);
        changes.push(format!("version {version}"));
    }
    if arguments.any_version {
        catalog["version"] = Value::Null;
        changes.push("any version".to_owned());
    }
    if !arguments.channel.is_empty() {
        catalog["channels"] = json!(arguments.channel);
        changes.push(format!("channels {}", arguments.channel.join(", ")));
    }
    if changes.is_empty() {
        return Err(CommandError::Usage(format!(
            "say what is wanted: --version RANGE, --any-version or --channel NAME; `kubectl olm explain {}` shows what is possible",
            arguments.name
        )));
    }
    let client = arguments.cluster.client().await?;
    let extension = extensions::named(&client, &arguments.name).await?;
    let patch = json!({"spec": {"source": {"catalog": catalog}}});
    let what = format!("ClusterExtension {} wants {}", arguments.name, changes.join(", "));
    arguments.change.edit(&client, &extension, patch, &what).await
}
