//! `migrate reference`: what a cluster of the Go implementation needs before olm-rs works in it, and doing it.
//!
//! Extensions, catalogs and their objects are left alone: the controllers adopt them. Rules: catalogd §11.7, operator-controller §8
//! and appendix B, decisions 1, 14, 29 and 32.

mod apply;
mod crds;
mod extensions;
mod leases;
mod leftovers;

use clap::{Args, Subcommand};
use kube::Client;
use serde::Serialize;

use self::crds::CrdChange;
use self::extensions::ExtensionRow;
use self::leases::LeaseRow;
use self::leftovers::Leftover;
use super::output::{Output, Table, counted, or_dash};
use crate::CommandOutput;
use crate::failure::CommandError;
use crate::sources::{Controller, Sources};

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Migrate a cluster from the Go implementation of OLM v1
    #[command(subcommand)]
    Reference(ReferenceVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReferenceVerb {
    /// Show what the migration changes, what is adopted, and how to go back
    ///
    /// Nothing is changed. Run it while the Go implementation still serves its catalogs: without them the next major versions are not known.
    #[command(
        after_help = "Examples:\n  kubectl olm migrate reference plan\n  kubectl olm migrate reference plan -o json\n\n\
                      Exit codes: 0 nothing is left to do, 1 `apply` has something to do, 2 bad input, 3 no answer."
    )]
    Plan(Box<Plan>),
    /// Remove the webhook and the policy of the Go implementation, and take its CustomResourceDefinitions over
    ///
    /// Refuses while controllers of the Go implementation hold their leases. What is removed is written to a file first.
    #[command(
        after_help = "Examples:\n  kubectl olm migrate reference apply\n  kubectl olm migrate reference apply --backup removed.yaml\n\n\
                      Exit codes: 0 done, 2 refused or bad input, 3 no answer."
    )]
    Apply(Box<apply::Apply>),
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    sources: Sources,
}

pub(crate) async fn run(Verb::Reference(verb): &Verb) -> Result<CommandOutput, CommandError> {
    match verb {
        ReferenceVerb::Plan(arguments) => plan(arguments).await,
        ReferenceVerb::Apply(arguments) => apply::run(arguments).await,
    }
}

/// What `apply` does.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changes {
    leases: Vec<LeaseRow>,
    /// Objects that are removed.
    removed: Vec<Leftover>,
    custom_resource_definitions: Vec<CrdChange>,
}

/// What `plan` prints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Migration {
    #[serde(flatten)]
    changes: Changes,
    extensions: Vec<ExtensionRow>,
}

impl Changes {
    async fn read(client: &Client) -> Result<Self, CommandError> {
        Ok(Self {
            leases: leases::read(client).await?,
            removed: leftovers::read(client).await?,
            custom_resource_definitions: crds::read(client).await?,
        })
    }

    /// Whether nothing is left to do.
    fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.custom_resource_definitions.iter().all(CrdChange::is_none)
    }

    /// The leases that another implementation holds.
    fn held(&self) -> impl Iterator<Item = &LeaseRow> {
        self.leases.iter().filter(|lease| lease.is_held())
    }
}

async fn plan(Plan { output, controller, sources }: &Plan) -> Result<CommandOutput, CommandError> {
    let client = sources.cluster.client().await?;
    let changes = Changes::read(&client).await?;
    let extensions = extensions::read(&client, *controller, sources).await?;
    let migration = Migration { changes, extensions };
    let names = || migration.extensions.iter().map(|row| row.name.clone()).collect();
    let text = output.print(&migration, names, |_| text(&migration));
    Ok(CommandOutput { text, yes: migration.changes.is_empty() })
}

/// The rollback, after `apply`; `file` is where it wrote what it removed.
fn rollback_hint(file: &str) -> String {
    format!(
        "Rollback: scale the Deployments of olm-rs to 0, `kubectl apply --server-side -f {file}`, then apply the manifests of the Go \
         implementation with --server-side --force-conflicts. An extension that olm-rs has adopted or upgraded needs its feature gate \
         BoxcutterRuntime: revisions keep its format, and its Helm runtime does not read them."
    )
}

fn text(migration: &Migration) -> String {
    let Migration { changes, extensions } = migration;
    let mut parts = vec![heading("Leases", &leases::table(&changes.leases), "there are none")];
    let mut table = Table::new(["ACTION", "KIND", "NAME", "WHY"]);
    for leftover in &changes.removed {
        let (kind, name) = (leftover.kind.to_owned(), leftover.name.to_owned());
        table.row(["remove".to_owned(), kind, name, leftover.why.to_owned()]);
    }
    for crd in changes.custom_resource_definitions.iter().filter(|crd| !crd.is_none()) {
        table.row([
            crd.verb().to_owned(),
            "CustomResourceDefinition".to_owned(),
            crd.name.clone(),
            crd.why(),
        ]);
    }
    parts.push(heading("Changes", &table.text(""), "nothing is left to do"));
    let mut table = Table::new(["NAME", "PACKAGE", "VERSION", "ADOPTED FROM", "NEXT MAJOR VERSION"]);
    for row in extensions {
        table.row([
            row.name.clone(),
            or_dash(&row.package),
            or_dash(row.version.as_deref().unwrap_or_default()),
            row.origin(),
            row.next_major(),
        ]);
    }
    parts.push(heading("Extensions", &table.text(""), "there are none"));
    let held = changes.held().count();
    if held > 0 {
        parts.push(format!(
            "`apply` refuses while the Go implementation holds {}: {}\n",
            counted(held, "lease"),
            leases::STOP
        ));
    }
    if !changes.is_empty() {
        parts.push(rollback_hint("FILE") + "\n");
    }
    parts.join("\n")
}

fn heading(title: &str, table: &str, none: &str) -> String {
    match table {
        "" => format!("{title}: {none}\n"),
        table => format!("{title}\n{table}"),
    }
}
