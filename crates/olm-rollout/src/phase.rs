//! The phase of each object, and the order.
//!
//! Phases of more than [`MAX_OBJECTS`] objects are split into numbered ones (`crds`, `crds-2`, …), because the API
//! takes no more in one phase (decision 10). Rule: bundle-rendering §14, revisions §14.

use olm_core::{Object, ObjectKey};

/// Most objects that the API takes in one phase.
pub const MAX_OBJECTS: usize = 50;
/// Most phases that the API takes in one revision.
pub const MAX_PHASES: usize = 20;

/// Objects that are rolled out together.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// Name, a DNS-1035 label.
    pub name: String,
    /// Objects in the order in which they are applied.
    pub objects: Vec<Object>,
}

/// Why objects cannot be laid out in phases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{objects} objects need {phases} phases, but a revision holds at most {MAX_PHASES} phases of {MAX_OBJECTS} objects; \
     the bundle must have fewer objects"
)]
pub struct TooManyPhases {
    /// Number of objects given.
    pub objects: usize,
    /// Number of phases that they would need.
    pub phases: usize,
}

/// The order of phases; unknown kinds go to `deploy`.
const ORDER: [&str; 13] = [
    "namespaces",
    "policies",
    "identity",
    "configuration",
    "storage",
    "crds",
    "roles",
    "bindings",
    "infrastructure",
    "deploy",
    "scaling",
    "publish",
    "admission",
];
/// From here on, objects run or are called.
const INFRASTRUCTURE: usize = 8;
const DEPLOY: usize = 9;

/// Index into [`ORDER`] of a group and kind; the version does not matter.
fn place(group: &str, kind: &str) -> usize {
    match (group, kind) {
        ("", "Namespace") => 0,
        ("networking.k8s.io", "NetworkPolicy")
        | ("policy", "PodDisruptionBudget")
        | ("scheduling.k8s.io", "PriorityClass") => 1,
        ("", "ServiceAccount") => 2,
        ("", "Secret" | "ConfigMap") => 3,
        ("", "PersistentVolume" | "PersistentVolumeClaim") | ("storage.k8s.io", "StorageClass") => 4,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 5,
        ("rbac.authorization.k8s.io", "ClusterRole" | "Role") => 6,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => 7,
        ("", "Service") | ("cert-manager.io", "Issuer" | "Certificate") => 8,
        ("autoscaling.k8s.io", "VerticalPodAutoscaler") => 10,
        ("monitoring.coreos.com", "PrometheusRule" | "ServiceMonitor" | "PodMonitor")
        | ("networking.k8s.io", "Ingress")
        | ("route.openshift.io", "Route")
        | (
            "console.openshift.io",
            "ConsoleYAMLSample" | "ConsoleQuickStart" | "ConsoleCLIDownload" | "ConsoleLink"
            | "ConsolePlugin",
        ) => 11,
        (
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration",
        ) => 12,
        _ => DEPLOY,
    }
}

/// Lays objects out in phases: by kind, then sorted by group, version, kind, namespace and name. Empty phases are
/// left out.
///
/// # Errors
/// When more than [`MAX_PHASES`] phases would be needed.
pub fn phases(objects: Vec<Object>) -> Result<Vec<Phase>, TooManyPhases> {
    let total = objects.len();
    let mut places: [Vec<Object>; ORDER.len()] = Default::default();
    for object in objects {
        let place = place(object.group(), object.kind());
        if let Some(members) = places.get_mut(place) {
            members.push(object);
        }
    }
    let mut phases = vec![];
    for (name, mut members) in ORDER.into_iter().zip(places) {
        members.sort_by_cached_key(Object::key);
        let mut rest = members.into_iter().peekable();
        let mut number = 1;
        while rest.peek().is_some() {
            let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            phases.push(Phase { name, objects: rest.by_ref().take(MAX_OBJECTS).collect() });
            number += 1;
        }
    }
    if phases.len() > MAX_PHASES {
        return Err(TooManyPhases { objects: total, phases: phases.len() });
    }
    Ok(phases)
}

/// Whether a phase with this name and these objects holds only what neither runs nor is called, such as accounts, roles and CRDs:
/// once the phases after it are gone, the order in which such phases go does not matter.
pub fn is_passive<'a>(name: &str, objects: impl IntoIterator<Item = &'a ObjectKey>) -> bool {
    let base = name.trim_end_matches(|letter: char| letter.is_ascii_digit()).trim_end_matches('-');
    let found = ORDER.iter().position(|known| *known == base).filter(|index| *index < INFRASTRUCTURE);
    found.is_some_and(|index| objects.into_iter().all(|key| place(&key.group, &key.kind) == index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Object {
        let mut object =
            Object::from_value(json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}))
                .unwrap();
        if let Some(namespace) = namespace {
            object.set_namespace(namespace);
        }
        object
    }

    #[test]
    fn phase_without_running_parts_is_passive() {
        let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        for (name, (api_version, kind), want) in [
            ("crds", crd, true),
            ("crds-2", crd, true),
            ("configuration", ("v1", "ConfigMap"), true),
            ("configuration", ("v1", "Pod"), false),
            ("infrastructure", ("v1", "Service"), false),
            ("deploy", ("apps/v1", "Deployment"), false),
            ("deploy", ("v1", "ConfigMap"), false),
            ("admission", ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"), false),
            // the order of phases that a user named is the user's
            ("first", ("v1", "ConfigMap"), false),
        ] {
            let key = object(api_version, kind, None, "x").key();
            assert_eq!(is_passive(name, [&key]), want, "{name} {kind}");
        }
    }

    #[test]
    fn phase_of_a_kind_is_the_same_for_all_versions() {
        for (api_version, kind, want) in [
            ("v1", "Namespace", "namespaces"),
            ("networking.k8s.io/v1", "NetworkPolicy", "policies"),
            ("policy/v1beta1", "PodDisruptionBudget", "policies"),
            ("scheduling.k8s.io/v1", "PriorityClass", "policies"),
            ("v1", "ServiceAccount", "identity"),
            ("v1", "Secret", "configuration"),
            ("v1", "ConfigMap", "configuration"),
            ("v1", "PersistentVolume", "storage"),
            ("v1", "PersistentVolumeClaim", "storage"),
            ("storage.k8s.io/v1", "StorageClass", "storage"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "crds"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "roles"),
            ("rbac.authorization.k8s.io/v1", "Role", "roles"),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "bindings"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding", "bindings"),
            ("v1", "Service", "infrastructure"),
            ("cert-manager.io/v1", "Issuer", "infrastructure"),
            ("cert-manager.io/v1", "Certificate", "infrastructure"),
            ("cert-manager.io/v1", "ClusterIssuer", "deploy"),
            ("apps/v1", "Deployment", "deploy"),
            ("apps/v1", "DaemonSet", "deploy"),
            ("autoscaling/v2", "HorizontalPodAutoscaler", "deploy"),
            ("example.com/v1", "Service", "deploy"),
            ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "scaling"),
            ("monitoring.coreos.com/v1", "PrometheusRule", "publish"),
            ("monitoring.coreos.com/v1", "ServiceMonitor", "publish"),
            ("monitoring.coreos.com/v1", "PodMonitor", "publish"),
            ("networking.k8s.io/v1", "Ingress", "publish"),
            ("route.openshift.io/v1", "Route", "publish"),
            ("console.openshift.io/v1", "ConsolePlugin", "publish"),
            ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "admission"),
            ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "admission"),
        ] {
            let got = phases(vec![object(api_version, kind, None, "x")]).unwrap();
            assert_eq!(got.len(), 1);
            assert_eq!(got[0].name, want, "{api_version} {kind}");
        }
    }

    #[test]
    fn phase_order_of_phases_and_objects() {
        let got = phases(vec![
            object("apps/v1", "Deployment", Some("b"), "a"),
            object("apps/v1", "Deployment", Some("a"), "z"),
            object("v1", "Pod", Some("a"), "p"),
            object("apps/v1", "DaemonSet", Some("z"), "z"),
            object("v1", "Secret", Some("a"), "s"),
            object("v1", "ConfigMap", Some("a"), "c"),
            object("v1", "Namespace", None, "a"),
        ])
        .unwrap();
        let got: Vec<(String, Vec<String>)> = got
            .into_iter()
            .map(|phase| (phase.name, phase.objects.iter().map(|object| object.key().objref()).collect()))
            .collect();
        #[rustfmt::skip]
        let want: [(&str, &[&str]); 3] = [
            ("namespaces", &["/v1, Kind=Namespace /a"]),
            ("configuration", &["/v1, Kind=ConfigMap a/c", "/v1, Kind=Secret a/s"]),
            ("deploy",
                &["/v1, Kind=Pod a/p", "apps/v1, Kind=DaemonSet z/z", "apps/v1, Kind=Deployment a/z", "apps/v1, Kind=Deployment b/a"]),
        ];
        for ((name, objects), (want_name, want_objects)) in got.iter().zip(want) {
            assert_eq!(
                (name.as_str(), objects.iter().map(String::as_str).collect::<Vec<_>>()),
                (want_name, want_objects.to_vec())
            );
        }
        assert_eq!(got.len(), want.len());
    }

    #[test]
    fn phase_that_is_large_is_split_and_too_many_are_rejected() {
        let bulk = |kind: &str, count: usize| -> Vec<Object> {
            (0..count).map(|n| object("v1", kind, Some("n"), &format!("x-{n:04}"))).collect()
        };
        let sizes = |count| -> Vec<(String, usize)> {
            phases(bulk("ConfigMap", count))
                .unwrap()
                .into_iter()
                .map(|phase| (phase.name, phase.objects.len()))
                .collect()
        };
        assert_eq!(sizes(50), [("configuration".to_owned(), 50)]);
        assert_eq!(sizes(61), [("configuration".to_owned(), 50), ("configuration-2".to_owned(), 11)]);
        assert_eq!(sizes(1000).len(), 20);
        let refused = phases(bulk("ConfigMap", 1001)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "1001 objects need 21 phases, but a revision holds at most 20 phases of 50 objects; the bundle must have fewer objects"
        );
    }
}
