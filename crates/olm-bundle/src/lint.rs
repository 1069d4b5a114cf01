//! Findings for a bundle's author: what will be refused, what has no effect, and what is risky.
//!
//! Errors are what rendering refuses or a cluster would; warnings and notes stop nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::csv::Permission;
use crate::error::Unsupported;
use crate::inspect::{inspect, names};
use crate::modes::InstallMode;
use crate::registry::RegistryV1;
use crate::validate::validate;

/// Bytes of annotations that an object may have.
const ANNOTATION_BYTES: usize = 256 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Error,
    /// Something is risky, or is not what the author meant.
    Warning,
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub level: Level,
    /// Name of the rule, for switching it off.
    pub rule: &'static str,
    /// What was found, and what to do.
    pub message: String,
}

/// Checks a bundle. Errors come first, then warnings, then notes; the order is always the same.
pub fn lint(bundle: &RegistryV1) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    refused(bundle, &mut findings);
    for warning in &bundle.warnings {
        findings.add(Level::Warning, "left-out", warning.clone());
    }
    accounts(bundle, &mut findings);
    permissions(bundle, &mut findings);
    images(bundle, &mut findings);
    services(bundle, &mut findings);
    annotations(bundle, &mut findings);
    ignored(bundle, &mut findings);
    findings.0.sort_by_key(|finding| finding.level);
    findings.0
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, level: Level, rule: &'static str, message: String) {
        self.0.push(Finding { level, rule, message });
    }
}

fn refused(bundle: &RegistryV1, findings: &mut Findings) {
    let modes = &bundle.csv.install_modes;
    if bundle.csv.owned_api_services > 0 {
        findings.add(Level::Error, "unsupported", Unsupported::ApiServices.to_string());
    }
    let usable = [InstallMode::AllNamespaces, InstallMode::SingleNamespace, InstallMode::OwnNamespace];
    if !usable.iter().any(|mode| modes.supports(*mode)) {
        findings.add(Level::Error, "unsupported", Unsupported::NoInstallMode.to_string());
    }
    for finding in validate(bundle) {
        findings.add(Level::Error, "invalid", finding);
    }
}

/// Accounts that pods use and the bundle does not define.
fn accounts(bundle: &RegistryV1, findings: &mut Findings) {
    let csv = &bundle.csv;
    let mut made: BTreeSet<&str> =
        csv.permissions.iter().chain(&csv.cluster_permissions).map(Permission::account).collect();
    made.insert("default");
    made.extend(
        bundle.others.iter().filter(|object| object.kind() == "ServiceAccount").map(olm_core::Object::name),
    );
    for deployment in &csv.deployments {
        let pod = deployment.spec.get("template").and_then(|template| template.get("spec"));
        let account =
            pod.and_then(|pod| pod.get("serviceAccountName")).and_then(Value::as_str).unwrap_or("default");
        if !made.contains(account) {
            let name = &deployment.name;
            findings.add(
                Level::Warning,
                "missing-account",
                format!("deployment {name:?} runs as service account {account:?}, which has no permissions in the CSV and is not shipped, so it must exist already"),
            );
        }
    }
}

fn permissions(bundle: &RegistryV1, findings: &mut Findings) {
    for permission in &bundle.csv.cluster_permissions {
        let account = permission.account();
        for rule in permission.rules.iter().flatten() {
            let any = |texts: &[String]| texts.iter().any(|text| text == "*");
            let verbs = rule.verbs.as_deref().unwrap_or_default();
            let has =
                |texts: &[String], values: &[&str]| texts.iter().any(|text| values.contains(&text.as_str()));
            let core = has(&rule.api_groups, &["", "*"]);
            if any(verbs) && any(&rule.api_groups) && any(&rule.resources) {
                let message =
                    format!("{account:?} may do anything in the cluster; ask for what the operator uses");
                findings.add(Level::Warning, "cluster-admin", message);
            } else if has(verbs, &["escalate", "bind", "impersonate"]) {
                let message = format!(
                    "{account:?} may escalate, bind or impersonate, which is as good as every permission"
                );
                findings.add(Level::Warning, "escalation", message);
            } else if core && has(&rule.resources, &["secrets", "*"]) && rule.resource_names.is_empty() {
                let message = format!(
                    "{account:?} reaches every secret of the cluster; narrow it with resourceNames or permissions"
                );
                findings.add(Level::Warning, "all-secrets", message);
            }
        }
    }
    let mut seen: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for permission in bundle.csv.permissions.iter().chain(&bundle.csv.cluster_permissions) {
        *seen.entry((permission.account(), format!("{:?}", permission.rules))).or_default() += 1;
    }
    for ((account, _), count) in seen {
        if count > 1 {
            let message = format!("{account:?} is given the same rules {count} times");
            findings.add(Level::Note, "repeated-permission", message);
        }
    }
}

fn images(bundle: &RegistryV1, findings: &mut Findings) {
    for image in inspect(bundle).images {
        let users = image.used_by.join(", ");
        if image.image.is_empty() {
            findings.add(Level::Error, "no-image", format!("{users} names no image"));
            continue;
        }
        if !image.image.contains("@sha256:") {
            let message =
                format!("image {:?} of {users} has no digest, so what runs can change", image.image);
            findings.add(Level::Warning, "image-without-digest", message);
        }
        if !image.related {
            let message = format!(
                "image {:?} of {users} is not in spec.relatedImages, so mirrors will not have it",
                image.image
            );
            findings.add(Level::Warning, "unrelated-image", message);
        }
    }
}

/// Services are named after deployments and must begin with a letter.
fn services(bundle: &RegistryV1, findings: &mut Findings) {
    let served: BTreeSet<_> = bundle.csv.webhooks.iter().map(|webhook| webhook.deployment.as_str()).collect();
    for deployment in served {
        if deployment.starts_with(|first: char| first.is_ascii_digit()) {
            let message = format!(
                "deployment {deployment:?} serves webhooks and begins with a digit, which Service names must not"
            );
            findings.add(Level::Warning, "service-name", message);
        }
    }
}

/// Annotations of the CSV go to every pod.
fn annotations(bundle: &RegistryV1, findings: &mut Findings) {
    let size: usize = bundle.csv.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ANNOTATION_BYTES {
        let message = format!(
            "annotations of the CSV have {size} bytes and go to every pod, where {ANNOTATION_BYTES} are allowed"
        );
        findings.add(Level::Error, "annotations-too-large", message);
    }
}

/// What an author may expect to matter and what does not. Rule: bundle-rendering §3.
fn ignored(bundle: &RegistryV1, findings: &mut Findings) {
    let spec = bundle.csv.raw.0.get("spec");
    let given = |member: &str| {
        let value = spec.and_then(|spec| spec.get(member));
        value.is_some_and(|value| {
            !value.is_null()
                && value.as_str() != Some("")
                && value.as_array().is_none_or(|list| !list.is_empty())
        })
    };
    if given("minKubeVersion") {
        findings.add(
            Level::Note,
            "ignored",
            "spec.minKubeVersion counts only where the catalog states it".to_owned(),
        );
    }
    if given("nativeAPIs") {
        findings.add(
            Level::Note,
            "ignored",
            "spec.nativeAPIs counts only where the catalog states it".to_owned(),
        );
    }
    for (path, what) in [
        (["customresourcedefinitions", "required"], "custom resource definition"),
        (["apiservicedefinitions", "required"], "API service"),
    ] {
        for name in names(spec, &path) {
            let message = format!("required {what} {name:?} is neither checked nor installed");
            findings.add(Level::Note, "ignored", message);
        }
    }
    for annotation in
        ["operatorframework.io/suggested-namespace", "operatorframework.io/suggested-namespace-template"]
    {
        if bundle.csv.annotations.contains_key(annotation) {
            findings.add(
                Level::Note,
                "ignored",
                format!("annotation {annotation} has no effect: the namespace must exist"),
            );
        }
    }
    let modes = &bundle.csv.install_modes;
    if modes.supports(InstallMode::MultiNamespace) {
        let message = "install mode MultiNamespace cannot be asked for: one namespace or all are watched";
        findings.add(Level::Note, "ignored", message.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture;

    fn found(csv_patch: &Value) -> Vec<(Level, &'static str)> {
        let bundle = fixture::bundle(csv_patch, &[]).unwrap();
        lint(&bundle).into_iter().map(|finding| (finding.level, finding.rule)).collect()
    }

    #[test]
    #[rustfmt::skip]
    fn lint_rules_have_cases() {
        let baseline = [(Level::Warning, "image-without-digest"), (Level::Warning, "unrelated-image")];
        assert_eq!(found(&json!({})), baseline);
        let permission = |rule: Value| json!({"spec": {"install": {"spec": {"clusterPermissions": [{"serviceAccountName": "a", "rules": [rule]}]}}}});
        let rule = |verb: &str, group: &str, resource: &str| {
            permission(json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]}))
        };
        let run_as = json!({"name": "d", "spec": {"template": {"spec": {"serviceAccountName": "ghost", "containers": [{"name": "c"}]}}}});
        for (patch, level, want) in [
            (json!({"spec": {"apiservicedefinitions": {"owned": [{}]}}}), Level::Error, "unsupported"),
            (json!({"spec": {"installModes": []}}), Level::Error, "unsupported"),
            (json!({"spec": {"customresourcedefinitions": {"owned": [{"name": "x"}]}}}), Level::Error, "invalid"),
            (json!({"spec": {"install": {"spec": {"deployments": [run_as]}}}}), Level::Warning, "missing-account"),
            (json!({"spec": {"install": {"spec": {"deployments": [run_as]}}}}), Level::Error, "no-image"),
            (json!({"metadata": {"annotations": {"alm-examples": "x".repeat(300_000)}}}), Level::Error, "annotations-too-large"),
            (rule("*", "*", "*"), Level::Warning, "cluster-admin"),
            (rule("bind", "rbac.authorization.k8s.io", "roles"), Level::Warning, "escalation"),
            (rule("get", "", "secrets"), Level::Warning, "all-secrets"),
            (json!({"spec": {"webhookdefinitions": [{"type": "ConversionWebhook", "generateName": "c", "deploymentName": "1d"}]}}),
                Level::Warning, "service-name"),
            (json!({"spec": {"minKubeVersion": "1.30.0"}}), Level::Note, "ignored"),
            (json!({"spec": {"nativeAPIs": [{}]}}), Level::Note, "ignored"),
            (json!({"spec": {"apiservicedefinitions": {"required": [{"name": "x"}]}}}), Level::Note, "ignored"),
            (json!({"metadata": {"annotations": {"operatorframework.io/suggested-namespace": "x"}}}), Level::Note, "ignored"),
            (json!({"spec": {"installModes": [{"type": "MultiNamespace", "supported": true}]}}), Level::Note, "ignored"),
            (json!({"spec": {"install": {"spec": {"permissions": [{"serviceAccountName": "a"}, {"serviceAccountName": "a"}]}}}}),
                Level::Note, "repeated-permission"),
        ] {
            let got = found(&patch);
            assert!(got.contains(&(level, want)), "{want} in {got:?} for {patch}");
            assert!(got.is_sorted_by_key(|(level, _)| *level), "errors first: {got:?}");
        }
        let bare = fixture::patched(
            fixture::crd("b"),
            &json!({"spec": {"versions": [{"name": "v1", "schema": {}}]}}),
        );
        let findings = lint(&fixture::bundle(&json!({}), &[bare]).unwrap());
        assert_eq!(
            (findings[0].rule, findings[0].message.as_str()),
            ("invalid", "custom resource definition \"b\" has no schema for version \"v1\"; give it an openAPIV3Schema")
        );
        assert_eq!(found(&json!({"spec": {"minKubeVersion": "", "nativeAPIs": []}})), baseline);
    }
}
