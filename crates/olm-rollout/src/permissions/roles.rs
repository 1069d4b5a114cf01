//! Single rights as the fewest readable rules, and these as roles and bindings ready to apply.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::json;

use super::{Right, Rule, Scope};

/// A key of [`compact`]'s folding: everything but the list that is folded.
type Folded<K, V> = BTreeMap<K, BTreeSet<V>>;

/// The rights of one scope as rules: verbs that go together are one rule, then names, then resources.
#[must_use]
pub fn compact<'a>(rights: impl IntoIterator<Item = &'a Right>) -> Vec<Rule> {
    let mut verbs: Folded<(String, String, Option<String>), String> = BTreeMap::new();
    let mut paths: Folded<String, String> = BTreeMap::new();
    for right in rights {
        match right.clone() {
            Right::Resource { group, resource, name, verb } => {
                verbs.entry((group, resource, name)).or_default().insert(verb);
            }
            Right::Url { path, verb } => {
                paths.entry(path).or_default().insert(verb);
            }
        }
    }
    let mut names: Folded<(String, String, BTreeSet<String>, bool), String> = BTreeMap::new();
    for ((group, resource, name), verbs) in verbs {
        let all = name.is_none();
        names.entry((group, resource, verbs, all)).or_default().extend(name);
    }
    let mut resources: Folded<(String, BTreeSet<String>, BTreeSet<String>), String> = BTreeMap::new();
    for ((group, resource, verbs, _), names) in names {
        resources.entry((group, verbs, names)).or_default().insert(resource);
    }
    let list = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
    let mut rules: Vec<Rule> = resources
        .into_iter()
        .map(|((group, verbs, names), resources)| Rule {
            groups: vec![group],
            resources: list(resources),
            names: list(names),
            verbs: list(verbs),
            urls: Vec::new(),
        })
        .collect();
    let mut urls: Folded<BTreeSet<String>, String> = BTreeMap::new();
    for (path, verbs) in paths {
        urls.entry(verbs).or_default().insert(path);
    }
    rules.extend(urls.into_iter().map(|(verbs, paths)| Rule {
        urls: list(paths),
        verbs: list(verbs),
        ..Rule::default()
    }));
    rules
}

/// Roles that grant rights to a service account, with their bindings. Displayed as a stream of YAML documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    /// Name of each role and binding.
    pub name: String,
    /// Namespace of the account.
    pub namespace: String,
    pub account: String,
    /// What is granted, where.
    pub rules: Vec<(Scope, Vec<Rule>)>,
}

impl Roles {
    /// Roles named `name` for the account, with exactly these rights.
    #[must_use]
    pub fn new(name: &str, namespace: &str, account: &str, rights: &BTreeSet<(Scope, Right)>) -> Self {
        let mut scopes: BTreeMap<&Scope, Vec<&Right>> = BTreeMap::new();
        for (scope, right) in rights {
            scopes.entry(scope).or_default().push(right);
        }
        let rules = scopes.into_iter().map(|(scope, rights)| (scope.clone(), compact(rights))).collect();
        Self { name: name.to_owned(), namespace: namespace.to_owned(), account: account.to_owned(), rules }
    }

    /// The rules in words, one a line: `apps deployments: create, patch in namespace x`.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let line = |scope: &Scope, rule: &Rule| match scope {
            Scope::Cluster => format!("{rule} in the cluster"),
            Scope::Namespace(namespace) => format!("{rule} in namespace {namespace}"),
        };
        self.rules.iter().flat_map(|(scope, rules)| rules.iter().map(move |rule| line(scope, rule))).collect()
    }
}

impl std::fmt::Display for Roles {
    /// Block style down to the rules, one rule a line: it is read by people and by `kubectl apply -f -`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (scope, rules)) in self.rules.iter().enumerate() {
            let (role, binding, namespace) = match scope {
                Scope::Cluster => ("ClusterRole", "ClusterRoleBinding", None),
                Scope::Namespace(namespace) => ("Role", "RoleBinding", Some(namespace)),
            };
            let mut metadata = json!({"name": self.name});
            if let Some(namespace) = namespace {
                metadata["namespace"] = json!(namespace);
            }
            let mut listed = String::new();
            for rule in rules {
                writeln!(listed, "- {}", rule.to_value())?;
            }
            let start = if at == 0 { "" } else { "---\n" };
            write!(
                f,
                "{start}apiVersion: rbac.authorization.k8s.io/v1\nkind: {role}\nmetadata: {metadata}\nrules:\n{listed}---\n\
                 apiVersion: rbac.authorization.k8s.io/v1\nkind: {binding}\nmetadata: {metadata}\n\
                 roleRef: {}\nsubjects:\n- {}\n",
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": self.name}),
                json!({"kind": "ServiceAccount", "name": self.account, "namespace": self.namespace}),
            )?;
        }
        Ok(())
    }
}
