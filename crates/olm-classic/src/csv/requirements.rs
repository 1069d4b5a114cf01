//! Requirements of a CSV and whether the cluster meets them (classic-apis §6.4).

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::ClusterServiceVersion;
use olm_api::classic::cluster_service_version::{DependentStatus, RequirementStatus};
use olm_core::{KubernetesVersion, go, lowest_kubernetes};
use serde_json::{Value, json};

use super::labels::{KIND, name, namespace};

/// The outcome of all requirements.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Requirements {
    pub are_met: bool,
    /// `status.requirementStatus`: the version of Kubernetes when the CSV has a lowest one, CustomResourceDefinitions, APIServices, native
    /// APIs, and ServiceAccounts by name.
    pub statuses: Vec<RequirementStatus>,
}

impl Requirements {
    /// Those that are not met, as [`unmet`] has them.
    #[must_use]
    pub fn unmet(&self) -> Vec<String> {
        self.statuses.iter().filter_map(unmet).collect()
    }
}

/// Kind, name, status and message of a requirement that is not met, with the rules that its account lacks; `None` for one that is met.
#[must_use]
pub fn unmet(requirement: &RequirementStatus) -> Option<String> {
    if is_met(requirement) {
        return None;
    }
    let RequirementStatus { kind, name, status, message, dependents, .. } = requirement;
    let mut text = format!("{kind} {name}: {status}");
    if !message.is_empty() {
        text.push_str(&format!(" {message}"));
    }
    for dependent in dependents.iter().filter(|dependent| dependent.status == NOT_ALLOWED) {
        text.push_str(&format!(" ({})", dependent.message));
    }
    Some(text)
}

fn is_met(requirement: &RequirementStatus) -> bool {
    matches!(requirement.status.as_str(), PRESENT | "DeploymentFound")
}

/// A CustomResourceDefinition of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedCrd {
    pub uid: String,
    pub served_versions: BTreeSet<String>,
    pub is_established: bool,
    pub are_names_accepted: bool,
    /// The CSVs of its annotations `operatorframework.io/installed-alongside-…`, as `NAMESPACE/NAME`.
    pub installed_alongside: BTreeSet<String>,
}

/// An APIService of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedApiService {
    pub uid: String,
    pub is_available: bool,
    /// The CSV that its labels name as owner, as `NAMESPACE/NAME`.
    pub owner: Option<String>,
}

/// A ServiceAccount of the CSV's namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedServiceAccount {
    pub uid: String,
    /// Names of the CSVs in its owner references.
    pub owners: BTreeSet<String>,
}

/// Where a rule has to be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// In the namespace of the CSV.
    Namespace,
    Cluster,
}

/// Group, version and kind.
pub type Api = (String, String, String);

/// The part of a cluster that requirements are about.
pub struct Cluster<'a> {
    pub version: KubernetesVersion,
    /// By name.
    pub crds: &'a BTreeMap<String, ObservedCrd>,
    /// APIs in discovery.
    pub apis: &'a BTreeSet<Api>,
    /// By name, `VERSION.GROUP`.
    pub api_services: &'a BTreeMap<String, ObservedApiService>,
    /// Whether the CSV that this one replaces is in its namespace.
    pub has_replaced: bool,
    /// By name.
    pub service_accounts: &'a BTreeMap<String, ObservedServiceAccount>,
    /// Whether a ServiceAccount may do what a rule, as JSON, names.
    pub may: &'a dyn Fn(&str, RuleScope, &Value) -> bool,
}

const PRESENT: &str = "Present";
const NOT_PRESENT: &str = "NotPresent";
const NOT_SATISFIED: &str = "PresentNotSatisfied";
const NOT_AVAILABLE: &str = "PresentNotAvailable";
/// Of a rule that an account lacks.
const NOT_ALLOWED: &str = "NotSatisfied";

/// Holds the requirements of a CSV against the cluster.
#[must_use]
pub fn check(csv: &ClusterServiceVersion, cluster: &Cluster<'_>) -> Requirements {
    let mut statuses: Vec<_> = kubernetes_version(csv, cluster).into_iter().collect();
    if let Some(crds) = &csv.spec.custom_resource_definitions {
        for crd in crds.owned.iter().chain(&crds.required) {
            statuses.push(custom_resource_definition(csv, cluster, &crd.name, &crd.version));
        }
    }
    if let Some(services) = &csv.spec.api_service_definitions {
        for service in &services.owned {
            let is_found = has_deployment(csv, &service.deployment_name);
            let name = format!("{}.{}", service.version, service.group);
            statuses.push(if is_found {
                api_service(&name, "DeploymentFound", "", "")
            } else {
                let message = format!(
                    "deployment {:?} is not in spec.install.spec.deployments",
                    service.deployment_name
                );
                api_service(&name, "DeploymentNotFound", &message, "")
            });
        }
        for service in &services.required {
            let api = (service.group.clone(), service.version.clone(), service.kind.clone());
            statuses.push(required_api_service(cluster, &api));
        }
    }
    for native in &csv.spec.native_apis {
        let api = (native.group.clone(), native.version.clone(), native.kind.clone());
        let is_there = cluster.apis.contains(&api);
        statuses.push(RequirementStatus {
            group: api.0.clone(),
            version: api.1.clone(),
            kind: api.2.clone(),
            name: format!("{}.{}", api.1, api.0),
            status: if is_there { PRESENT } else { NOT_PRESENT }.to_owned(),
            message: if is_there { "Native API exists" } else { "Native API does not exist" }.to_owned(),
            ..RequirementStatus::default()
        });
    }
    statuses.extend(service_accounts(csv, cluster));
    Requirements { are_met: statuses.iter().all(is_met), statuses }
}

fn kubernetes_version(csv: &ClusterServiceVersion, cluster: &Cluster<'_>) -> Option<RequirementStatus> {
    let lowest = csv.spec.min_kube_version.as_str();
    if lowest.is_empty() {
        return None;
    }
    let server = cluster.version;
    let (status, message) = match lowest_kubernetes(lowest) {
        Err(error) => (NOT_SATISFIED, format!("CSV version parsing error: spec.minKubeVersion: {error}")),
        Ok(version) if server.is_at_least(&version) => {
            (PRESENT, format!("CSV minKubeVersion ({lowest}) less than server version ({server})"))
        }
        Ok(_) => (
            NOT_SATISFIED,
            format!("CSV version requirement not met: minKubeVersion ({lowest}) > server version ({server})"),
        ),
    };
    Some(RequirementStatus {
        group: "operators.coreos.com".to_owned(),
        version: "v1alpha1".to_owned(),
        kind: KIND.to_owned(),
        name: name(csv).to_owned(),
        status: status.to_owned(),
        message,
        ..RequirementStatus::default()
    })
}

fn custom_resource_definition(
    csv: &ClusterServiceVersion,
    cluster: &Cluster<'_>,
    crd: &str,
    version: &str,
) -> RequirementStatus {
    let found = cluster.crds.get(crd);
    let left = found.filter(|_| cluster.has_replaced).and_then(|found| leftover(csv, found));
    let (status, message) = match found {
        _ if left.is_some() => {
            let others = left.unwrap_or_default();
            (NOT_SATISFIED, format!("CRD installed alongside other CSV(s): {others}"))
        }
        None => (NOT_PRESENT, "CRD is not present".to_owned()),
        Some(found) if !found.served_versions.contains(version) => {
            (NOT_PRESENT, "CRD version not served".to_owned())
        }
        Some(found) if !found.is_established => {
            (NOT_AVAILABLE, "CRD is present but the Established condition is False".to_owned())
        }
        Some(found) if !found.are_names_accepted => {
            (NOT_AVAILABLE, "CRD is present but the NamesAccepted condition is False".to_owned())
        }
        Some(_) => (PRESENT, "CRD is present and Established condition is true".to_owned()),
    };
    RequirementStatus {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        name: crd.to_owned(),
        status: status.to_owned(),
        message,
        uuid: found.map(|found| found.uid.clone()).unwrap_or_default(),
        ..RequirementStatus::default()
    }
}

/// The names of the CSVs of the namespace that came with a CustomResourceDefinition, when the replaced CSV is among them and this one is not:
/// the plan has not updated the definition yet.
fn leftover(csv: &ClusterServiceVersion, crd: &ObservedCrd) -> Option<String> {
    let here = |entry: &'_ String| {
        entry.strip_prefix(namespace(csv)).and_then(|rest| rest.strip_prefix('/')).map(str::to_owned)
    };
    let names: Vec<String> = crd.installed_alongside.iter().filter_map(here).collect();
    let has = |name: &str| names.iter().any(|other| other == name);
    (!csv.spec.replaces.is_empty() && has(&csv.spec.replaces) && !has(name(csv))).then(|| names.join(", "))
}

fn has_deployment(csv: &ClusterServiceVersion, name: &str) -> bool {
    let strategy = csv.spec.install.spec.iter();
    strategy.flat_map(|strategy| &strategy.deployments).any(|deployment| deployment.name == name)
}

fn required_api_service(cluster: &Cluster<'_>, api: &Api) -> RequirementStatus {
    let name = format!("{}.{}", api.1, api.0);
    let Some(found) = cluster.api_services.get(&name) else {
        return api_service(&name, NOT_PRESENT, "APIService is not present", "");
    };
    let (status, message) = match (cluster.apis.contains(api), found.is_available) {
        (true, true) => (PRESENT, String::new()),
        (true, false) => (NOT_AVAILABLE, "APIService is not available".to_owned()),
        (false, false) => {
            (NOT_PRESENT, format!("APIService is not available, so its kind {} is not in discovery", api.2))
        }
        (false, true) => {
            (NOT_PRESENT, format!("kind {} is not in the discovery of {}/{}", api.2, api.0, api.1))
        }
    };
    api_service(&name, status, &message, &found.uid)
}

fn api_service(name: &str, status: &str, message: &str, uid: &str) -> RequirementStatus {
    RequirementStatus {
        group: "apiregistration.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "APIService".to_owned(),
        name: name.to_owned(),
        status: status.to_owned(),
        message: message.to_owned(),
        uuid: uid.to_owned(),
        ..RequirementStatus::default()
    }
}

fn service_accounts(csv: &ClusterServiceVersion, cluster: &Cluster<'_>) -> Vec<RequirementStatus> {
    let mut rules: BTreeMap<&str, Vec<(RuleScope, Value)>> = BTreeMap::new();
    for strategy in csv.spec.install.spec.iter() {
        let scopes = [
            (RuleScope::Namespace, &strategy.permissions),
            (RuleScope::Cluster, &strategy.cluster_permissions),
        ];
        for (scope, permissions) in scopes {
            for permission in permissions {
                let of_account = rules.entry(permission.service_account_name.as_str()).or_default();
                of_account.extend(permission.rules.iter().map(|rule| (scope, json!(rule))));
            }
        }
    }
    rules.into_iter().map(|(account, rules)| service_account(csv, cluster, account, &rules)).collect()
}

fn service_account(
    csv: &ClusterServiceVersion,
    cluster: &Cluster<'_>,
    account: &str,
    rules: &[(RuleScope, Value)],
) -> RequirementStatus {
    let status = |status: &str, message: &str, uid: &str| RequirementStatus {
        version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: account.to_owned(),
        status: status.to_owned(),
        message: message.to_owned(),
        uuid: uid.to_owned(),
        ..RequirementStatus::default()
    };
    let Some(found) = cluster.service_accounts.get(account) else {
        return status(NOT_PRESENT, "Service account does not exist", "");
    };
    if !found.owners.is_empty() && !found.owners.contains(name(csv)) {
        let message = "Service account is owned by another ClusterServiceVersion";
        return status(NOT_SATISFIED, message, &found.uid);
    }
    let dependents: Vec<_> = rules
        .iter()
        .map(|(scope, rule)| {
            let is_allowed = (cluster.may)(account, *scope, rule);
            let scope = match scope {
                RuleScope::Namespace => "namespaced",
                RuleScope::Cluster => "cluster",
            };
            DependentStatus {
                group: "rbac.authorization.k8s.io".to_owned(),
                version: "v1".to_owned(),
                kind: "PolicyRule".to_owned(),
                status: if is_allowed { "Satisfied" } else { NOT_ALLOWED }.to_owned(),
                message: format!("{scope} rule:{}", rule_text(rule)),
                ..DependentStatus::default()
            }
        })
        .collect();
    let is_met = dependents.iter().all(|dependent| dependent.status == "Satisfied");
    let mut all = if is_met {
        status(PRESENT, "", &found.uid)
    } else {
        status(NOT_SATISFIED, "Policy rule not satisfied for service account", &found.uid)
    };
    all.dependents = dependents;
    all
}

/// A rule as Go encodes its struct: members in the struct's order, empty optional lists left out.
fn rule_text(rule: &Value) -> String {
    let list =
        |member: &str| rule.get(member).filter(|list| list.as_array().is_some_and(|list| !list.is_empty()));
    let verbs = rule.get("verbs").map_or_else(|| "null".to_owned(), go::json_string);
    let optional = ["apiGroups", "resources", "resourceNames", "nonResourceURLs"]
        .into_iter()
        .filter_map(|member| Some(format!(",\"{member}\":{}", go::json_string(list(member)?))));
    format!("{{\"verbs\":{verbs}{}}}", optional.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn csv(spec: Value) -> ClusterServiceVersion {
        let mut all = json!({"displayName": "d", "install": {"strategy": "deployment"}});
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "demo.v2", "namespace": "a"}, "spec": all}))
            .unwrap()
    }

    fn crd(change: impl FnOnce(&mut ObservedCrd)) -> ObservedCrd {
        let mut crd = ObservedCrd {
            uid: "u".to_owned(),
            served_versions: BTreeSet::from(["v1".to_owned()]),
            is_established: true,
            are_names_accepted: true,
            installed_alongside: BTreeSet::new(),
        };
        change(&mut crd);
        crd
    }

    fn alongside(names: &[&str]) -> ObservedCrd {
        crd(|crd| crd.installed_alongside = names.iter().map(|name| (*name).to_owned()).collect())
    }

    static CRDS: BTreeMap<String, ObservedCrd> = BTreeMap::new();
    static APIS: BTreeSet<Api> = BTreeSet::new();
    static API_SERVICES: BTreeMap<String, ObservedApiService> = BTreeMap::new();
    static ACCOUNTS: BTreeMap<String, ObservedServiceAccount> = BTreeMap::new();

    fn empty<'a>() -> Cluster<'a> {
        Cluster {
            version: "1.33.1".parse().unwrap(),
            crds: &CRDS,
            apis: &APIS,
            api_services: &API_SERVICES,
            has_replaced: true,
            service_accounts: &ACCOUNTS,
            may: &|_, _, _| false,
        }
    }

    /// Whether all are met, and `STATUS: MESSAGE` of each.
    fn check_with<'a>(
        csv: &ClusterServiceVersion,
        change: impl FnOnce(&mut Cluster<'a>),
    ) -> (bool, Vec<String>) {
        let mut cluster = empty();
        change(&mut cluster);
        let got = check(csv, &cluster);
        (got.are_met, got.statuses.iter().map(|it| format!("{}: {}", it.status, it.message)).collect())
    }

    #[test]
    fn requirements_compare_version_of_kubernetes() {
        for (lowest, are_met, want) in [
            ("1.33.0", true, "Present: CSV minKubeVersion (1.33.0) less than server version (1.33.1)"),
            ("v1.33", true, "Present: CSV minKubeVersion (v1.33) less than server version (1.33.1)"),
            (
                "1.34.0",
                false,
                "PresentNotSatisfied: CSV version requirement not met: minKubeVersion (1.34.0) > server version (1.33.1)",
            ),
            (
                "new",
                false,
                "PresentNotSatisfied: CSV version parsing error: spec.minKubeVersion: \"new\" is no version of Kubernetes; write it like 1.33 or v1.33.1",
            ),
        ] {
            let got = check_with(&csv(json!({"minKubeVersion": lowest})), |_| {});
            assert_eq!(got, (are_met, vec![want.to_owned()]), "{lowest}");
        }
        assert_eq!(check_with(&csv(json!({})), |_| {}), (true, vec![]));
    }

    #[test]
    #[rustfmt::skip]
    fn requirements_check_crds() {
        let entry = json!([{"name": "as.x", "kind": "A", "version": "v1"}]);
        for (found, are_met, want) in [
            (None, false, "NotPresent: CRD is not present"),
            (Some(crd(|_| {})), true, "Present: CRD is present and Established condition is true"),
            (Some(crd(|crd| crd.served_versions.clear())), false, "NotPresent: CRD version not served"),
            (Some(crd(|crd| crd.is_established = false)), false,
                "PresentNotAvailable: CRD is present but the Established condition is False"),
            (Some(crd(|crd| crd.are_names_accepted = false)), false,
                "PresentNotAvailable: CRD is present but the NamesAccepted condition is False"),
            (Some(alongside(&["a/demo.v1"])), false, "PresentNotSatisfied: CRD installed alongside other CSV(s): demo.v1"),
            (Some(alongside(&["a/demo.v1", "a/demo.v2"])), true, "Present: CRD is present and Established condition is true"),
            (Some(alongside(&["b/demo.v1", "a/other.v1"])), true, "Present: CRD is present and Established condition is true"),
        ] {
            for member in ["owned", "required"] {
                let csv = csv(json!({"replaces": "demo.v1", "customresourcedefinitions": {member: entry}}));
                let crds = found.clone().map(|crd| ("as.x".to_owned(), crd)).into_iter().collect();
                let got = check_with(&csv, |cluster| cluster.crds = &crds);
                assert_eq!(got, (are_met, vec![want.to_owned()]), "{member} {found:?}");
            }
        }
        // a definition of a backup names CSVs that are gone
        let csv = csv(json!({"replaces": "demo.v1", "customresourcedefinitions": {"owned": entry}}));
        let crds = [("as.x".to_owned(), alongside(&["a/demo.v1"]))].into();
        let got = check_with(&csv, |cluster| (cluster.crds, cluster.has_replaced) = (&crds, false));
        assert!(got.0, "{got:?}");
    }

    #[test]
    fn requirements_check_apis() {
        let service =
            json!([{"name": "as", "group": "x", "version": "v1", "kind": "A", "deploymentName": "manager"}]);
        let owned = |deployment: &str| {
            csv(json!({
                "apiservicedefinitions": {"owned": service},
                "install": {"strategy": "deployment", "spec": {"deployments": [{"name": deployment, "spec": {}}]}},
            }))
        };
        assert_eq!(check_with(&owned("manager"), |_| {}), (true, vec!["DeploymentFound: ".to_owned()]));
        let want = "DeploymentNotFound: deployment \"manager\" is not in spec.install.spec.deployments";
        assert_eq!(check_with(&owned("other"), |_| {}), (false, vec![want.to_owned()]));

        let required = csv(json!({"apiservicedefinitions": {"required": service}}));
        let api = BTreeSet::from([("x".to_owned(), "v1".to_owned(), "A".to_owned())]);
        for (found, apis, are_met, want) in [
            (None, &api, false, "NotPresent: APIService is not present"),
            (Some(false), &api, false, "PresentNotAvailable: APIService is not available"),
            (
                Some(false),
                &APIS,
                false,
                "NotPresent: APIService is not available, so its kind A is not in discovery",
            ),
            (Some(true), &APIS, false, "NotPresent: kind A is not in the discovery of x/v1"),
            (Some(true), &api, true, "Present: "),
        ] {
            let service = |is_available| ObservedApiService { is_available, ..ObservedApiService::default() };
            let services =
                found.map(|is_available| ("v1.x".to_owned(), service(is_available))).into_iter().collect();
            let got =
                check_with(&required, |cluster| (cluster.api_services, cluster.apis) = (&services, apis));
            assert_eq!(got, (are_met, vec![want.to_owned()]), "{found:?}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn requirements_check_accounts_and_rules() {
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a<b"], "nonResourceURLs": []});
        let csv = csv(json!({"install": {"strategy": "deployment", "spec": {
            "deployments": [],
            "permissions": [{"serviceAccountName": "b", "rules": [rule]}, {"serviceAccountName": "a", "rules": []}],
            "clusterPermissions": [{"serviceAccountName": "b", "rules": [rule]}],
        }}}));
        let account = |owner: &str| {
            let owners = Some(owner.to_owned()).filter(|owner| !owner.is_empty()).into_iter().collect();
            ("b".to_owned(), ObservedServiceAccount { uid: String::new(), owners })
        };
        let a = || ("a".to_owned(), ObservedServiceAccount::default());
        for (accounts, is_allowed, want) in [
            (vec![a()], true, ["Present: ", "NotPresent: Service account does not exist"]),
            (vec![a(), account("")], true, ["Present: ", "Present: "]),
            (vec![a(), account("demo.v2")], true, ["Present: ", "Present: "]),
            (vec![a(), account("demo.v1")], true,
                ["Present: ", "PresentNotSatisfied: Service account is owned by another ClusterServiceVersion"]),
            (vec![a(), account("")], false, ["Present: ", "PresentNotSatisfied: Policy rule not satisfied for service account"]),
        ] {
            let accounts = accounts.into_iter().collect();
            let may = |name: &str, scope: RuleScope, _: &Value| {
                name == "b" && (is_allowed || scope == RuleScope::Namespace)
            };
            let got = check_with(&csv, |cluster| (cluster.service_accounts, cluster.may) = (&accounts, &may));
            assert_eq!(got.1, want, "{accounts:?}");
        }
        let accounts = [a(), account("")].into_iter().collect();
        let may = |_: &str, scope: RuleScope, _: &Value| scope == RuleScope::Namespace;
        let cluster = Cluster { service_accounts: &accounts, may: &may, ..empty() };
        let checked = check(&csv, &cluster);
        let dependents: Vec<_> = checked.statuses[1]
            .dependents
            .iter()
            .map(|it| format!("{} {}", it.status, it.message))
            .collect();
        let text = "{\"verbs\":[\"get\"],\"apiGroups\":[\"\"],\"resources\":[\"pods\"],\"resourceNames\":[\"a\\u003cb\"]}";
        assert_eq!(
            dependents,
            [format!("Satisfied namespaced rule:{text}"), format!("NotSatisfied cluster rule:{text}")]
        );
        let want = "ServiceAccount b: PresentNotSatisfied Policy rule not satisfied for service account";
        assert_eq!(checked.unmet(), [format!("{want} (cluster rule:{text})")]);
    }
}
