//! The preflight: may the account write the objects of the revision that is about to be made?
//!
//! One message lists everything that is missing, as roles ready to apply. Rule: decision 8.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_core::{Object, ObjectKey};
use olm_rollout::permissions::{Granted, Needs, Right, Roles, Scope, Served, missing, needed, referenced};

use super::{Account, Accounts, Mode, granted};
use crate::kinds::KindError;
use olm_install::resolution::{Class, Failure, Wish};

/// Rights about which the apiserver is asked, at most, before they count as missing.
const ASKED: usize = 64;
/// Most bytes of roles in a condition.
const SHOWN: usize = 16 * 1024;

impl Accounts {
    /// Whether the objects may be written as the account that the extension names, or as the controller.
    ///
    /// # Errors
    /// With the text for the `Progressing` condition; the extension is looked at again when rights change.
    pub async fn check(&self, wish: &Wish, objects: &[Object]) -> Result<(), Failure> {
        let Some(name) = &wish.service_account else {
            self.rights.settled(&wish.name);
            return match self.mode {
                Mode::Impersonate | Mode::Ignore => Ok(()),
                Mode::Require => Err(Failure::new(
                    Class::NeedsChange,
                    "spec.serviceAccount is not set, and this cluster installs nothing without one; name an account in \
                     spec.serviceAccount.name that may write the objects of the package",
                )),
            };
        };
        if self.mode == Mode::Ignore {
            return Ok(());
        }
        let account = Account { namespace: wish.namespace.clone(), name: name.clone() };
        // before anything is read, so that no change is missed while others wait too
        self.rights.wait(&wish.name);
        let failed = |error: kube::Error| {
            Failure::new(
                Class::Transient,
                format!("reading the rights of service account {account}: {error}"),
            )
        };
        let exists = self.look(&account).await.map_err(failed)?;
        let lacking = self.lacking(&account, objects).await.map_err(failed)?;
        if exists && lacking.is_empty() {
            self.rights.settled(&wish.name);
            return Ok(());
        }
        self.rights.watch();
        Err(Failure::new(Class::NeedsChange, text(&wish.name, &account, exists, &lacking)))
    }

    async fn lacking(
        &self,
        account: &Account,
        objects: &[Object],
    ) -> Result<BTreeSet<(Scope, Right)>, kube::Error> {
        let served = self.served(objects).await?;
        let roles = granted::rules(&self.client, referenced(objects)).await?;
        let needs = needed(objects, |key| served.get(key).cloned(), |role| roles.get(role).cloned());
        let mut has = granted::granted(&self.client, account, &namespaces(&needs)).await?;
        let lacking = missing(&needs, &has);
        if lacking.is_empty() {
            return Ok(lacking);
        }
        let acting = olm_runtime::client::impersonating(&self.client, &account.user());
        for (scope, right) in doubtful(&needs, &lacking, &has) {
            if allowed(&acting, &scope, &right).await? {
                has.allow(&scope, &right);
            }
        }
        Ok(missing(&needs, &has))
    }

    /// How the cluster serves the kinds of the objects; those that it does not serve are left out.
    async fn served(&self, objects: &[Object]) -> Result<HashMap<ObjectKey, Served>, kube::Error> {
        let mut served = HashMap::new();
        for object in objects {
            let key = object.key();
            let kind = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
            match self.kinds.find(&kind).await {
                Ok(found) => {
                    served
                        .insert(key, Served { plural: found.resource.plural, namespaced: found.namespaced });
                }
                Err(KindError::NoMatch { .. }) => {}
                Err(KindError::Unreachable(error)) => return Err(kube::Error::Service(error.into())),
            }
        }
        Ok(served)
    }
}

fn namespaces(needs: &Needs) -> BTreeSet<String> {
    let scopes = needs.rights.iter().map(|(scope, _)| scope).chain(needs.handed.iter().map(|one| &one.scope));
    scopes
        .filter_map(|scope| match scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(namespace.clone()),
        })
        .collect()
}

/// What another authorizer than RBAC might grant: rights without alternative, and `escalate` or `bind`. Rights that are handed
/// on are judged by RBAC alone, in the apiserver too.
fn doubtful(needs: &Needs, lacking: &BTreeSet<(Scope, Right)>, has: &Granted) -> Vec<(Scope, Right)> {
    let plain = needs.rights.iter().filter(|right| lacking.contains(*right));
    let shortcuts =
        needs.handed.iter().map(|one| &one.shortcut).filter(|(scope, right)| !has.has(scope, right));
    plain.chain(shortcuts).take(ASKED).cloned().collect()
}

/// Asks the apiserver as the account itself.
async fn allowed(client: &Client, scope: &Scope, right: &Right) -> Result<bool, kube::Error> {
    let mut spec = SelfSubjectAccessReviewSpec::default();
    match right {
        Right::Resource { group, resource, name, verb } => {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, sub)) => (resource, Some(sub.to_owned())),
                None => (resource.as_str(), None),
            };
            spec.resource_attributes = Some(ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                name: name.clone(),
                verb: Some(verb.clone()),
                namespace: match scope {
                    Scope::Cluster => None,
                    Scope::Namespace(namespace) => Some(namespace.clone()),
                },
                ..ResourceAttributes::default()
            });
        }
        Right::Url { path, verb } => {
            spec.non_resource_attributes =
                Some(NonResourceAttributes { path: Some(path.clone()), verb: Some(verb.clone()) });
        }
    }
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn text(extension: &str, account: &Account, exists: bool, lacking: &BTreeSet<(Scope, Right)>) -> String {
    let absent = format!(
        "service account {:?} does not exist in namespace {:?}; create it",
        account.name, account.namespace
    );
    let Account { namespace, name } = account;
    let mut roles = Roles::new(&format!("{extension}-installer"), namespace, name, lacking).to_string();
    if roles.len() > SHOWN {
        let end = (0..=SHOWN).rev().find(|end| roles.is_char_boundary(*end)).unwrap_or_default();
        let end = roles[..end].rfind('\n').unwrap_or(end);
        roles.truncate(end);
        roles.push_str(&format!("\n# …and more; `kubectl olm rbac {extension}` prints all"));
    }
    match (exists, lacking.is_empty()) {
        (true, _) => format!(
            "service account {name:?} in namespace {namespace:?} lacks rights on the objects of this bundle; apply:\n{roles}"
        ),
        (false, true) => absent,
        (false, false) => format!("{absent}, and apply:\n{roles}"),
    }
}
