//! `upgrade`: another range of versions, channels, catalog, configuration or account, for one extension or several.

use clap::Args;
use kube::ResourceExt as _;
use olm_api::ClusterExtension;
use olm_install::account::Account;
use serde_json::{Map, Value, json};

use super::pause::is_paused;
use super::planned::{Planned, Purpose};
use super::spec::{SpecFlags, SpecPatch};
use super::{Change, Changed, Several, print_not_done};
use crate::CommandOutput;
use crate::cmd::list;
use crate::cmd::notices::NoticeKind;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::sources::{Cluster, Sources};

#[derive(Debug, Args)]
#[command(
    after_help = "With another version or channel the catalog's upgrade edges bind again, unless --policy is given. The plan of \
                  `kubectl olm plan` is made first: what the controller would refuse is not changed. `kubectl olm rollback` goes back.\n\n\
                  Examples:\n  kubectl olm upgrade my-extension --version '>=2.0.0 <3.0.0' --wait\n  \
                  kubectl olm upgrade my-extension --any-version\n  \
                  kubectl olm upgrade my-extension --version 2.x --channel fast --dry-run -o yaml\n  \
                  kubectl olm upgrade my-extension --any-channel --set watchNamespace=team-a\n  \
                  kubectl olm upgrade --outdated --wait\n  kubectl olm upgrade --outdated --major\n  kubectl olm upgrade --all --any-version\n\n\
                  Exit codes: 0 done, 1 the plan is refused, not Ready after --wait or no such extension, 2 bad input, 3 no answer."
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
    /// With --outdated, take new major versions too
    #[arg(long, requires = "outdated")]
    major: bool,
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
    planned: Planned,
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
        if let (Some(name), Ok(client)) = (&arguments.name, arguments.cluster.client().await)
            && let Err(failure @ CommandError::NotFound(_)) = extensions::named(&client, name).await
        {
            return Err(failure);
        }
        return Err(CommandError::Usage(format!(
            "there is nothing to change: give --version RANGE, --any-version, --channel NAME or another field; `kubectl olm explain {name}` \
             shows what is possible"
        )));
    }
    let client = arguments.cluster.client().await?;
    if let Some(name) = &arguments.name {
        let extension = extensions::named(&client, name).await?;
        let changed = upgrade_one(arguments, &client, &extension, None).await?;
        return Ok(arguments.change.edit.print(&changed));
    }
    let mut skipped = false;
    let mut nothing = "there are no ClusterExtensions to change";
    let chosen = if arguments.outdated {
        let planned = &arguments.planned;
        let sources = Sources::of_cluster(&arguments.cluster, &planned.registry, &planned.cache);
        let rows = list::rows(&client, planned.controller, &sources).await?;
        nothing = list::check_read(&rows)?;
        let outdated = rows.iter().filter(|row| row.is_outdated());
        let mut chosen = Vec::new();
        for row in outdated {
            if let Some(version) = row.new_major().filter(|_| !arguments.major) {
                print_note(&new_major(&row.name, version));
                skipped = true;
            } else {
                chosen.push((row.name.clone(), row.newer_range()));
            }
        }
        chosen
    } else {
        let all = extensions::all(&client).await?;
        all.iter().map(|extension| (extension.name_any(), None)).collect::<Vec<_>>()
    };
    let mut whole = Several::new();
    for (name, newer) in chosen {
        let upgraded = upgrade_or_skip(arguments, &client, &name, newer.as_deref()).await;
        let Some(upgraded) = upgraded.transpose() else {
            skipped = true;
            continue;
        };
        if !whole.add(&format!("{name}: "), upgraded) {
            break;
        }
    }
    if whole.is_empty() && !skipped {
        print_note(nothing);
    }
    whole.output(|all| arguments.change.edit.print_all(all))
}

/// Upgrades one of several; `None`: it is paused or being deleted, and is left as it is.
async fn upgrade_or_skip(
    arguments: &Arguments,
    client: &kube::Client,
    name: &str,
    newer: Option<&str>,
) -> Result<Option<Changed>, CommandError> {
    let extension = extensions::named(client, name).await?;
    if extensions::is_deleted(&extension) {
        print_note(&format!("skipped clusterextension/{name}: it is being deleted"));
        return Ok(None);
    }
    if is_paused(&extension) {
        print_note(&format!(
            "skipped clusterextension/{name}: it is paused; `kubectl olm resume {name}` ends that"
        ));
        return Ok(None);
    }
    upgrade_one(arguments, client, &extension, newer).await.map(Some)
}

/// The note about an extension whose newer version has another major version.
fn new_major(name: &str, version: &str) -> String {
    let plain = version.split('+').next().unwrap_or(version);
    format!("{name}: {version} is a new major version; kubectl olm upgrade {name} --version '^{plain}'")
}

/// Whether the change sets the policy SelfCertified back, which no flag asks for.
fn sets_policy_back(extension: &ClusterExtension, edited: &ClusterExtension) -> bool {
    let policy = |extension: &ClusterExtension| {
        json!(extension.spec.source.catalog.as_ref().map(|catalog| &catalog.upgrade_constraint_policy))
    };
    policy(extension) == "SelfCertified" && policy(edited) == "CatalogProvided"
}

async fn upgrade_one(
    arguments: &Arguments,
    client: &kube::Client,
    extension: &ClusterExtension,
    newer: Option<&str>,
) -> Result<Changed, CommandError> {
    extensions::refuse_deleted(extension)?;
    let config = extension.spec.config.as_ref().and_then(|config| config.inline.as_ref());
    let mut patch = arguments.patch(config, newer)?;
    let name = extension.name_any();
    let mut edited = extension.clone();
    let mut spec = json!(extension.spec);
    patch.replace_labels(&spec);
    json_patch::merge(&mut spec, &patch.spec);
    edited.spec = serde_json::from_value(spec).map_err(|error| CommandError::Usage(error.to_string()))?;
    if arguments.spec.policy.is_none() && sets_policy_back(extension, &edited) {
        patch.record("policy set back to CatalogProvided");
    }
    // it follows to the newer version by itself
    let change = if patch.changes.is_empty() { "unchanged".to_owned() } else { patch.changes.join(", ") };
    let what = format!("clusterextension/{name}: {change}");
    let account = Account::from_extension(extension);
    let purpose = Purpose {
        verb: "upgrade",
        dry_run: arguments.change.dry_run(),
        passed_over: None,
        prints: match arguments.spec.version {
            // the range is what the user asks for
            Some(_) => |notice| notice.kind != NoticeKind::OutOfRange,
            None => |_| true,
        },
    };
    let planned = (&edited, account.as_ref());
    match arguments.planned.check(client, &arguments.cluster, planned, purpose).await {
        Err(failure @ CommandError::NotFound(_)) if !arguments.change.writes() => {
            return Ok(arguments.change.refused_dry_run(&edited, &what, &failure));
        }
        checked => checked?,
    }
    let rollback = format!("`kubectl olm rollback {name}`");
    let changed =
        arguments.change.edit(client, extension, json!({"spec": patch.spec}), (&what, &rollback)).await?;
    if arguments.change.writes() && !changed.yes {
        print_not_done(client, (extension, &edited), None).await;
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upgrade_outdated_names_new_major_version() {
        let want = "a-op: 2.0.0+1 is a new major version; kubectl olm upgrade a-op --version '^2.0.0'";
        assert_eq!(new_major("a-op", "2.0.0+1"), want);
    }
}
