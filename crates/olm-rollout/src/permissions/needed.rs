//! The rights that an account must have so that a revision's objects can be written and removed as it.
//!
//! Rule: decision 8. Reading is the controller's own, so no `get`, `list` or `watch` is asked for. Handing on rights (Roles
//! and bindings) takes either the rights themselves or `escalate`/`bind`; which of the two is the account owner's choice.

use std::collections::BTreeSet;

use olm_core::{Object, ObjectKey};
use serde_json::Value;

use super::{Right, Rule, Scope};

const RBAC: &str = "rbac.authorization.k8s.io";
/// Objects name their revision as an owner that blocks deletion; the apiserver may ask for this right then.
const OWNER: (&str, &str) = ("olm.operatorframework.io", "clusterobjectsets/finalizers");

/// How the cluster serves a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// The plural, as in URLs and rules.
    pub plural: String,
    /// Lives in namespaces.
    pub namespaced: bool,
}

/// The role that a binding refers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoleRef {
    /// The namespace of a Role, `None` for a ClusterRole.
    pub namespace: Option<String>,
    pub name: String,
}

/// A Role or binding, which hands rights on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handing {
    /// The object, for messages.
    pub object: ObjectKey,
    /// Where the rights are handed on.
    pub scope: Scope,
    /// Having this right is enough: `escalate` or `bind` on the role.
    pub shortcut: (Scope, Right),
    /// The rights; `None` when the role is not known, so that only the shortcut will do.
    pub rights: Option<Vec<Right>>,
}

/// What an account needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Needs {
    /// Rights without alternative.
    pub rights: BTreeSet<(Scope, Right)>,
    /// Rights that are handed on.
    pub handed: Vec<Handing>,
}

/// What writing and removing `objects` takes.
///
/// `served` returns how the cluster serves a kind; kinds that neither it nor a CRD among `objects` knows are left out: they
/// cannot be written anyway. `roles` gives the rules of roles which are not among `objects`.
pub fn needed(
    objects: &[Object],
    served: impl Fn(&ObjectKey) -> Option<Served>,
    roles: impl Fn(&RoleRef) -> Option<Vec<Rule>>,
) -> Needs {
    let mut needs = Needs::default();
    for object in objects {
        let key = object.key();
        if let Some(found) = defined(objects, &key).or_else(|| served(&key)) {
            let scope = match (&key.namespace, found.namespaced) {
                (Some(namespace), true) => Scope::Namespace(namespace.clone()),
                _ => Scope::Cluster,
            };
            needs.add(&scope, Right::on("create", &key.group, &found.plural, None));
            for verb in ["patch", "delete"] {
                needs.add(&scope, Right::on(verb, &key.group, &found.plural, Some(&key.name)));
            }
        }
        if let Some((group, plural)) = custom_resources(object) {
            // instances go before their CRD does (decision 11)
            needs.add(&Scope::Cluster, Right::on("delete", group, plural, None));
        }
        needs.handed.extend(handing(object, &key, objects, &roles));
    }
    if !objects.is_empty() {
        needs.add(&Scope::Cluster, Right::on("update", OWNER.0, OWNER.1, None));
    }
    needs
}

/// The roles that bindings among `objects` refer to and that are not among them, for the caller to read.
#[must_use]
pub fn referenced(objects: &[Object]) -> BTreeSet<RoleRef> {
    let bindings = objects.iter().filter(|object| {
        object.group() == RBAC && matches!(object.kind(), "ClusterRoleBinding" | "RoleBinding")
    });
    bindings
        .filter_map(|binding| role_ref(binding, &binding.key()))
        .filter(|reference| find(objects, reference).is_none())
        .collect()
}

impl Needs {
    fn add(&mut self, scope: &Scope, right: Right) {
        self.rights.insert((scope.clone(), right));
    }
}

/// How a CRD among `objects` will let the kind be served.
fn defined(objects: &[Object], key: &ObjectKey) -> Option<Served> {
    objects.iter().filter(|object| is_crd(object)).find_map(|crd| {
        let spec = crd.0.get("spec")?;
        let names = spec.get("names")?;
        (spec.get("group")?.as_str()? == key.group && names.get("kind")?.as_str()? == key.kind)
            .then_some(())?;
        Some(Served {
            plural: names.get("plural")?.as_str()?.to_owned(),
            namespaced: spec.get("scope")?.as_str()? == "Namespaced",
        })
    })
}

fn is_crd(object: &Object) -> bool {
    object.group() == "apiextensions.k8s.io" && object.kind() == "CustomResourceDefinition"
}

/// Group and plural of what a CRD defines.
fn custom_resources(object: &Object) -> Option<(&str, &str)> {
    let spec = object.0.get("spec").filter(|_| is_crd(object))?;
    Some((spec.get("group")?.as_str()?, spec.get("names")?.get("plural")?.as_str()?))
}

fn handing(
    object: &Object,
    key: &ObjectKey,
    objects: &[Object],
    roles: &impl Fn(&RoleRef) -> Option<Vec<Rule>>,
) -> Option<Handing> {
    if key.group != RBAC {
        return None;
    }
    let namespace = || key.namespace.clone().unwrap_or_default();
    let handing = |scope: Scope, shortcut: (Scope, Right), rules: Option<Vec<Rule>>| Handing {
        object: key.clone(),
        scope,
        shortcut,
        rights: rules.map(|rules| rules.iter().flat_map(Rule::rights).collect()),
    };
    let escalate = |plural: &str| Right::on("escalate", RBAC, plural, Some(&key.name));
    match key.kind.as_str() {
        "ClusterRole" => {
            Some(handing(Scope::Cluster, (Scope::Cluster, escalate("clusterroles")), rules_of(object)))
        }
        "Role" => {
            let scope = Scope::Namespace(namespace());
            Some(handing(scope.clone(), (scope, escalate("roles")), rules_of(object)))
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            let cluster_wide = key.kind == "ClusterRoleBinding";
            let scope = if cluster_wide { Scope::Cluster } else { Scope::Namespace(namespace()) };
            let reference = role_ref(object, key)?;
            let plural = if reference.namespace.is_some() { "roles" } else { "clusterroles" };
            let bind = Right::on("bind", RBAC, plural, Some(&reference.name));
            let rules = find(objects, &reference).and_then(rules_of).or_else(|| roles(&reference));
            Some(handing(scope.clone(), (scope, bind), rules))
        }
        _ => None,
    }
}

/// The role that a binding refers to.
fn role_ref(object: &Object, key: &ObjectKey) -> Option<RoleRef> {
    let reference = object.0.get("roleRef")?;
    let name = reference.get("name")?.as_str()?.to_owned();
    let namespace = match reference.get("kind")?.as_str()? {
        "Role" => Some(key.namespace.clone().unwrap_or_default()),
        _ => None,
    };
    Some(RoleRef { namespace, name })
}

fn find<'a>(objects: &'a [Object], reference: &RoleRef) -> Option<&'a Object> {
    let kind = if reference.namespace.is_some() { "Role" } else { "ClusterRole" };
    objects.iter().find(|object| {
        object.group() == RBAC
            && object.kind() == kind
            && object.name() == reference.name
            && (reference.namespace.is_none() || object.namespace() == reference.namespace.as_deref())
    })
}

/// The rules of a role; `None` for an aggregated one: it has the rules of others, which only `escalate` may hand on unseen.
fn rules_of(role: &Object) -> Option<Vec<Rule>> {
    role.0.get("aggregationRule").is_none_or(Value::is_null).then(|| Rule::all(&role.to_value()))
}
