//! The checks of a bundle's own consistency: all run, findings are listed in this order. Rule: bundle-rendering §7.
//!
//! The first thirteen and their messages are the reference's. The rest refuse what no API server would accept or what
//! the reference silently ignores (bundle-rendering §16 rows 5, 7, 9, 15, 31 and 34).

use std::collections::{BTreeMap, BTreeSet};

use olm_core::Cancellation;
use olm_core::dns::subdomain_problems;
use serde_json::Value;

use crate::csv::{Webhook, WebhookType, short};
use crate::kinds;
use crate::modes::{InstallMode, InstallModes};
use crate::registry::RegistryV1;

/// Everything that is wrong with the bundle, in the order of the checks.
pub fn validate(bundle: &RegistryV1) -> Vec<String> {
    validate_until(bundle, &Cancellation::default())
}

/// As [`validate`]. No further check begins once it is cancelled.
pub(crate) fn validate_until(bundle: &RegistryV1, cancellation: &Cancellation) -> Vec<String> {
    let checks: [fn(&RegistryV1, &mut Findings); 18] = [
        deployment_names_are_unique,
        deployment_names_are_subdomains,
        crd_names_are_unique,
        owned_crds_are_present,
        package_name_is_present,
        conversion_needs_all_namespaces,
        webhook_deployments_exist,
        webhook_names_are_unique,
        webhook_names_are_subdomains,
        crds_have_one_conversion,
        conversion_crds_are_owned,
        webhook_rules_are_harmless,
        other_kinds_are_supported,
        webhook_types_are_known,
        webhook_names_have_three_segments,
        webhook_ports_agree,
        webhook_services_are_distinct,
        crd_versions_have_schemas,
    ];
    // findings repeat these names, for each rule and each CRD
    let webhook_names = bundle.csv.webhooks.iter().flat_map(|webhook| {
        let port = webhook.target_port.as_ref().and_then(Value::as_str).unwrap_or_default();
        [webhook.generate_name.as_str(), webhook.deployment.as_str(), port]
    });
    if let Some(name) = webhook_names.into_iter().find(|name| name.len() > MAX_NAME) {
        let start = &name[..name.floor_char_boundary(50)];
        return vec![format!(
            "a webhook, its deployment or its target port has a name of {} bytes: {start:?}…; names have at most 253",
            name.len()
        )];
    }
    let mut findings = Findings::default();
    for check in checks.into_iter().take_while(|_| !cancellation.is_cancelled()) {
        check(bundle, &mut findings);
    }
    findings.0
}

/// Bytes of a name above which nothing else is checked.
const MAX_NAME: usize = 1_000;
const MAX_FINDINGS: usize = 1_000;
/// Webhooks that the finding about a CRD names.
const MAX_WEBHOOKS: usize = 20;

/// The first findings.
#[derive(Default)]
struct Findings(Vec<String>);

impl Findings {
    fn push(&mut self, finding: String) {
        if self.0.len() < MAX_FINDINGS {
            self.0.push(finding);
        }
    }
}

/// Names that occur more than once, sorted.
fn repeated<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| !seen.insert(*name)).collect()
}

fn deployment_names_are_unique(bundle: &RegistryV1, findings: &mut Findings) {
    for name in repeated(bundle.csv.deployments.iter().map(|deployment| deployment.name.as_str())) {
        findings
            .push(format!("cluster service version contains duplicate strategy deployment spec '{name}'"));
    }
}

fn deployment_names_are_subdomains(bundle: &RegistryV1, findings: &mut Findings) {
    let names: BTreeSet<_> =
        bundle.csv.deployments.iter().map(|deployment| deployment.name.as_str()).collect();
    for name in names {
        let problems = subdomain_problems(name);
        if !problems.is_empty() {
            let problems = problems.join(", ");
            findings.push(format!(
                "invalid cluster service version strategy deployment name '{name}': {problems}"
            ));
        }
    }
}

fn crd_names_are_unique(bundle: &RegistryV1, findings: &mut Findings) {
    for name in repeated(bundle.crds.iter().map(olm_core::Object::name)) {
        findings.push(format!("bundle contains duplicate custom resource definition '{name}'"));
    }
}

fn owned_crds_are_present(bundle: &RegistryV1, findings: &mut Findings) {
    let present: BTreeSet<_> = bundle.crds.iter().map(olm_core::Object::name).collect();
    let owned: BTreeSet<_> = bundle.csv.owned_crds.iter().map(String::as_str).collect();
    for name in owned.difference(&present) {
        findings.push(format!(
            "cluster service definition references owned custom resource definition '{name}' not found in bundle"
        ));
    }
}

fn package_name_is_present(bundle: &RegistryV1, findings: &mut Findings) {
    if bundle.package_name.is_empty() {
        findings.push("package name is empty".to_owned());
    }
}

fn of_kind<'a>(bundle: &'a RegistryV1, kind: &'a WebhookType) -> impl Iterator<Item = &'a Webhook> {
    bundle.csv.webhooks.iter().filter(move |webhook| webhook.kind == *kind)
}

fn conversion_needs_all_namespaces(bundle: &RegistryV1, findings: &mut Findings) {
    let modes = &bundle.csv.install_modes;
    let only_all: InstallModes = [InstallMode::AllNamespaces].into_iter().collect();
    if *modes == only_all {
        return;
    }
    for webhook in of_kind(bundle, &WebhookType::Conversion) {
        findings.push(format!(
            "bundle contains conversion webhook {:?} and supports install modes {modes} - conversion webhooks are only \
             supported for bundles that only support AllNamespaces install mode",
            webhook.generate_name
        ));
    }
}

fn webhook_deployments_exist(bundle: &RegistryV1, findings: &mut Findings) {
    let known: BTreeSet<_> =
        bundle.csv.deployments.iter().map(|deployment| deployment.name.as_str()).collect();
    let mut dangling: Vec<_> = bundle
        .csv
        .webhooks
        .iter()
        .filter(|webhook| !known.contains(webhook.deployment.as_str()))
        .map(|webhook| (webhook.deployment.as_str(), webhook.kind.as_str(), webhook.generate_name.as_str()))
        .collect();
    dangling.sort_unstable();
    for (deployment, kind, name) in dangling {
        findings.push(format!(
            "webhook of type '{kind}' with name '{name}' references non-existent deployment '{deployment}'"
        ));
    }
}

fn webhook_names_are_unique(bundle: &RegistryV1, findings: &mut Findings) {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for webhook in &bundle.csv.webhooks {
        names.entry(webhook.kind.as_str()).or_default().push(webhook.name());
    }
    for (kind, names) in names {
        for name in repeated(names) {
            findings.push(format!("duplicate webhook '{name}' of type '{kind}'"));
        }
    }
}

fn webhook_names_are_subdomains(bundle: &RegistryV1, findings: &mut Findings) {
    let names: BTreeSet<_> =
        bundle.csv.webhooks.iter().map(|webhook| (webhook.kind.as_str(), webhook.name())).collect();
    for (kind, name) in names {
        let problems = subdomain_problems(name);
        if !problems.is_empty() {
            findings
                .push(format!("webhook of type '{kind}' has invalid name '{name}': {}", problems.join(",")));
        }
    }
}

fn crds_have_one_conversion(bundle: &RegistryV1, findings: &mut Findings) {
    let mut converters: Vec<(&str, &str, usize)> = Vec::new();
    for (at, webhook) in of_kind(bundle, &WebhookType::Conversion).enumerate() {
        let name = webhook.generate_name.as_str();
        converters.extend(webhook.conversion_crds.iter().map(|crd| (crd.as_str(), name, at)));
    }
    converters.sort_unstable();
    converters.dedup(); // a webhook may list a CRD twice
    for of_crd in converters.chunk_by(|one, next| one.0 == next.0).filter(|of_crd| of_crd.len() > 1) {
        let names: Vec<&str> = of_crd.iter().map(|(_, name, _)| *name).take(MAX_WEBHOOKS).collect();
        findings.push(format!(
            "conversion webhooks [{}] reference same custom resource definition '{}'",
            names.join(","),
            of_crd[0].0
        ));
    }
}

fn conversion_crds_are_owned(bundle: &RegistryV1, findings: &mut Findings) {
    let owned: BTreeSet<_> = bundle.csv.owned_crds.iter().map(String::as_str).collect();
    let mut foreign: Vec<_> = of_kind(bundle, &WebhookType::Conversion)
        .flat_map(|webhook| {
            webhook.conversion_crds.iter().map(|crd| (webhook.generate_name.as_str(), crd.as_str()))
        })
        .filter(|(_, crd)| !owned.contains(crd))
        .collect();
    foreign.sort_unstable();
    for (webhook, crd) in foreign {
        findings.push(format!(
            "conversion webhook '{webhook}' references custom resource definition '{crd}' not owned bundle"
        ));
    }
}

/// The texts in a list of a rule.
fn texts<'a>(rule: &'a Value, member: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    rule.get(member).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn webhook_rules_are_harmless(bundle: &RegistryV1, findings: &mut Findings) {
    const ADMISSION: &str = "admissionregistration.k8s.io";
    // `*/*` matches every resource as well as every sub-resource
    const GUARDED: [&str; 6] = [
        "*",
        "*/*",
        "mutatingwebhookconfiguration",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfiguration",
        "validatingwebhookconfigurations",
    ];
    for webhook in &bundle.csv.webhooks {
        if !matches!(webhook.kind, WebhookType::Validating | WebhookType::Mutating) {
            continue;
        }
        let start = format!(
            "webhook {:?} contains forbidden rule: admission webhook rules cannot reference",
            webhook.generate_name
        );
        for rule in &webhook.rules {
            let is_forbidden = |group: &&str| ["*", "olm.operatorframework.io"].contains(group);
            for group in texts(rule, "apiGroups").filter(is_forbidden) {
                findings.push(format!("{start} API group {group:?}"));
            }
            if texts(rule, "apiGroups").any(|group| group == ADMISSION) {
                for resource in texts(rule, "resources") {
                    if GUARDED.contains(&resource.to_lowercase().as_str()) {
                        findings.push(format!("{start} resource {resource:?} for API group {ADMISSION:?}"));
                    }
                }
            }
        }
    }
}

fn other_kinds_are_supported(bundle: &RegistryV1, findings: &mut Findings) {
    for object in &bundle.others {
        if kinds::scope(object.kind()).is_none() {
            findings.push(format!("unsupported resource {:?} with kind {:?}", object.name(), object.kind()));
        }
    }
}

fn webhook_types_are_known(bundle: &RegistryV1, findings: &mut Findings) {
    for webhook in &bundle.csv.webhooks {
        if let WebhookType::Other(kind) = &webhook.kind {
            findings.push(format!("webhook '{}' has unknown type '{kind}'", webhook.generate_name));
        }
    }
}

fn webhook_names_have_three_segments(bundle: &RegistryV1, findings: &mut Findings) {
    for webhook in &bundle.csv.webhooks {
        let admission = matches!(webhook.kind, WebhookType::Validating | WebhookType::Mutating);
        let name = webhook.name();
        if admission && subdomain_problems(name).is_empty() && name.split('.').count() < 3 {
            findings.push(format!(
                "webhook of type '{}' has invalid name '{name}': should be a domain with at least three segments separated by dots",
                webhook.kind.as_str()
            ));
        }
    }
}

fn webhook_ports_agree(bundle: &RegistryV1, findings: &mut Findings) {
    let mut ports: BTreeMap<(&str, i64), (&Webhook, Value)> = BTreeMap::new();
    for webhook in &bundle.csv.webhooks {
        let target = webhook.target_port.clone().unwrap_or_else(|| webhook.port().into());
        let key = (webhook.deployment.as_str(), webhook.port());
        let (first, first_target) = ports.entry(key).or_insert((webhook, target.clone()));
        if *first_target != target {
            findings.push(format!(
                "webhooks '{}' and '{}' of deployment '{}' share port {} with different target ports {first_target} and {target}",
                first.generate_name, webhook.generate_name, webhook.deployment, webhook.port()
            ));
        }
    }
}

fn webhook_services_are_distinct(bundle: &RegistryV1, findings: &mut Findings) {
    let mut services: BTreeMap<String, &str> = BTreeMap::new();
    let served: BTreeSet<_> = bundle.csv.webhooks.iter().map(|webhook| webhook.deployment.as_str()).collect();
    for deployment in served {
        let service = crate::names::service(deployment);
        if let Some(first) = services.get(&service) {
            findings.push(format!(
                "deployments '{first}' and '{deployment}' would share the webhook service '{service}'"
            ));
        } else {
            services.insert(service, deployment);
        }
    }
}

fn crd_versions_have_schemas(bundle: &RegistryV1, findings: &mut Findings) {
    for crd in &bundle.crds {
        let versions = crd.0.get("spec").and_then(|spec| spec.get("versions")).and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            if version.pointer("/schema/openAPIV3Schema").is_none_or(|schema| !schema.is_object()) {
                let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
                findings.push(format!(
                    "custom resource definition {:?} has no schema for version {:?}; give it an openAPIV3Schema",
                    short(crd.name()),
                    short(name)
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests;
