//! `rbac`: the least roles with which a service account may install an extension's objects.
//!
//! The objects are those of the bundle that the controller would install now, by the same plan as `kubectl olm plan`; if there is none, those
//! of the newest revision.

use std::collections::{BTreeSet, HashMap};

use clap::Args;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use olm_api::{ClusterExtension, ClusterObjectSet, annotations};
use olm_core::Object;
use olm_core::message::first_line;
use olm_install::account::{self, Account};
use olm_install::plan::{Change, Plan};
use olm_install::resolution::revision;
use olm_rollout::permissions::{Right, Served};

use super::plan::{Made, made};
use crate::CommandOutput;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::kinds::Kinds;
use crate::rights::in_words;
use crate::sources::{Controller, Rendering, Sources};

#[derive(Debug, Args)]
#[command(
    after_help = "Rights that the package's own roles hand on are among them, so that nothing is escalated. Bindings to roles that are not \
                  part of the package take the verb bind.\n\n\
                  Examples:\n  kubectl olm rbac my-extension | kubectl apply -f -\n  \
                  kubectl olm rbac my-extension --service-account installer --any-name\n\n\
                  What the roles are for is printed on standard error: the revision that `kubectl olm plan` shows, with those that are in force \
                  until it has succeeded; or the newest revision, if nothing is next, no catalog can be read, or the extension is being deleted.\n\n\
                  Exit codes: 0 printed, 1 no such extension or revision, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// The account [default: that of spec.serviceAccount]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// A revision of `kubectl olm history` [default: what would be installed now, or the newest]
    #[arg(long, value_name = "NUMBER", value_parser = extensions::revision_number)]
    revision: Option<i64>,
    /// Allow the verbs on objects of any name, so that the next version may bring others
    #[arg(long)]
    any_name: bool,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    rendering: Rendering,
    #[command(flatten)]
    sources: Sources,
}

pub(crate) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let name = &arguments.name;
    let (client, extension, own) = extensions::with_revisions(&arguments.sources.cluster, name).await?;
    let given = arguments.service_account.clone();
    let given = given.map(|name| Account { namespace: extension.spec.namespace.clone(), name });
    let account = given.or_else(|| Account::from_extension(&extension)).ok_or_else(|| {
        CommandError::Usage(format!("{name} names no service account; give one with --service-account"))
    })?;
    let objects = objects(arguments, &client, &extension, &own).await?;
    let mut kinds = Kinds::new(&client);
    let (mut served, mut notes) = (HashMap::new(), BTreeSet::new());
    for object in &objects {
        let found = kinds.served(object).await.unwrap_or_else(|why| {
            notes.insert(format!("{}; it is guessed", in_words(&why)));
            None
        });
        served.insert(object.key(), found.unwrap_or_else(|| guessed(object)));
    }
    for note in &notes {
        print_note(note);
    }
    let mut rights = account::rights(&objects, |key| served.get(key).cloned());
    if arguments.any_name {
        rights = rights.into_iter().map(|(scope, right)| (scope, any_name(right))).collect();
    }
    let roles = account::roles(name, &account, &rights);
    Ok(CommandOutput { text: roles.to_string(), yes: true })
}

/// The objects that the account has to write: of the revision that was asked for, or of the plan's.
async fn objects(
    arguments: &Arguments,
    client: &Client,
    extension: &ClusterExtension,
    own: &[ClusterObjectSet],
) -> Result<Vec<Object>, CommandError> {
    let name = &arguments.name;
    if let Some(number) = arguments.revision {
        let set = own.iter().find(|set| set.spec.revision == number).ok_or_else(|| {
            CommandError::NotFound(format!(
                "{name} has no revision {number}; see `kubectl olm history {name}`"
            ))
        })?;
        return extensions::objects(client, set).await;
    }
    if extension.metadata.deletion_timestamp.is_some()
        && let Some(newest) = revision::newest(own)
    {
        print_note(&format!("roles for revision {}, which is being removed", newest.spec.revision));
        return extensions::objects(client, newest).await;
    }
    let active: Vec<&ClusterObjectSet> = own.iter().filter(|set| revision::is_active(set)).collect();
    let mut extension = extension.clone();
    if active.is_empty() {
        // what it installs when it is resumed
        extension.annotations_mut().remove(annotations::PAUSED);
    }
    let account = Account::from_extension(&extension);
    let flags = (arguments.controller, arguments.rendering);
    let made = made(client, &extension, account.as_ref(), flags, &arguments.sources).await;
    let reason = match made {
        Ok(Made { plan: Some(Plan { change: Change::Create(new), .. }), .. }) => {
            let set = &new.revision.set;
            let bundle = revision::facts(set).bundle;
            print_note(&format!("roles for revision {}, {}, which is next", set.spec.revision, bundle.name));
            let mut objects: Vec<Object> = new.phases.into_iter().flat_map(|phase| phase.objects).collect();
            // until the new revision has succeeded, the account writes those of its predecessors, and deletes what it drops
            for set in active {
                objects.extend(extensions::objects(client, set).await?);
            }
            return Ok(objects);
        }
        Ok(Made { plan: Some(_), preview, .. }) if preview.unread.is_empty() => "nothing is next".to_owned(),
        Ok(Made { plan: Some(_), .. }) => "catalogs cannot be read".to_owned(),
        Ok(Made { preview, .. }) if active.is_empty() => {
            let text = preview.refused.join("; ");
            return Err(match preview.is_unanswered {
                true => CommandError::Unreachable(text),
                false => CommandError::NotFound(text),
            });
        }
        Ok(Made { preview, .. }) => first_line(&preview.refused.join("; ")).to_owned(),
        Err(error) if active.is_empty() => return Err(error),
        Err(error) => first_line(&error.to_string()).to_owned(),
    };
    let Some(newest) = revision::newest(&active) else {
        return Err(CommandError::NotFound(format!("{name} has no revision, and {reason}")));
    };
    let bundle = revision::facts(newest).bundle;
    print_note(&format!("roles for revision {}, {}: {reason}", newest.spec.revision, bundle.name));
    extensions::objects(client, newest).await
}

/// A kind that the cluster does not serve yet, as kinds are mostly named.
fn guessed(object: &Object) -> Served {
    let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
    Served { plural: ApiResource::from_gvk(&kind).plural, namespaced: object.namespace().is_some() }
}

/// The right on objects of any name. `escalate` and `bind` keep theirs: without a name they are rights on every role.
fn any_name(right: Right) -> Right {
    match right {
        Right::Resource { group, resource, verb, name } => {
            let name = name.filter(|_| verb == "bind" || verb == "escalate");
            Right::Resource { group, resource, name, verb }
        }
        url @ Right::Url { .. } => url,
    }
}
