//! The needs that the rules of an account do not meet.

use std::collections::{BTreeMap, BTreeSet};

use super::{Needs, Right, Rule, Scope, compact};

/// The rules that bindings grant to an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Granted {
    /// By ClusterRoleBindings: everywhere.
    pub cluster: Vec<Rule>,
    /// By RoleBindings: in their namespace.
    pub namespaces: BTreeMap<String, Vec<Rule>>,
}

impl Granted {
    /// Whether the account has the right there.
    #[must_use]
    pub fn has(&self, scope: &Scope, right: &Right) -> bool {
        let local = match scope {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => self.namespaces.get(namespace),
        };
        self.cluster.iter().chain(local.into_iter().flatten()).any(|rule| rule.grants(right))
    }

    /// Adds a right that another authorizer grants.
    pub fn allow(&mut self, scope: &Scope, right: &Right) {
        self.extend(scope, compact([right]));
    }

    pub(super) fn extend(&mut self, scope: &Scope, rules: Vec<Rule>) {
        match scope {
            Scope::Cluster => self.cluster.extend(rules),
            Scope::Namespace(namespace) => {
                self.namespaces.entry(namespace.clone()).or_default().extend(rules)
            }
        }
    }
}

/// What `granted` lacks. For a role or binding whose rights the account may not hand on, its missing rights are
/// listed, or `escalate`/`bind` if the role is not known.
#[must_use]
pub fn missing(needs: &Needs, granted: &Granted) -> BTreeSet<(Scope, Right)> {
    let mut missing: BTreeSet<(Scope, Right)> =
        needs.rights.iter().filter(|(scope, right)| !granted.has(scope, right)).cloned().collect();
    for handing in &needs.handed {
        if granted.has(&handing.shortcut.0, &handing.shortcut.1) {
            continue;
        }
        match &handing.rights {
            None => {
                missing.insert(handing.shortcut.clone());
            }
            Some(rights) => missing.extend(
                rights
                    .iter()
                    .filter(|right| !granted.has(&handing.scope, right))
                    .map(|right| (handing.scope.clone(), right.clone())),
            ),
        }
    }
    missing
}
