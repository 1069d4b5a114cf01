//! `rbac`: the least roles with which a service account may install an extension's objects.
//!
//! The objects are those of a revision; before there is one, those of the bundle that the controller would choose.

use std::collections::HashMap;

use clap::Args;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_core::Object;
use olm_install::issuer;
use olm_install::resolution::{Class, revision};
use olm_rollout::permissions::{Granted, Right, Roles, Served, missing, needed};

use super::why::decide;
use crate::CommandOutput;
use crate::bundle_source::BundleAccess;
use crate::extensions;
use crate::failure::{CommandError, print_note};
use crate::kinds::Kinds;
use crate::sources::{Controller, Rendering, Sources};

#[derive(Debug, Args)]
#[command(
    after_help = "Rights that the package's own roles hand on are among them, so that nothing is escalated. Bindings to roles that are not \
                  part of the package take the verb bind.\n\n\
                  Examples:\n  kubectl olm rbac my-extension | kubectl apply -f -\n  \
                  kubectl olm rbac my-extension --service-account installer --any-name\n\n\
                  Exit codes: 0 printed, 1 no such extension or revision, 2 bad input, 3 no answer."
)]
pub(crate) struct Arguments {
    /// The ClusterExtension
    name: String,
    /// The account [default: that of spec.serviceAccount]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// A revision of `kubectl olm history` [default: the newest; before the first one, the bundle that would be chosen]
    #[arg(long, value_name = "NUMBER")]
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
    let named = extension.spec.service_account.as_ref().and_then(|account| account.name.clone());
    let account = arguments.service_account.clone().or(named).ok_or_else(|| {
        CommandError::Usage(format!("{name} names no service account; give one with --service-account"))
    })?;
    let objects = objects(arguments, &client, &extension, &own).await?;
    let mut kinds = Kinds::new(&client);
    let mut served = HashMap::new();
    for object in &objects {
        let found = kinds.served(object).await;
        served.insert(object.key(), found.unwrap_or_else(|| guessed(object)));
    }
    let needs = needed(&objects, |key| served.get(key).cloned(), |_| None);
    let mut rights = missing(&needs, &Granted::default());
    if arguments.any_name {
        rights = rights.into_iter().map(|(scope, right)| (scope, any_name(right))).collect();
    }
    let roles = Roles::new(&format!("{name}-installer"), &extension.spec.namespace, &account, &rights);
    Ok(CommandOutput { text: roles.to_string(), yes: true })
}

async fn objects(
    arguments: &Arguments,
    client: &Client,
    extension: &ClusterExtension,
    own: &[ClusterObjectSet],
) -> Result<Vec<Object>, CommandError> {
    let name = &arguments.name;
    let set = match arguments.revision {
        Some(number) => Some(own.iter().find(|set| set.spec.revision == number).ok_or_else(|| {
            CommandError::NotFound(format!(
                "{name} has no revision {number}; see `kubectl olm history {name}`"
            ))
        })?),
        None => own.iter().rfind(|set| revision::is_active(set)),
    };
    if let Some(set) = set {
        return extensions::objects(client, set).await;
    }
    let (controller, sources) = (arguments.controller, &arguments.sources);
    let decided = decide(extension, Some(revision::states([])), None, controller, sources).await?;
    let (Some(chosen), Some(request)) = (decided.explained.chosen, decided.request) else {
        return Err(CommandError::NotFound(decided.explained.error.unwrap_or_default()));
    };
    print_note(&format!("{name} has no revision yet; reading {}", chosen.image));
    let settings = arguments.rendering.settings();
    let settled = settings.settled(issuer::recorded(extension));
    let access = BundleAccess::from_sources(sources);
    match access.render(client, settings, &request, &chosen.image, settled).await? {
        Ok(rendered) => Ok(rendered.objects),
        Err(error) if error.class == Class::Transient => Err(CommandError::Unreachable(error.message)),
        Err(error) => Err(CommandError::NotFound(format!("{}: {}", chosen.image, error.message))),
    }
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
