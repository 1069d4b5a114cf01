//! Facts about a bundle in words, for its author and for the user who installs it: what it brings, and what it asks for.
//!
//! Nothing is judged here (see `lint`) and nothing is rendered: the facts come from the CSV and the CRDs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csv::{Permission, PolicyRule};
use crate::modes::InstallModes;
use crate::registry::RegistryV1;

/// What a bundle brings and asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    pub package: String,
    pub name: String,
    /// `spec.version` of the CSV.
    pub version: String,
    pub install_modes: InstallModes,
    /// Images that pods run, by reference.
    pub images: Vec<ImageUse>,
    /// Images in `spec.relatedImages` that no pod names, sorted; they may be named in the environment.
    pub further_images: Vec<String>,
    /// What the operator may do, per account.
    pub permissions: Vec<PermissionUse>,
    /// Custom resource definitions that come with the bundle: name and served versions.
    pub provided: Vec<(String, Vec<String>)>,
    /// Custom resource definitions that must be there, sorted.
    pub required: Vec<String>,
    /// Webhooks: type, name and deployment.
    pub webhooks: Vec<(String, String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageUse {
    pub image: String,
    /// `<deployment>/<container>`, in the order of the CSV.
    pub used_by: Vec<String>,
    /// Whether `spec.relatedImages` has it, which mirroring relies on.
    pub related: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionUse {
    pub account: String,
    /// Whether it holds in the whole cluster in every install mode; else in what the operator watches.
    pub cluster_wide: bool,
    /// One text a rule: `read and change configmaps`.
    pub rules: Vec<String>,
}

pub fn inspect(bundle: &RegistryV1) -> Inspection {
    let csv = &bundle.csv;
    let spec = csv.raw.0.get("spec");
    let version = spec.and_then(|spec| spec.get("version")).and_then(Value::as_str).unwrap_or_default();
    let related = related_images(bundle);
    let images = images(bundle, &related);
    let used: BTreeSet<_> = images.iter().map(|image| image.image.as_str()).collect();
    let further_images = related.iter().filter(|image| !used.contains(image.as_str())).cloned().collect();
    let required = names(spec, &["customresourcedefinitions", "required"]);
    let permissions = csv
        .cluster_permissions
        .iter()
        .map(|permission| permission_use(permission, true))
        .chain(csv.permissions.iter().map(|permission| permission_use(permission, false)))
        .collect();
    Inspection {
        package: bundle.package_name.clone(),
        name: csv.name.clone(),
        version: version.to_owned(),
        install_modes: csv.install_modes.clone(),
        images,
        further_images,
        permissions,
        provided: bundle.crds.iter().map(|crd| (crd.name().to_owned(), served_versions(crd))).collect(),
        required: required.into_iter().collect(),
        webhooks: csv
            .webhooks
            .iter()
            .map(|webhook| {
                (webhook.kind.as_str().to_owned(), webhook.name().to_owned(), webhook.deployment.clone())
            })
            .collect(),
    }
}

fn list<'a>(value: Option<&'a Value>, member: &str) -> &'a [Value] {
    value.and_then(|value| value.get(member)).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Names of the entries of a list in the CSV.
pub(crate) fn names(spec: Option<&Value>, path: &[&str; 2]) -> BTreeSet<String> {
    let entries = list(spec.and_then(|spec| spec.get(path[0])), path[1]);
    entries.iter().map(|entry| text(entry, "name").to_owned()).collect()
}

fn related_images(bundle: &RegistryV1) -> BTreeSet<String> {
    let related = list(bundle.csv.raw.0.get("spec"), "relatedImages");
    related.iter().map(|entry| text(entry, "image").to_owned()).filter(|image| !image.is_empty()).collect()
}

fn images(bundle: &RegistryV1, related: &BTreeSet<String>) -> Vec<ImageUse> {
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for deployment in &bundle.csv.deployments {
        let pod = deployment.spec.get("template").and_then(|template| template.get("spec"));
        for container in list(pod, "initContainers").iter().chain(list(pod, "containers")) {
            let user = format!("{}/{}", deployment.name, text(container, "name"));
            users.entry(text(container, "image").to_owned()).or_default().push(user);
        }
    }
    users
        .into_iter()
        .map(|(image, used_by)| ImageUse { related: related.contains(&image), image, used_by })
        .collect()
}

fn served_versions(crd: &olm_core::Object) -> Vec<String> {
    list(crd.0.get("spec"), "versions")
        .iter()
        .filter(|version| version.get("served").and_then(Value::as_bool).unwrap_or(false))
        .map(|version| text(version, "name").to_owned())
        .collect()
}

fn permission_use(permission: &Permission, cluster_wide: bool) -> PermissionUse {
    let rules = permission.rules.iter().flatten().map(rule_text).collect();
    PermissionUse { account: permission.account().to_owned(), cluster_wide, rules }
}

/// A rule in words: `read and delete deployments and statefulsets of apps, only those named a, b`.
fn rule_text(rule: &PolicyRule) -> String {
    let actions = actions(rule.verbs.as_deref().unwrap_or_default());
    if rule.resources.is_empty() && !rule.non_resource_urls.is_empty() {
        return format!("{actions} the paths {}", joined(&rule.non_resource_urls));
    }
    let resources = if rule.resources.iter().any(|resource| resource == "*" || resource == "*/*") {
        "every resource".to_owned()
    } else {
        joined(&rule.resources)
    };
    let groups: Vec<String> = rule
        .api_groups
        .iter()
        .map(|group| if group.is_empty() { "the core API".to_owned() } else { group.clone() })
        .collect();
    let groups = if rule.api_groups.iter().any(|group| group == "*") {
        " of every API".to_owned()
    } else if groups == ["the core API"] && resources != "every resource" {
        String::new()
    } else {
        format!(" of {}", joined(&groups))
    };
    let only = if rule.resource_names.is_empty() {
        String::new()
    } else {
        format!(", only those named {}", joined(&rule.resource_names))
    };
    format!("{actions} {resources}{groups}{only}")
}

fn actions(verbs: &[String]) -> String {
    if verbs.iter().any(|verb| verb == "*") {
        return "do anything to".to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for verb in verbs {
        let word = match verb.as_str() {
            "get" | "list" | "watch" => "read",
            "update" | "patch" => "change",
            "delete" | "deletecollection" => "delete",
            other => other,
        };
        if !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    if words.is_empty() { "do nothing to".to_owned() } else { joined(&words) }
}

/// `a`, `a and b`, `a, b and c`.
fn joined(words: &[String]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    #[test]
    #[rustfmt::skip]
    fn rules_in_words() {
        let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            rule_text(&PolicyRule {
                verbs: Some(owned(verbs)),
                api_groups: owned(groups),
                resources: owned(resources),
                resource_names: owned(names),
                non_resource_urls: Vec::new(),
            })
        };
        for (got, want) in [
            (rule(&["get", "list", "watch"], &[""], &["pods"], &[]), "read pods"),
            (rule(&["*"], &["*"], &["*"], &[]), "do anything to every resource of every API"),
            (rule(&["*"], &[""], &["*"], &[]), "do anything to every resource of the core API"),
            (rule(&["get", "create", "update", "patch", "delete"], &["apps"], &["deployments", "daemonsets"], &["a", "b"]),
                "read, create, change and delete deployments and daemonsets of apps, only those named a and b"),
            (rule(&["escalate"], &["", "x.io"], &["roles"], &[]), "escalate roles of the core API and x.io"),
            (rule(&[], &[""], &["pods"], &[]), "do nothing to pods"),
        ] {
            assert_eq!(got, want);
        }
        let paths = PolicyRule {
            verbs: Some(vec!["get".to_owned()]),
            non_resource_urls: vec!["/metrics".to_owned()],
            ..PolicyRule::default()
        };
        assert_eq!(rule_text(&paths), "read the paths /metrics");
    }

    #[test]
    fn images_and_definitions() {
        let patch = json!({"spec": {
            "version": "1.0.0", "relatedImages": [{"name": "a", "image": "i"}, {"name": "b", "image": "other"}],
            "customresourcedefinitions": {"required": [{"name": "z"}]},
        }});
        let got = inspect(&fixture::bundle(&patch, &[]).unwrap());
        assert_eq!(
            got.images,
            [ImageUse { image: "i".into(), used_by: vec!["demo/c".into()], related: true }]
        );
        assert_eq!(got.further_images, ["other"]);
        assert_eq!((got.version.as_str(), got.required), ("1.0.0", vec!["z".to_owned()]));
        assert_eq!(got.provided, [("as.example.com".to_owned(), Vec::new())]);
    }
}
