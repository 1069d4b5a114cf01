//! The served resources: a table of built-in ones, and those of CustomResourceDefinitions.

use std::sync::Arc;

use serde_json::{Value, json};

use super::fields::FieldSet;
use super::schema::{self, Node};

/// Which changes raise `metadata.generation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Generation {
    /// It is not set.
    Never,
    Spec,
    SpecOrAnnotations,
    /// Every field but metadata, and status where that is a subresource.
    Content,
}

/// A version of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) node: Arc<Node>,
    pub(crate) has_status: bool,
    /// The OpenAPI schema of a custom resource.
    pub(crate) schema: Option<Arc<Value>>,
}

/// A resource.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) singular: String,
    pub(crate) is_namespaced: bool,
    pub(crate) is_custom: bool,
    pub(crate) generation: Generation,
    /// PUT without a resource version replaces any state.
    pub(crate) updates_unconditionally: bool,
    /// The served versions; the first is the one of the definition's storage.
    pub(crate) versions: Vec<Version>,
    /// The object that a creation is compared with: what Go's zero value of the type prints.
    pub(crate) zero: Value,
    /// Fields that requests of the object cannot write.
    pub(crate) reset: FieldSet,
    /// Fields that requests of the subresource `status` cannot write.
    pub(crate) status_reset: FieldSet,
}

impl Kind {
    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }
}

/// Group, versions, plural, kind, and letters: `n` namespaced, `s` status subresource, `g` generation of the spec, `c` of all content,
/// `a` also of annotations, `r` PUT needs a resource version.
const BUILT_IN: &str = "
    - v1 namespaces Namespace s
    - v1 configmaps ConfigMap n
    - v1 secrets Secret n
    - v1 serviceaccounts ServiceAccount n
    - v1 services Service ns
    - v1 pods Pod ns
    - v1 nodes Node s
    - v1 events Event n
    - v1 endpoints Endpoints n
    - v1 persistentvolumeclaims PersistentVolumeClaim ns
    - v1 persistentvolumes PersistentVolume s
    - v1 resourcequotas ResourceQuota ns
    - v1 limitranges LimitRange n
    apps v1 deployments Deployment nsga
    apps v1 daemonsets DaemonSet nsg
    apps v1 statefulsets StatefulSet nsg
    apps v1 replicasets ReplicaSet nsg
    batch v1 jobs Job nsg
    batch v1 cronjobs CronJob nsg
    autoscaling v2 horizontalpodautoscalers HorizontalPodAutoscaler ns
    rbac.authorization.k8s.io v1 clusterroles ClusterRole -
    rbac.authorization.k8s.io v1 clusterrolebindings ClusterRoleBinding -
    rbac.authorization.k8s.io v1 roles Role n
    rbac.authorization.k8s.io v1 rolebindings RoleBinding n
    coordination.k8s.io v1 leases Lease nr
    events.k8s.io v1 events Event n
    networking.k8s.io v1 networkpolicies NetworkPolicy ng
    networking.k8s.io v1 ingresses Ingress nsg
    policy v1 poddisruptionbudgets PodDisruptionBudget nsg
    storage.k8s.io v1 storageclasses StorageClass -
    scheduling.k8s.io v1 priorityclasses PriorityClass -
    admissionregistration.k8s.io v1 validatingwebhookconfigurations ValidatingWebhookConfiguration c
    admissionregistration.k8s.io v1 mutatingwebhookconfigurations MutatingWebhookConfiguration c
    admissionregistration.k8s.io v1 validatingadmissionpolicies ValidatingAdmissionPolicy sgr
    admissionregistration.k8s.io v1 validatingadmissionpolicybindings ValidatingAdmissionPolicyBinding gr
    apiregistration.k8s.io v1 apiservices APIService s
    apiextensions.k8s.io v1 customresourcedefinitions CustomResourceDefinition sgr
";

/// Resources that only answer POST and store nothing.
pub(crate) const REVIEWS: [(&str, &str, &str, bool); 5] = [
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", false),
];

/// The built-in resources.
pub(crate) fn built_in() -> Vec<Kind> {
    BUILT_IN.lines().filter_map(row).collect()
}

fn row(line: &str) -> Option<Kind> {
    let mut words = line.split_whitespace();
    let (group, version, plural, kind, letters) =
        (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let has = |letter: char| letters.contains(letter);
    let has_status = has('s');
    let generation = match (has('g'), has('a'), has('c')) {
        (true, true, _) => Generation::SpecOrAnnotations,
        (true, ..) => Generation::Spec,
        (_, _, true) => Generation::Content,
        _ => Generation::Never,
    };
    let reset: &[&[&str]] = if has_status { &[&["status"]] } else { &[] };
    let status_reset: &[&[&str]] = match kind {
        "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet" => &[&["spec"], &["metadata", "labels"]],
        _ => &[&["spec"]],
    };
    let node = schema::of_built_in(kind);
    Some(Kind {
        group: group.trim_start_matches('-').to_owned(),
        plural: plural.to_owned(),
        kind: kind.to_owned(),
        list_kind: format!("{kind}List"),
        singular: kind.to_lowercase(),
        is_namespaced: has('n'),
        is_custom: false,
        generation,
        updates_unconditionally: !has('r'),
        versions: vec![Version { name: version.to_owned(), node, has_status, schema: None }],
        zero: zero(kind),
        reset: FieldSet::of_names(reset),
        status_reset: FieldSet::of_names(status_reset),
    })
}

fn zero(kind: &str) -> Value {
    let pods = || json!({"metadata": {}, "spec": {"containers": null}});
    match kind {
        "Deployment" => {
            json!({"metadata": {}, "spec": {"selector": null, "strategy": {}, "template": pods()}, "status": {}})
        }
        "DaemonSet" => {
            json!({"metadata": {}, "spec": {"selector": null, "updateStrategy": {}, "template": pods()},
                "status": {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0}})
        }
        "StatefulSet" => {
            json!({"metadata": {}, "spec": {"selector": null, "updateStrategy": {}, "template": pods(), "serviceName": ""},
                "status": {"replicas": 0, "availableReplicas": 0}})
        }
        "ReplicaSet" => json!({"metadata": {}, "spec": {"selector": null}, "status": {"replicas": 0}}),
        "Job" => json!({"metadata": {}, "spec": {"template": pods()}, "status": {}}),
        "Service" => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        "Pod" => json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
        "Namespace" | "Node" | "Lease" | "NetworkPolicy" | "Ingress" | "PodDisruptionBudget" => {
            json!({"metadata": {}, "spec": {}, "status": {}})
        }
        "ClusterRole" | "Role" => json!({"metadata": {}, "rules": null}),
        "ClusterRoleBinding" | "RoleBinding" => {
            json!({"metadata": {}, "roleRef": {"apiGroup": "", "kind": "", "name": ""}})
        }
        "CustomResourceDefinition" => json!({"metadata": {},
            "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": null},
            "status": {"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}}),
        _ => json!({"metadata": {}}),
    }
}

/// The resource of a CustomResourceDefinition; `None` if it is none.
pub(crate) fn of_crd(crd: &Value) -> Option<Kind> {
    let text = |path: &str| crd.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let version = |version: &Value| {
        let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        Some(Version {
            name: version["name"].as_str()?.to_owned(),
            node: schema::of_crd(&schema),
            has_status: version.pointer("/subresources/status").is_some(),
            schema: Some(Arc::new(schema)),
        })
    };
    let served = versions.iter().filter(|version| version["served"] == true);
    let mut served: Vec<&Value> = served.collect();
    served.sort_by_key(|version| version["storage"] != true);
    let versions: Vec<Version> = served.into_iter().filter_map(version).collect();
    let kind = text("/spec/names/kind")?;
    let has_status = versions.iter().any(|version| version.has_status);
    let reset: &[&[&str]] = if has_status { &[&["status"]] } else { &[] };
    Some(Kind {
        group: text("/spec/group")?,
        plural: text("/spec/names/plural")?,
        list_kind: text("/spec/names/listKind").unwrap_or_else(|| format!("{kind}List")),
        singular: text("/spec/names/singular").unwrap_or_else(|| kind.to_lowercase()),
        kind,
        is_namespaced: text("/spec/scope")? == "Namespaced",
        is_custom: true,
        generation: Generation::Content,
        updates_unconditionally: false,
        versions,
        zero: json!({"metadata": {}}),
        reset: FieldSet::of_names(reset),
        status_reset: FieldSet::of_names(&[&["spec"]]),
    })
}
