//! The rules that RBAC grants to an account, read from bindings and roles; nothing is cached.
//!
//! Cost: one listing of ClusterRoleBindings, one of RoleBindings for each namespace that counts, and one request for each
//! role that is bound to the account.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use olm_rollout::permissions::{self, Granted, Rule};
use serde::de::DeserializeOwned;

use super::Account;

/// Bindings in one answer.
const PAGE: u32 = 500;

/// What the account may do in the cluster and in `namespaces`.
pub(super) async fn granted(
    client: &Client,
    account: &Account,
    namespaces: &BTreeSet<String>,
) -> Result<Granted, kube::Error> {
    let mut roles = Roles { client, known: BTreeMap::new() };
    let mut granted = Granted::default();
    for binding in all(&Api::<ClusterRoleBinding>::all(client.clone())).await? {
        if is_about(binding.subjects.as_deref(), account, "") {
            granted.cluster.extend(roles.rules(&reference(&binding.role_ref, "")).await?.unwrap_or_default());
        }
    }
    for namespace in namespaces {
        let mut rules = Vec::new();
        for binding in all(&Api::<RoleBinding>::namespaced(client.clone(), namespace)).await? {
            if is_about(binding.subjects.as_deref(), account, namespace) {
                let role = reference(&binding.role_ref, namespace);
                rules.extend(roles.rules(&role).await?.unwrap_or_default());
            }
        }
        granted.namespaces.insert(namespace.clone(), rules);
    }
    Ok(granted)
}

/// The rules of the roles that exist.
pub(super) async fn rules(
    client: &Client,
    references: BTreeSet<permissions::RoleRef>,
) -> Result<BTreeMap<permissions::RoleRef, Vec<Rule>>, kube::Error> {
    let mut roles = Roles { client, known: BTreeMap::new() };
    for reference in &references {
        roles.rules(reference).await?;
    }
    let known = roles.known.into_iter();
    Ok(known.filter_map(|(reference, rules)| Some((reference, rules?))).collect())
}

struct Roles<'a> {
    client: &'a Client,
    known: BTreeMap<permissions::RoleRef, Option<Vec<Rule>>>,
}

impl Roles<'_> {
    async fn rules(&mut self, reference: &permissions::RoleRef) -> Result<Option<Vec<Rule>>, kube::Error> {
        if let Some(known) = self.known.get(reference) {
            return Ok(known.clone());
        }
        let rules = match &reference.namespace {
            Some(namespace) => {
                let api: Api<Role> = Api::namespaced(self.client.clone(), namespace);
                api.get_opt(&reference.name).await?.map(|role| role.rules.unwrap_or_default())
            }
            None => {
                let api: Api<ClusterRole> = Api::all(self.client.clone());
                api.get_opt(&reference.name).await?.map(|role| role.rules.unwrap_or_default())
            }
        };
        let rules = rules.map(|rules| rules.into_iter().map(rule).collect::<Vec<_>>());
        self.known.insert(reference.clone(), rules.clone());
        Ok(rules)
    }
}

fn rule(found: PolicyRule) -> Rule {
    Rule {
        groups: found.api_groups.unwrap_or_default(),
        resources: found.resources.unwrap_or_default(),
        names: found.resource_names.unwrap_or_default(),
        urls: found.non_resource_urls.unwrap_or_default(),
        verbs: found.verbs,
    }
}

fn reference(found: &RoleRef, namespace: &str) -> permissions::RoleRef {
    let namespace = (found.kind == "Role").then(|| namespace.to_owned());
    permissions::RoleRef { namespace, name: found.name.clone() }
}

/// Whether a binding in `namespace` is about the account: by name, as a user, or through a group.
fn is_about(subjects: Option<&[Subject]>, account: &Account, namespace: &str) -> bool {
    subjects.unwrap_or_default().iter().any(|subject| match subject.kind.as_str() {
        "ServiceAccount" => {
            let of = subject.namespace.as_deref().unwrap_or(namespace);
            of == account.namespace && subject.name == account.name
        }
        "User" => subject.name == account.user(),
        "Group" => account.groups().contains(&subject.name),
        _ => false,
    })
}

async fn all<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        found.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_of_a_binding_by_subject() {
        let account = Account { namespace: "ns".to_owned(), name: "me".to_owned() };
        let subject = |kind: &str, name: &str, namespace: Option<&str>| Subject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
            api_group: None,
        };
        for (subject, want) in [
            (subject("ServiceAccount", "me", Some("ns")), true),
            (subject("ServiceAccount", "me", Some("other")), false),
            (subject("ServiceAccount", "me", None), true),
            (subject("ServiceAccount", "you", Some("ns")), false),
            (subject("User", "system:serviceaccount:ns:me", None), true),
            (subject("User", "me", None), false),
            (subject("Group", "system:serviceaccounts:ns", None), true),
            (subject("Group", "system:serviceaccounts", None), true),
            (subject("Group", "system:authenticated", None), true),
            (subject("Group", "system:masters", None), false),
        ] {
            assert_eq!(is_about(Some(std::slice::from_ref(&subject)), &account, "ns"), want, "{subject:?}");
        }
        assert!(!is_about(None, &account, "ns"));
    }
}
