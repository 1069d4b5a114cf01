//! `rbac`: the least roles with which a service account may install an extension's objects.

use std::collections::{BTreeSet, HashMap};

use clap::Args;
use kube::ResourceExt as _;
use olm_client::resolution::revision;
use olm_rollout::permissions::{Granted, Right, Roles, Scope, missing, needed};

use crate::Answer;
use crate::extensions;
use crate::failure::{Failure, wait};
use crate::live;
use crate::sources::Cluster;

#[derive(Debug, Args)]
#[command(
    after_help = "Rights that the package's own roles hand on are among them, so that nothing is escalated. Roles that a binding refers to \
                  and that are not part of the package take the verb bind.\n\n\
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
    /// A revision of `kubectl olm history` [default: the newest]
    #[arg(long, value_name = "NUMBER")]
    revision: Option<i64>,
    /// Allow the verbs on objects of any name, so that the next version may bring others
    #[arg(long)]
    any_name: bool,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    wait(async {
        let client = arguments.cluster.client().await?;
        let extension = extensions::named(&client, &arguments.name).await?;
        let name = extension.name_any();
        let named = extension.spec.service_account.as_ref().and_then(|account| account.name.clone());
        let account = arguments.service_account.clone().or(named).ok_or_else(|| {
            Failure::Usage(format!("{name} names no service account; give one with --service-account"))
        })?;
        let revisions = extensions::revisions(&client, Some(&name)).await?;
        let mut own = extensions::of(&extension, &revisions);
        let set = match arguments.revision {
            Some(number) => own.find(|set| set.spec.revision == number),
            None => own.filter(|set| revision::is_active(set)).last(),
        };
        let set = set.ok_or_else(|| {
            Failure::NotFound(format!(
                "{name} has no such revision; before the first one, its condition Progressing names the roles that are missing"
            ))
        })?;
        let objects = live::content(&client, set).await.map_err(Failure::Unreachable)?;
        let mut served = HashMap::new();
        for object in &objects {
            if let Some(found) = live::served(&client, object).await {
                served.insert(object.key(), found);
            }
        }
        let needs = needed(&objects, |key| served.get(key).cloned(), |_| None);
        let mut rights = missing(&needs, &Granted::default());
        if arguments.any_name {
            rights = rights
                .into_iter()
                .map(|(scope, right)| (scope, any_name(right)))
                .collect::<BTreeSet<(Scope, Right)>>();
        }
        let roles = Roles::new(&format!("{name}-installer"), &extension.spec.namespace, &account, &rights);
        Ok(Answer { text: roles.to_string(), yes: true })
    })
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
