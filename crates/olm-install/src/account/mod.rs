//! The check that the ServiceAccount of an extension may write the objects of a revision before it is made.
//!
//! One message lists the missing rights, one rule a line; the [`roles`] that grant them are printed by `kubectl olm rbac`. Rule:
//! decisions 8 and 33.

mod granted;

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_core::{Object, ObjectKey, message};
use olm_rollout::permissions::{Granted, Needs, Right, Roles, Scope, Served, missing, needed, referenced};

use crate::resolution::{BundleFacts, Class, ExtensionRequest, PassError};

/// Rights that are checked with the apiserver; further ones count as missing.
const MAX_REVIEWS: usize = 64;

/// A service account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// Its namespace: that of the extension.
    pub namespace: String,
    pub name: String,
}

impl Account {
    /// The account that an extension names.
    #[must_use]
    pub fn from_extension(extension: &ClusterExtension) -> Option<Self> {
        let name = extension.spec.service_account.as_ref()?.name.clone()?;
        Some(Self { namespace: extension.spec.namespace.clone(), name })
    }

    /// The account that a request names.
    #[must_use]
    pub fn from_request(request: &ExtensionRequest) -> Option<Self> {
        Some(Self { namespace: request.namespace.clone(), name: request.service_account.clone()? })
    }

    /// The name by which the apiserver knows the account as a user.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// The groups that the apiserver gives to it.
    fn groups(&self) -> [String; 3] {
        [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{}", self.namespace),
            "system:authenticated".to_owned(),
        ]
    }

    /// Asks the apiserver whether the account exists.
    ///
    /// # Errors
    /// The apiserver's answer, if it is another one.
    pub async fn exists(&self, client: &Client) -> Result<bool, kube::Error> {
        let api: Api<ServiceAccount> = Api::namespaced(client.clone(), &self.namespace);
        Ok(api.get_metadata_opt(&self.name).await?.is_some())
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// All rights that writing and removing `objects` takes. A binding to a role that is not among them takes the verb `bind`.
#[must_use]
pub fn rights(objects: &[Object], served: impl Fn(&ObjectKey) -> Option<Served>) -> BTreeSet<(Scope, Right)> {
    missing(&needed(objects, served, |_| None), &Granted::default())
}

/// The roles that grant `rights` to the account of an extension. They have the same names for each of its bundles.
#[must_use]
pub fn roles(extension: &str, account: &Account, rights: &BTreeSet<(Scope, Right)>) -> Roles {
    Roles::new(&format!("{extension}-installer"), &account.namespace, &account.name, rights)
}

/// Checks that the account exists and may write `objects` of `bundle`. `served` has the objects whose kinds the cluster serves.
///
/// # Errors
/// With the text for the `Progressing` condition: rights are missing, or cannot be read.
pub async fn check(
    client: &Client,
    extension: &str,
    account: &Account,
    exists: bool,
    bundle: &BundleFacts,
    objects: &[Object],
    served: &HashMap<ObjectKey, Served>,
) -> Result<(), PassError> {
    let lacking = lacking(client, account, objects, served).await;
    let lacking = lacking.map_err(|error| unreadable(account, &error))?;
    if exists && lacking.is_empty() {
        return Ok(());
    }
    Err(PassError::new(Class::NeedsChange, text(extension, account, exists, bundle, &lacking)))
}

/// The rights of the account cannot be read.
#[must_use]
pub fn unreadable(account: &Account, error: &kube::Error) -> PassError {
    PassError::new(
        Class::Transient,
        format!("reading the rights of service account {account}: {}", olm_runtime::apply::message(error)),
    )
}

async fn lacking(
    client: &Client,
    account: &Account,
    objects: &[Object],
    served: &HashMap<ObjectKey, Served>,
) -> Result<BTreeSet<(Scope, Right)>, kube::Error> {
    let roles = granted::rules(client, referenced(objects)).await?;
    let needs = needed(objects, |key| served.get(key).cloned(), |role| roles.get(role).cloned());
    let mut has = granted::granted(client, account, &namespaces(&needs)).await?;
    let lacking = missing(&needs, &has);
    if lacking.is_empty() {
        return Ok(lacking);
    }
    let acting = olm_runtime::client::impersonating(client, &account.user());
    for (scope, right) in doubtful(&needs, &lacking, &has) {
        if allowed(&acting, &scope, &right).await? {
            has.allow(&scope, &right);
        }
    }
    Ok(missing(&needs, &has))
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

/// Rights that another authorizer than RBAC might grant: rights without alternative, and `escalate` or `bind`. The apiserver checks
/// rights that a role hands on by RBAC alone.
fn doubtful(needs: &Needs, lacking: &BTreeSet<(Scope, Right)>, has: &Granted) -> Vec<(Scope, Right)> {
    let plain = needs.rights.iter().filter(|right| lacking.contains(*right));
    let shortcuts =
        needs.handed.iter().map(|one| &one.shortcut).filter(|(scope, right)| !has.has(scope, right));
    plain.chain(shortcuts).take(MAX_REVIEWS).cloned().collect()
}

/// Checks the right with the apiserver as the account itself.
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
    match api.create(&PostParams::default(), &review).await {
        Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
        // without the right to impersonate, RBAC alone decides
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(false),
        Err(error) => Err(error),
    }
}

fn text(
    extension: &str,
    account: &Account,
    exists: bool,
    bundle: &BundleFacts,
    lacking: &BTreeSet<(Scope, Right)>,
) -> String {
    let first = match (exists, lacking.is_empty()) {
        (true, _) => {
            format!(
                "service account {account} lacks rights; run `kubectl olm rbac {extension} | kubectl apply -f -`"
            )
        }
        (false, true) => format!("service account {account} does not exist; create it"),
        (false, false) => format!(
            "service account {account} does not exist; create it, then apply `kubectl olm rbac {extension}`"
        ),
    };
    if lacking.is_empty() {
        return first;
    }
    let lines = roles(extension, account, lacking).lines();
    let about = format!("bundle {:?} with version {:?} needs:", bundle.name, bundle.version);
    message::with_counted(&first, std::iter::once(&about).chain(&lines).map(String::as_str), "rule")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_message_fits_with_long_names() {
        let long = |letter: &str| letter.repeat(40);
        let account = Account { namespace: long("n"), name: long("a") };
        let bundle = BundleFacts {
            package: long("p"),
            name: long("b"),
            version: "1.2.3".to_owned(),
            reference: "registry.example.com/bundle:v1".to_owned(),
            release: None,
        };
        let right = |at: usize| {
            let scope = Scope::Namespace(long("n"));
            (scope, Right::on("create", &long("g"), &long("r"), Some(&format!("{}{at:02}", long("o")))))
        };
        let names = [1, 2, 3, 4].map(|at| format!("\"{}{:02}\"", long("o"), at - 1)).join(", ");
        let rule =
            format!("{} {} {names} and 26 more: create in namespace {}", long("g"), long("r"), long("n"));
        let details = format!("\nbundle {:?} with version \"1.2.3\" needs:\n{rule}", long("b"));
        for (exists, rights, want) in [(true, 30, &details[..]), (false, 30, &details), (false, 0, "")] {
            let rights: BTreeSet<_> = (0..rights).map(right).collect();
            let text = text(&long("e"), &account, exists, &bundle, &rights);
            assert!(message::first_line(&text).chars().count() <= message::MAX_FIRST_LINE, "{text}");
            assert_eq!(&text[message::first_line(&text).len()..], want);
        }
        let kinds =
            |at: usize| (Scope::Cluster, Right::on("create", &format!("group-{at:02}"), "things", None));
        let text = text(&long("e"), &account, true, &bundle, &(0..30).map(kinds).collect());
        assert_eq!(text.lines().count(), 1 + message::MAX_DETAILS, "{text}");
        assert!(text.ends_with("\n… and 22 more rules"), "{text}");
    }
}
