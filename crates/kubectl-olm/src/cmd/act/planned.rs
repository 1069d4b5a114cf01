//! The plan that `install`, `upgrade` and `rollback` make before they change anything.

use std::time::Duration;

use clap::Args;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use olm_api::ClusterExtension;
use olm_install::account::Account;

use super::{DryRun, interrupted, named};
use crate::cmd::notices::Notice;
use crate::cmd::plan::preview_of;
use crate::failure::{CommandError, print_note};
use crate::interrupt;
use crate::sources::{Cache, Cluster, Controller, Registry, Rendering, Sources};

/// The longest time for a plan; a registry that this machine cannot reach must not hold up a change.
const PLAN_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time for the plan of a dry run in the client, which may have no cluster.
const CLIENT_PLAN_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct Planned {
    /// Make no plan: change the extension even if the controller would refuse the change
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    pub(super) controller: Controller,
    #[command(flatten)]
    rendering: Rendering,
    #[command(flatten)]
    pub(super) registry: Registry,
    #[command(flatten)]
    pub(super) cache: Cache,
}

/// What a plan is made for.
#[derive(Clone, Copy)]
pub(crate) struct Purpose<'a> {
    pub(crate) verb: &'a str,
    pub(super) dry_run: DryRun,
    /// Errors that contain it do not count.
    pub(crate) passed_over: Option<&'a str>,
    /// The notices to print.
    pub(crate) prints: fn(&Notice) -> bool,
}

impl Planned {
    pub(crate) fn is_forced(&self) -> bool {
        self.force
    }

    /// Makes the plan of `extension` as it will be. What refuses it is an error; what cannot be planned from here is a note.
    pub(crate) async fn check(
        &self,
        client: &Client,
        cluster: &Cluster,
        (extension, account): (&ClusterExtension, Option<&Account>),
        purpose: Purpose<'_>,
    ) -> Result<(), CommandError> {
        if self.force {
            return Ok(());
        }
        let sources = Sources::of_cluster(cluster, &self.registry, &self.cache);
        let plan = preview_of(client, extension, account, (self.controller, self.rendering), &sources);
        let limit = if purpose.dry_run == DryRun::Client { CLIENT_PLAN_TIMEOUT } else { PLAN_TIMEOUT };
        let planned = tokio::select! {
            planned = tokio::time::timeout(limit, plan) => planned,
            () = interrupt::received() => return Err(interrupted(&named(extension))),
        };
        let preview = match planned {
            Ok(Ok(preview)) => preview,
            Ok(Err(failure)) => {
                print_note(&format!("note: no plan was made: {failure}"));
                return Ok(());
            }
            Err(_) => {
                print_note(&format!("note: no plan was made within {} s", limit.as_secs()));
                return Ok(());
            }
        };
        for notice in preview.notices.iter().filter(|notice| (purpose.prints)(notice)) {
            print_note(&notice.line());
        }
        let is_passed_over = |text: &String| purpose.passed_over.is_some_and(|over| text.contains(over));
        let refused: Vec<String> = preview.refused.into_iter().filter(|text| !is_passed_over(text)).collect();
        if refused.is_empty() {
            return Ok(());
        }
        let mut refused = with_hints(refused, extension, &sources).await;
        if !preview.unread.is_empty() {
            print_note(&format!("note: no plan was made: {}", preview.unread.join("; ")));
            return Ok(());
        }
        // without the right to list them, the findings have to do
        if let Ok(all) = Api::<ClusterExtension>::all(client.clone()).list(&ListParams::default()).await
            && let Some(owner) = owner_of_package(extension, &all.items)
        {
            refused.insert(0, owner);
        }
        Err(CommandError::NotFound(refused_text(purpose.verb, purpose.dry_run, &refused)))
    }
}

/// The other extension that has installed the package: its objects are why a second installation is refused.
fn owner_of_package(extension: &ClusterExtension, all: &[ClusterExtension]) -> Option<String> {
    let package = |it: &ClusterExtension| Some(it.spec.source.catalog.as_ref()?.package_name.clone());
    let (name, own) = (extension.name_any(), package(extension)?);
    let is_installed =
        |it: &&ClusterExtension| it.status.as_ref().is_some_and(|status| status.install.is_some());
    let owner = all
        .iter()
        .filter(is_installed)
        .find(|it| it.name_any() != name && package(it).as_ref() == Some(&own))?;
    let owner = owner.name_any();
    Some(format!(
        "ClusterExtension {owner} has installed the package {own} already; `kubectl olm upgrade {owner}` changes it"
    ))
}

/// The reasons; the one that no catalog has the package names similar ones.
async fn with_hints(
    mut refused: Vec<String>,
    extension: &ClusterExtension,
    sources: &Sources,
) -> Vec<String> {
    let Some(catalog) = &extension.spec.source.catalog else { return refused };
    if let Some(text) = refused.iter_mut().find(|text| text.contains("no bundles found for package "))
        && let Some(hint) = sources.package_hint(&catalog.package_name).await
    {
        text.push_str(&format!("; {hint}"));
    }
    refused
}

/// The error of a refused plan.
fn refused_text(verb: &str, dry_run: DryRun, refused: &[String]) -> String {
    let reasons: String = refused.iter().map(|text| format!("\n  {}", text.replace('\n', "\n  "))).collect();
    match dry_run {
        DryRun::None => {
            format!("{verb} would be refused, so nothing was changed; fix this, or use --force:{reasons}")
        }
        DryRun::Client | DryRun::Server => format!("{verb} would be refused:{reasons}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_plan_names_owner_of_package() {
        let extension = |name: &str, package: &str, installed: Option<&str>| -> ClusterExtension {
            let install =
                installed.map(|version| serde_json::json!({"bundle": {"name": "b", "version": version}}));
            serde_json::from_value(serde_json::json!({
                "apiVersion": olm_api::API_VERSION, "kind": "ClusterExtension", "metadata": {"name": name},
                "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": package}}},
                "status": {"conditions": [], "install": install},
            }))
            .unwrap()
        };
        let new = extension("a2", "p", None);
        let others = |other| vec![new.clone(), extension("a0", "q", Some("1.0.0")), other];
        assert_eq!(
            owner_of_package(&new, &others(extension("a1", "p", Some("1.0.0")))),
            Some("ClusterExtension a1 has installed the package p already; `kubectl olm upgrade a1` changes it".to_owned())
        );
        assert_eq!(owner_of_package(&new, &others(extension("a1", "p", None))), None);
        assert_eq!(owner_of_package(&new, &others(extension("a2", "p", Some("1.0.0")))), None);
    }

    #[test]
    fn refused_plan_names_reasons_and_remedy() {
        let refused = ["no bundle\nsee there".to_owned(), "Secret a/b: taken".to_owned()];
        let reasons = ":\n  no bundle\n  see there\n  Secret a/b: taken";
        for (dry_run, want) in [
            (DryRun::None, "install would be refused, so nothing was changed; fix this, or use --force"),
            (DryRun::Client, "install would be refused"),
        ] {
            assert_eq!(refused_text("install", dry_run, &refused), format!("{want}{reasons}"));
        }
    }
}
