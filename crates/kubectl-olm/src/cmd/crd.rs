//! `crd diff`: checks whether a changed CRD is safe for existing objects. For the CI of authors: every CRD of two files or
//! bundles.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Args, Subcommand};
use olm_core::Object;
use olm_crd_safety::{Comparison, Policy, Profile, compare};
use serde::Serialize;

use super::bundle::documents;
use super::output::{Form, rows};
use crate::CommandOutput;
use crate::bundle_source::BundleAccess;
use crate::failure::CommandError;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Compare an old CRD with its new form, or all CRDs of two files or bundles; exit code 1 when the change is dangerous
    #[command(
        after_help = "Exit codes: 0 the change is safe, 1 it is dangerous, 2 something cannot be read, 3 the registry gave no answer.\n\n\
                      Examples:\n  kubectl olm crd diff old/crd.yaml new/crd.yaml\n  \
                      kubectl olm crd diff quay.io/example/bundle:v1.0.0 ./bundle"
    )]
    Diff(Diff),
}

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The CRDs as they are in the cluster, or the bundle that is installed: a file, a bundle directory, or a bundle image
    #[arg(value_name = "FILE|DIR|IMAGE")]
    old: String,
    /// The CRDs as they shall become, or the bundle that is to be installed
    #[arg(value_name = "FILE|DIR|IMAGE")]
    new: String,
    /// Block everything that the Go reference blocks, harmless changes included
    #[arg(long)]
    parity: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    output: Form,
    #[command(flatten)]
    access: BundleAccess,
}

#[derive(Default, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "String::is_empty")]
    crd: String,
    place: String,
    path: String,
    check: &'static str,
    message: String,
    danger: &'static str,
    #[serde(rename = "mend")]
    fix: &'static str,
}

enum Side {
    One(Object),
    Several(BTreeMap<String, Object>),
}

pub(crate) async fn run(Verb::Diff(arguments): &Verb) -> Result<CommandOutput, CommandError> {
    let profile = if arguments.parity { Profile::Parity } else { Profile::Corrected };
    let found = match (side(arguments, &arguments.old).await?, side(arguments, &arguments.new).await?) {
        (Side::One(old), Side::One(new)) => findings("", &old, &new, profile),
        (old, new) => {
            let (old, new) = (all(old), all(new));
            let compared = old.iter().map(|(name, old)| match new.get(name) {
                Some(new) => findings(name, old, new, profile),
                None => vec![dropped(name)],
            });
            compared.flatten().collect()
        }
    };
    let text = rows(arguments.output, &found, |row| {
        let at = [&row.crd, &row.place, &row.path].into_iter().filter(|text| !text.is_empty());
        let at = at.cloned().collect::<Vec<_>>();
        let at = if at.is_empty() { String::new() } else { at.join(": ") + ": " };
        format!("{at}{}: {}\n  {}; {}", row.check, row.message, row.danger, row.fix)
    });
    Ok(CommandOutput { text, yes: found.is_empty() })
}

async fn side(arguments: &Diff, source: &str) -> Result<Side, CommandError> {
    let path = Path::new(source);
    if path.is_dir() || (!path.exists() && !source.starts_with(['/', '.']) && source.contains('/')) {
        let bundle = arguments.access.load(source).await?;
        let crds = bundle.crds.into_iter().map(|crd| (crd.name().to_owned(), crd));
        return Ok(Side::Several(crds.collect()));
    }
    let (mut crds, mut other) = (BTreeMap::new(), None);
    for document in documents(path)? {
        let object = Object::from_value(document).map_err(|error| CommandError::content(path, error))?;
        if object.kind() != "CustomResourceDefinition" {
            other = Some(object.kind().to_owned());
            continue;
        }
        let name = object.name().to_owned();
        if crds.insert(name.clone(), object).is_some() {
            let text = format!("CustomResourceDefinition {name:?} is in it twice");
            return Err(CommandError::content(path, text));
        }
    }
    match (crds.pop_first(), crds.is_empty()) {
        (None, _) => {
            let text = format!("kind is {:?}, not CustomResourceDefinition", other.unwrap_or_default());
            Err(CommandError::content(path, text))
        }
        (Some((_, only)), true) => Ok(Side::One(only)),
        (Some(first), false) => {
            crds.extend([first]);
            Ok(Side::Several(crds))
        }
    }
}

fn all(side: Side) -> BTreeMap<String, Object> {
    match side {
        Side::One(crd) => BTreeMap::from([(crd.name().to_owned(), crd)]),
        Side::Several(crds) => crds,
    }
}

fn findings(crd: &str, old: &Object, new: &Object, profile: Profile) -> Vec<Row> {
    let row = |finding: &olm_crd_safety::Finding| {
        let (place, path) = match &finding.comparison {
            Comparison::Crd => (String::new(), String::new()),
            Comparison::Version { version, path } => (version.clone(), path.clone()),
            Comparison::Served { pair, path } => (pair.clone(), path.clone()),
        };
        let (crd, check, message) = (crd.to_owned(), finding.check, finding.message.clone());
        Row { crd, place, path, check, message, danger: finding.danger(), fix: finding.fix() }
    };
    compare(old, new, Policy { profile }).iter().map(row).collect()
}

/// Rule: decision 28.
fn dropped(crd: &str) -> Row {
    Row {
        crd: crd.to_owned(),
        check: "dropped",
        message: "the new side does not have this CRD".to_owned(),
        danger: "deleting a CRD deletes its objects, so an upgrade is refused while there are any",
        fix: "keep the CRD until its objects are migrated",
        ..Row::default()
    }
}
