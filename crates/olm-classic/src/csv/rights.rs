//! Whether rules of RBAC allow what a CSV's permissions name (classic-apis §6.4).
//!
//! As the apiserver decides it: a rule is allowed when each verb on each of its resources is.

use olm_api::k8s_openapi::api::rbac::v1::{PolicyRule, Subject};

/// Whether `held` rules together allow all that `desired` names.
#[must_use]
pub fn allow(held: &[PolicyRule], desired: &PolicyRule) -> bool {
    let list = |list: &Option<Vec<String>>| list.clone().unwrap_or_default();
    let urls = list(&desired.non_resource_urls);
    let (groups, resources) = (list(&desired.api_groups), list(&desired.resources));
    let mut names: Vec<Option<String>> = list(&desired.resource_names).into_iter().map(Some).collect();
    if names.is_empty() {
        names.push(None);
    }
    desired.verbs.iter().all(|verb| {
        urls.iter().all(|url| held.iter().any(|rule| allows_url(rule, verb, url)))
            && groups.iter().all(|group| {
                resources.iter().all(|resource| {
                    names.iter().all(|name| {
                        held.iter().any(|rule| allows(rule, verb, group, resource, name.as_deref()))
                    })
                })
            })
    })
}

const ALL: &str = "*";

fn has(list: Option<&Vec<String>>, item: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|entry| entry == ALL || entry == item))
}

fn allows(rule: &PolicyRule, verb: &str, group: &str, resource: &str, name: Option<&str>) -> bool {
    let names = rule.resource_names.as_deref().unwrap_or_default();
    // `*/scale` is the subresource of every resource
    let subresource = resource.split_once('/').map(|(_, subresource)| format!("{ALL}/{subresource}"));
    let has_subresource = subresource.is_some_and(|all| has(rule.resources.as_ref(), &all));
    has(Some(&rule.verbs), verb)
        && has(rule.api_groups.as_ref(), group)
        && (has(rule.resources.as_ref(), resource) || has_subresource)
        && (names.is_empty() || name.is_some_and(|name| names.iter().any(|entry| entry == name)))
}

fn allows_url(rule: &PolicyRule, verb: &str, url: &str) -> bool {
    let matches = |entry: &String| {
        entry == ALL || entry == url || entry.strip_suffix(ALL).is_some_and(|prefix| url.starts_with(prefix))
    };
    has(Some(&rule.verbs), verb) && rule.non_resource_urls.iter().flatten().any(matches)
}

/// Whether a subject of a binding is this ServiceAccount, by itself or by one of its groups. `binding` is the namespace of the binding.
#[must_use]
pub fn is_account(subject: &Subject, binding: Option<&str>, namespace: &str, account: &str) -> bool {
    match subject.kind.as_str() {
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().filter(|namespace| !namespace.is_empty()).or(binding);
            own == Some(namespace) && subject.name == account
        }
        "User" => subject.name == format!("system:serviceaccount:{namespace}:{account}"),
        "Group" => {
            matches!(subject.name.as_str(), "system:serviceaccounts" | "system:authenticated")
                || subject.name.strip_prefix("system:serviceaccounts:") == Some(namespace)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rules(value: Value) -> Vec<PolicyRule> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn rights_allow_what_rules_name_together() {
        let pods = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        let named = |names: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": names});
        let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
        let urls = |url: &str| json!({"nonResourceURLs": [url], "verbs": ["get"]});
        for (held, desired, want) in [
            (json!([]), pods(&["get"]), false),
            (json!([pods(&["get"])]), pods(&["get"]), true),
            (json!([pods(&["get"])]), pods(&["get", "list"]), false),
            (json!([pods(&["get"]), pods(&["list"])]), pods(&["get", "list"]), true),
            (json!([pods(&["*"])]), pods(&["get", "list"]), true),
            (json!([pods(&["get"])]), pods(&["*"]), false),
            (json!([all]), pods(&["*"]), true),
            (json!([all]), urls("/metrics"), false),
            (json!([named(&["a"])]), pods(&["get"]), false),
            (json!([named(&["a", "b"])]), named(&["b"]), true),
            (json!([named(&["a"])]), named(&["a", "b"]), false),
            (json!([pods(&["get"])]), named(&["a"]), true),
            (json!([urls("/healthz/*")]), urls("/healthz/x"), true),
            (json!([urls("/healthz")]), urls("/healthz/x"), false),
            (
                json!([{"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["get"]}]),
                json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}),
                true,
            ),
            (
                json!([{"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]}]),
                json!({"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get"]}),
                false,
            ),
            (json!([]), json!({"verbs": []}), true),
        ] {
            let got = allow(&rules(held.clone()), &rules(json!([desired]))[0]);
            assert_eq!(got, want, "{held} allows {desired}");
        }
    }

    #[test]
    fn rights_of_an_account_come_by_name_user_and_group() {
        for (subject, binding, want) in [
            (json!({"kind": "ServiceAccount", "name": "a", "namespace": "ns"}), None, true),
            (json!({"kind": "ServiceAccount", "name": "a", "namespace": "other"}), Some("ns"), false),
            (json!({"kind": "ServiceAccount", "name": "a"}), Some("ns"), true),
            (json!({"kind": "ServiceAccount", "name": "a"}), None, false),
            (json!({"kind": "User", "name": "system:serviceaccount:ns:a"}), None, true),
            (json!({"kind": "Group", "name": "system:serviceaccounts"}), None, true),
            (json!({"kind": "Group", "name": "system:serviceaccounts:ns"}), None, true),
            (json!({"kind": "Group", "name": "system:serviceaccounts:other"}), None, false),
            (json!({"kind": "Group", "name": "system:masters"}), None, false),
        ] {
            let subject: Subject = serde_json::from_value(subject).unwrap();
            assert_eq!(is_account(&subject, binding, "ns", "a"), want, "{subject:?} in {binding:?}");
        }
    }
}
