//! `upgrade`: another range of versions, channels, catalog, configuration or account, for one extension or several.

use std::time::Duration;

use clap::Args;
use kube::ResourceExt as _;
use olm_api::ClusterExtension;
use olm_install::resolution::revision;
use serde_json::{Map, Value, json};

use super::Change;
use super::pause::is_paused;
use super::spec::{SpecFlags, SpecPatch};
use crate::CommandOutput;
use crate::cmd::list::{self, Row};
use crate::cmd::why::decide;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::{Cache, Cluster, Controller, Registry, Sources};

/// The longest time to find out what an upgrade leads to.
const DECIDE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
#[command(
    after_help = "With another version or channel the catalog's upgrade edges bind again, unless --policy is given. `kubectl olm plan` \
                  shows what would happen, `kubectl olm rollback` goes back.\n\n\
                  Examples:\n  kubectl olm upgrade my-extension --version '>=2.0.0 <3.0.0' --wait\n  \
                  kubectl olm upgrade my-extension --any-version\n  \
                  kubectl olm upgrade my-extension --version 2.x --channel fast --dry-run -o yaml\n  \
                  kubectl olm upgrade my-extension --any-channel --set watchNamespace=team-a\n  \
                  kubectl olm upgrade --outdated --wait\n  kubectl olm upgrade --all --any-version\n\n\
                  Exit codes: 0 done, 1 not Ready after --wait or no such extension, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    #[arg(required_unless_present_any = ["all", "outdated"], conflicts_with_all = ["all", "outdated"])]
    name: Option<String>,
    /// Change every ClusterExtension
    #[arg(long, conflicts_with = "outdated")]
    all: bool,
    /// Let every ClusterExtension of `kubectl olm outdated` have its newer version: its range becomes that version and its updates
    #[arg(long, conflicts_with_all = ["version", "channel", "any_channel"])]
    outdated: bool,
    /// Any version: the newest that can be reached; a new major version is held
    #[arg(long, conflicts_with = "version")]
    any_version: bool,
    /// Bundles and edges of all channels
    #[arg(long, conflicts_with = "channel")]
    any_channel: bool,
    /// Bundles of all catalogs
    #[arg(long)]
    any_catalog: bool,
    /// No configuration
    #[arg(long, conflicts_with_all = ["config", "set"])]
    no_config: bool,
    /// Write the objects as the controller itself
    #[arg(long, conflicts_with = "service_account")]
    no_service_account: bool,
    #[command(flatten)]
    spec: SpecFlags,
    #[command(flatten)]
    change: Change,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    cache: Cache,
    #[command(flatten)]
    cluster: Cluster,
}

impl Arguments {
    /// The change of one extension. `newer` is the version that `--outdated` takes.
    fn patch(
        &self,
        config: Option<&Map<String, Value>>,
        newer: Option<&str>,
    ) -> Result<SpecPatch, CommandError> {
        let mut patch = self.spec.patch(config)?;
        let catalog = |field: &'static str| ["source", "catalog", field];
        if self.any_version {
            patch.set(&catalog("version"), Value::Null);
            patch.record("version range removed");
        } else if let Some(range) = newer {
            patch.set(&catalog("version"), range);
            patch.record(format!("version range set to {range}"));
        }
        if self.any_channel {
            patch.set(&catalog("channels"), Value::Null);
            patch.record("channels removed");
        }
        if self.any_catalog {
            patch.set(&catalog("selector"), Value::Null);
            patch.record("catalog removed");
        }
        if self.no_config {
            patch.set(&["config"], Value::Null);
            patch.record("configuration removed");
        }
        if self.no_service_account {
            patch.set(&["serviceAccount"], Value::Null);
            patch.record("service account removed");
        }
        let goes_elsewhere = self.spec.version.is_some()
            || !self.spec.channel.is_empty()
            || self.any_version
            || self.any_channel
            || newer.is_some();
        if goes_elsewhere && self.spec.policy.is_none() {
            patch.set(&catalog("upgradeConstraintPolicy"), "CatalogProvided");
        }
        Ok(patch)
    }
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    if !arguments.outdated && arguments.patch(None, None)?.changes.is_empty() {
        let name = arguments.name.as_deref().unwrap_or("NAME");
        return Err(CommandError::Usage(format!(
            "there is nothing to change: give --version RANGE, --any-version, --channel NAME or another field; `kubectl olm explain {name}` \
             shows what is possible"
        )));
    }
    let client = arguments.cluster.client().await?;
    if let Some(name) = &arguments.name {
        let extension = extensions::named(&client, name).await?;
        return upgrade_one(arguments, &client, &extension, None).await;
    }
    let chosen = if arguments.outdated {
        let sources = Sources::of_cluster(&arguments.cluster, &Registry::default(), &arguments.cache);
        let rows = list::rows(&client, arguments.controller, &sources).await?;
        rows.into_iter().filter(Row::is_outdated).map(|row| (row.name.clone(), row.newer_range())).collect()
    } else {
        let all = extensions::all(&client).await?;
        all.iter().map(|extension| (extension.name_any(), None)).collect::<Vec<_>>()
    };
    let mut whole = CommandOutput { text: String::new(), yes: true };
    for (name, newer) in chosen {
        let extension = extensions::named(&client, &name).await?;
        if is_paused(&extension) {
            print_note(&format!(
                "skipped clusterextension/{name}: it is paused; `kubectl olm resume {name}` ends that"
            ));
            continue;
        }
        let output = upgrade_one(arguments, &client, &extension, newer.as_deref()).await?;
        whole.text.push_str(&output.text);
        whole.yes &= output.yes;
    }
    if whole.text.is_empty() {
        print_note(if arguments.outdated {
            "nothing is outdated"
        } else {
            "there are no ClusterExtensions to change"
        });
    }
    Ok(whole)
}

async fn upgrade_one(
    arguments: &Arguments,
    client: &kube::Client,
    extension: &ClusterExtension,
    newer: Option<&str>,
) -> Result<CommandOutput, CommandError> {
    let config = extension.spec.config.as_ref().and_then(|config| config.inline.as_ref());
    let patch = arguments.patch(config, newer)?;
    let name = extension.name_any();
    if !arguments.change.is_client_only() {
        print_notices(arguments, client, extension, &patch).await;
    }
    // it follows to the newer version by itself
    let change = if patch.changes.is_empty() { "unchanged".to_owned() } else { patch.changes.join(", ") };
    let what = format!("clusterextension/{name}: {change}");
    let undo = format!("`kubectl olm rollback {name}`");
    arguments.change.edit(client, extension, json!({"spec": patch.spec}), (&what, &undo)).await
}

/// Prints what is remarkable about the version that the change leads to. Nothing if it cannot be found out: the change does not depend on
/// it.
async fn print_notices(
    arguments: &Arguments,
    client: &kube::Client,
    extension: &ClusterExtension,
    patch: &SpecPatch,
) {
    let mut edited = extension.clone();
    let mut spec = json!(extension.spec);
    json_patch::merge(&mut spec, &patch.spec);
    match serde_json::from_value(spec) {
        Ok(spec) => edited.spec = spec,
        // the apiserver rejects it, with the reason
        Err(_) => return,
    }
    let decided = async {
        let all = extensions::revisions(client, Some(&extension.name_any())).await?;
        let states = revision::states(extensions::revisions_of(extension, &all));
        let sources = Sources::of_cluster(&arguments.cluster, &Registry::default(), &arguments.cache);
        decide(&edited, Some(states), None, arguments.controller, &sources).await
    };
    if let Ok(Ok(decided)) = tokio::time::timeout(DECIDE_TIMEOUT, decided).await {
        for notice in decided.explained.notices {
            print_note(&format!("note: {}: {}", notice.kind.label().to_lowercase(), notice.text));
        }
    }
}
