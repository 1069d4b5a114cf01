//! The rights that a revision's own roles and bindings grant, to whom, and which of them another revision did not grant.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::Object;
use serde_json::Value;

use super::{Granted, Right, Rule, Scope};

/// Rights by whom they are given to: `ServiceAccount demo/operator`, `Group x`, or `everyone with role admin` for roles that are
/// aggregated into another one. A binding to a role that is not among the objects counts as the verb `use` on that role's
/// rights, which are unknown here: the role is listed by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HandedOut {
    granted: BTreeMap<String, Granted>,
    foreign: BTreeSet<(String, Scope, String)>,
}

/// A grant that another revision did not make.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NewGrant {
    /// A single right.
    Right(Right),
    /// All of a role that is no part of the package: its kind and name.
    Role(String),
}

impl HandedOut {
    /// Reads the roles and bindings among `objects`.
    #[must_use]
    pub fn by(objects: &[Object]) -> Self {
        let is_rbac = |object: &&Object| object.group() == "rbac.authorization.k8s.io";
        let roles: BTreeMap<(String, String), Vec<Rule>> = objects
            .iter()
            .filter(is_rbac)
            .filter(|object| object.kind() == "Role" || object.kind() == "ClusterRole")
            .map(|role| {
                let namespace = if role.kind() == "Role" { role.namespace().unwrap_or_default() } else { "" };
                ((namespace.to_owned(), role.name().to_owned()), Rule::all(&role.to_value()))
            })
            .collect();
        let mut all = Self::default();
        for object in objects.iter().filter(is_rbac) {
            match object.kind() {
                "ClusterRoleBinding" => all.bind(object, Scope::Cluster, &roles),
                "RoleBinding" => {
                    let namespace = object.namespace().unwrap_or_default().to_owned();
                    all.bind(object, Scope::Namespace(namespace), &roles);
                }
                "ClusterRole" => all.aggregate(object),
                _ => {}
            }
        }
        all
    }

    fn bind(&mut self, binding: &Object, scope: Scope, roles: &BTreeMap<(String, String), Vec<Rule>>) {
        let value = binding.to_value();
        let text =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let reference = value.get("roleRef").cloned().unwrap_or_default();
        let (kind, role) = (text(&reference, "kind"), text(&reference, "name"));
        let place = match (&scope, kind.as_str()) {
            (Scope::Namespace(namespace), "Role") => namespace.clone(),
            _ => String::new(),
        };
        for subject in value.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            let (kind_of, name) = (text(subject, "kind"), text(subject, "name"));
            let namespace = text(subject, "namespace");
            let who = if namespace.is_empty() {
                format!("{kind_of} {name}")
            } else {
                format!("{kind_of} {namespace}/{name}")
            };
            match roles.get(&(place.clone(), role.clone())) {
                Some(rules) => self.grant(who, &scope, rules.clone()),
                None => {
                    self.foreign.insert((who, scope.clone(), format!("{kind} {role}")));
                }
            }
        }
    }

    fn aggregate(&mut self, role: &Object) {
        let rules = Rule::all(&role.to_value());
        for (label, value) in role.labels() {
            let into = label.strip_prefix("rbac.authorization.k8s.io/aggregate-to-");
            if let Some(into) = into.filter(|_| value == "true") {
                self.grant(format!("everyone with role {into}"), &Scope::Cluster, rules.clone());
            }
        }
    }

    fn grant(&mut self, who: String, scope: &Scope, rules: Vec<Rule>) {
        self.granted.entry(who).or_default().extend(scope, rules);
    }

    /// What this gives and `before` did not, by whom it is given to and where.
    #[must_use]
    pub fn beyond(&self, before: &Self) -> BTreeMap<(String, Scope), BTreeSet<NewGrant>> {
        let nothing = Granted::default();
        let mut new: BTreeMap<(String, Scope), BTreeSet<NewGrant>> = BTreeMap::new();
        for (who, granted) in &self.granted {
            let had = before.granted.get(who).unwrap_or(&nothing);
            let everywhere = granted.cluster.iter().map(|rule| (Scope::Cluster, rule));
            let local = granted.namespaces.iter().flat_map(|(namespace, rules)| {
                rules.iter().map(|rule| (Scope::Namespace(namespace.clone()), rule))
            });
            for (scope, rule) in everywhere.chain(local) {
                let rights = rule.rights().filter(|right| !had.has(&scope, right));
                for right in rights {
                    new.entry((who.clone(), scope.clone())).or_default().insert(NewGrant::Right(right));
                }
            }
        }
        for (who, scope, role) in self.foreign.difference(&before.foreign) {
            new.entry((who.clone(), scope.clone())).or_default().insert(NewGrant::Role(role.clone()));
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn role(kind: &str, name: &str, rules: Value) -> Object {
        let mut metadata = json!({"name": name});
        if kind == "Role" {
            metadata["namespace"] = json!("n");
        }
        Object::from_value(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})).unwrap()
    }

    fn binding(kind: &str, role_kind: &str, role: &str) -> Object {
        Object::from_value(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "b", "namespace": "n"},
            "roleRef": {"kind": role_kind, "name": role}, "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}],
        }))
        .unwrap()
    }

    fn new_grants(before: &[Object], after: &[Object]) -> Vec<String> {
        let new = HandedOut::by(after).beyond(&HandedOut::by(before));
        new.into_iter()
            .flat_map(|((who, scope), grants)| {
                grants.into_iter().map(move |grant| match grant {
                    NewGrant::Right(right) => format!("{who} {scope:?} {right}"),
                    NewGrant::Role(role) => format!("{who} {scope:?} {role}"),
                })
            })
            .collect()
    }

    #[test]
    #[rustfmt::skip]
    fn permissions_new_grants_are_those_not_made_before() {
        let pods = |verbs: Value| json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
        let cluster = |verbs| {
            [role("ClusterRole", "r", pods(verbs)), binding("ClusterRoleBinding", "ClusterRole", "r")]
        };
        let local = |verbs| [role("Role", "r", pods(verbs)), binding("RoleBinding", "Role", "r")];
        for (case, before, after, want) in [
            ("nothing new", cluster(json!(["get", "list"])).to_vec(), cluster(json!(["get"])).to_vec(), vec![]),
            ("a verb", cluster(json!(["get"])).to_vec(), cluster(json!(["get", "list"])).to_vec(),
                vec!["ServiceAccount n/s Cluster list pods"]),
            ("had everything", cluster(json!(["*"])).to_vec(), cluster(json!(["list"])).to_vec(), vec![]),
            ("from everywhere to one namespace", cluster(json!(["get"])).to_vec(), local(json!(["get"])).to_vec(), vec![]),
            ("from one namespace to everywhere", local(json!(["get"])).to_vec(), cluster(json!(["get"])).to_vec(),
                vec!["ServiceAccount n/s Cluster get pods"]),
            ("a role of others", vec![], vec![binding("RoleBinding", "ClusterRole", "view")],
                vec!["ServiceAccount n/s Namespace(\"n\") ClusterRole view"]),
            ("a role without a binding", vec![], vec![role("ClusterRole", "r", pods(json!(["get"])))], vec![]),
        ] {
            assert_eq!(new_grants(&before, &after), want, "{case}");
        }
        let mut aggregated = role("ClusterRole", "r", pods(json!(["get"])));
        aggregated.set_label("rbac.authorization.k8s.io/aggregate-to-admin", "true");
        assert_eq!(new_grants(&[], &[aggregated]), ["everyone with role admin Cluster get pods"]);
    }
}
