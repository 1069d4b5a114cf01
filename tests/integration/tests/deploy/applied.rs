//! Every overlay and option against a real apiserver: schemas, CEL, references between objects, and pod security.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use olm_kit::{Cluster, Options, SYSTEM_NAMESPACE, Wait};
use serde_json::{Value, json};

use crate::chart::template;
use crate::manifests::{OPTIONS, OVERLAYS, apply, apply_dry, find, folder, prepare, render, write_list};
use crate::world::LIMIT;

#[tokio::test]
async fn overlays_and_options_are_accepted_unchanged() -> Result<()> {
    let options = tempfile::tempdir()?;
    for option in OPTIONS {
        write_list(&options.path().join(format!("{}.json", option.replace('/', "_"))), &render(option)?)?;
    }
    for overlay in OVERLAYS {
        let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
        prepare(&cluster).await?;
        apply(&cluster, overlay)?;
        // and again: nothing in it cannot be updated
        apply(&cluster, overlay)?;
        apply_dry(&cluster, options.path(), &[])?;
    }
    Ok(())
}

#[test]
fn overlays_are_all_tested() -> Result<()> {
    for (kind, known) in [("overlays", OVERLAYS), ("options", OPTIONS)] {
        let mut there = Vec::new();
        for entry in std::fs::read_dir(folder(kind))? {
            there.push(format!("{kind}/{}", entry?.file_name().to_string_lossy()));
        }
        let mut known: Vec<String> = known.iter().map(|&path| path.to_owned()).collect();
        there.sort();
        known.sort();
        assert_eq!(there, known);
    }
    Ok(())
}

#[tokio::test]
async fn pods_run_where_pod_security_is_restricted() -> Result<()> {
    let cluster = Cluster::start().await?;
    prepare(&cluster).await?;
    apply(&cluster, "overlays/kubernetes")?;
    let namespace = serde_json::json!(
        find(&render("overlays/kubernetes")?, "Namespace", SYSTEM_NAMESPACE)?["metadata"]["labels"]
    );
    assert_eq!(namespace["pod-security.kubernetes.io/enforce"], "restricted");
    let deployments: Api<Deployment> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    for name in ["catalogd-controller-manager", "operator-controller-controller-manager"] {
        Wait::new(&deployments, name)
            .within(LIMIT)
            .until("has two pods available", |deployment: &Deployment| {
                deployment.status.as_ref().is_some_and(|status| status.available_replicas == Some(2))
            })
            .await?;
    }
    Ok(())
}

/// The hardening on which an administrator relies in every overlay.
#[test]
fn pods_are_hardened_as_documented() -> Result<()> {
    for overlay in OVERLAYS {
        let documents = render(overlay)?;
        for deployment in documents.iter().filter(|document| document["kind"] == "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let name = format!("{overlay}: {}", deployment["metadata"]["name"]);
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            // the user of the images, who writes to a volume claim by it
            let cached =
                pod["volumes"].as_array().into_iter().flatten().any(|volume| volume["name"] == "cache");
            let group = if cached { json!(65532) } else { Value::Null };
            assert_eq!(pod["securityContext"]["fsGroup"], group, "{name}");
            for container in pod["containers"].as_array().into_iter().flatten() {
                let context = &container["securityContext"];
                assert_eq!(context["readOnlyRootFilesystem"], true, "{name}");
                assert_eq!(context["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
                assert!(container["resources"]["requests"]["memory"].is_string(), "{name}");
                assert!(
                    container["livenessProbe"].is_object() && container["readinessProbe"].is_object(),
                    "{name}"
                );
                let image = container["image"].as_str().unwrap_or_default();
                assert!(!image.ends_with(":latest") && image.contains(':'), "{name}: {image}");
            }
            let replicas = deployment["spec"]["replicas"].as_i64().unwrap_or_default();
            let manager = deployment["metadata"]["name"].as_str().unwrap_or_default();
            let has_budget = find(&documents, "PodDisruptionBudget", manager).is_ok();
            let why = "a budget with one replica keeps nodes from being drained";
            assert_eq!(has_budget, replicas > 1, "{name}: {why}");
            let args: Vec<&str> = container_args(deployment).collect();
            assert!(args.contains(&"--leader-elect"), "{name}: {args:?}");
        }
        // whatever the namespace holds, traffic must be allowed on purpose
        let denied = find(&documents, "NetworkPolicy", "default-deny-all-traffic")?;
        assert_eq!(denied["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    }
    Ok(())
}

/// The SCC restricted-v2 of OpenShift gives pods a group and a user of the namespace, and rejects others. `privileged` gives none.
#[test]
fn pods_fit_the_restricted_scc_of_openshift() -> Result<()> {
    let chart = template(&json!({"platform": "openshift", "classic": {"enabled": true}}))?;
    let mut restricted = Vec::new();
    for documents in [render("overlays/openshift")?, render("components/openshift/classic")?, chart] {
        for deployment in documents.iter().filter(|document| document["kind"] == "Deployment") {
            let pod = &deployment["spec"]["template"];
            let context = &pod["spec"]["securityContext"];
            let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
            assert_eq!(context["runAsUser"], Value::Null, "{name}");
            if pod["metadata"]["annotations"]["openshift.io/required-scc"] == "privileged" {
                assert_eq!(context["fsGroup"], 65532, "{name} writes to a volume claim");
            } else {
                assert_eq!(context["fsGroup"], Value::Null, "{name}");
                restricted.push(name.to_owned());
            }
        }
    }
    let classic = "classic-controller-controller-manager";
    let operator = "cluster-operator-controller-manager";
    assert_eq!(restricted, [operator, classic, classic, operator]);
    Ok(())
}

/// rule: operator-controller §8: who replaces the reference by these manifests finds everything under the old names
#[test]
fn manifests_have_reference_names_ports_and_rights() -> Result<()> {
    let documents = render("overlays/kubernetes")?;
    let controller = "operator-controller-controller-manager";
    let deployment = find(&documents, "Deployment", controller)?;
    let spec = &deployment["spec"];
    assert_eq!(spec["selector"]["matchLabels"], json!({"control-plane": controller}));
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], controller);
    let container = &pod["containers"][0];
    assert_eq!(
        (&container["name"], &container["command"]),
        (&json!("manager"), &json!(["/operator-controller"]))
    );
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": 8081}), "{probe}");
    }
    let linux = json!({"kubernetes.io/os": "linux"});
    assert_eq!(pod["nodeSelector"], linux, "managed clusters have no other nodes to offer");
    let args: Vec<&str> = container_args(deployment).collect();
    for flag in ["--leader-elect", "--health-probe-bind-address=:8081", "--metrics-bind-address=:8443"] {
        assert!(args.contains(&flag), "{flag}: {args:?}");
    }
    for key in [
        "node-role.kubernetes.io/control-plane",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/not-ready",
    ] {
        let tolerated = pod["tolerations"].as_array().into_iter().flatten().any(|found| found["key"] == key);
        assert!(tolerated, "{key}");
    }
    let budget = &find(&documents, "PodDisruptionBudget", controller)?["spec"];
    assert_eq!(
        (&budget["minAvailable"], &budget["unhealthyPodEvictionPolicy"]),
        (&json!(1), &json!("AlwaysAllow"))
    );
    let service = &find(&documents, "Service", "operator-controller-service")?["spec"];
    assert_eq!(service["selector"], json!({"app.kubernetes.io/name": "operator-controller"}));
    assert_eq!(
        (&service["ports"][0]["name"], &service["ports"][0]["port"]),
        (&json!("metrics"), &json!(8443))
    );
    let ports = |name: &str| -> Result<Vec<Value>> {
        let policy = &find(&documents, "NetworkPolicy", name)?["spec"];
        assert_eq!(policy["egress"], json!([{}]), "{name}");
        let ingress = policy["ingress"].as_array().into_iter().flatten();
        Ok(ingress
            .flat_map(|rule| rule["ports"].as_array().into_iter().flatten())
            .map(|port| port["port"].clone())
            .collect())
    };
    assert_eq!(ports(controller)?, [json!(8443)]);
    assert_eq!(ports("catalogd-controller-manager")?, [json!(7443), json!(8443)]);
    for (kind, name, rules) in [
        (
            "ClusterRole",
            "operator-controller-metrics-reader",
            json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]),
        ),
        (
            "ClusterRole",
            "operator-controller-proxy-role",
            json!([
                {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
                {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            ]),
        ),
    ] {
        assert_eq!(find(&documents, kind, name)?["rules"], rules, "{name}");
    }
    // the reference's role reads ClusterExtensions alone; this one suffices for every verb of kubectl-olm that reads
    let viewer =
        &find(&documents, "ClusterRole", "operator-controller-clusterextension-viewer-role")?["rules"];
    let viewer: Vec<PolicyRule> = serde_json::from_value(viewer.clone())?;
    let reads =
        |rule: &PolicyRule| rule.verbs.iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
    assert!(viewer.iter().all(reads), "{viewer:?}");
    let resources = |rule: &PolicyRule| rule.resources.clone().unwrap_or_default();
    assert!(viewer.iter().flat_map(resources).any(|resource| resource == "clusterextensions"), "{viewer:?}");
    assert!(viewer.iter().flat_map(resources).all(|resource| resource != "secrets"), "{viewer:?}");
    find(&documents, "ServiceAccount", controller)?;
    find(&documents, "Role", "operator-controller-leader-election-role")?;
    for document in &documents {
        let name = format!("{} {}", document["kind"], document["metadata"]["name"]);
        if document["kind"] != "CustomResourceDefinition" {
            assert!(document["metadata"]["labels"]["app.kubernetes.io/name"].is_string(), "{name}");
        }
    }
    let catalogs = render("options/default-catalogs")?;
    let source = &find(&catalogs, "ClusterCatalog", "operatorhubio")?["spec"]["source"];
    let image = json!({"ref": "quay.io/operatorhubio/catalog:latest", "pollIntervalMinutes": 10});
    assert_eq!(*source, json!({"type": "Image", "image": image}));
    Ok(())
}

/// rule: catalogd §11
#[test]
fn catalogd_is_found_under_the_reference_names() -> Result<()> {
    let documents = render("overlays/kubernetes")?;
    let name = "catalogd-controller-manager";
    let deployment = find(&documents, "Deployment", name)?;
    let spec = &deployment["spec"];
    assert_eq!(spec["selector"]["matchLabels"], json!({"control-plane": name}));
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxSurge": 1, "maxUnavailable": 0}));
    assert_eq!(spec["minReadySeconds"], 5);
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(
        (&container["name"], &container["terminationMessagePolicy"]),
        (&json!("manager"), &json!("FallbackToLogsOnError"))
    );
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": 8081}), "{probe}");
    }
    let args: Vec<&str> = container_args(deployment).collect();
    for flag in [
        "--leader-elect",
        "--metrics-bind-address=:7443",
        "--external-address=catalogd-service.olmv1-system.svc",
    ] {
        assert!(args.contains(&flag), "{flag}: {args:?}");
    }
    let service = &find(&documents, "Service", "catalogd-service")?["spec"];
    assert_eq!(service["selector"], json!({"app.kubernetes.io/name": "catalogd"}));
    let ports = service["ports"].as_array().into_iter().flatten();
    let ports: Vec<Value> =
        ports.map(|port| json!([port["name"], port["port"], port["targetPort"]])).collect();
    assert_eq!(ports, [json!(["https", 443, 8443]), json!(["metrics", 7443, 7443])]);
    let budget = &find(&documents, "PodDisruptionBudget", name)?["spec"];
    assert_eq!(
        (&budget["minAvailable"], &budget["unhealthyPodEvictionPolicy"]),
        (&json!(1), &json!("AlwaysAllow"))
    );
    let reader = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
    assert_eq!(find(&documents, "ClusterRole", "catalogd-metrics-reader")?["rules"], reader);
    for (kind, name) in [
        ("ServiceAccount", name),
        ("ClusterRole", "catalogd-manager-role"),
        ("ClusterRole", "catalogd-proxy-role"),
        ("Role", "catalogd-leader-election-role"),
        ("Role", "catalogd-manager-role"),
    ] {
        find(&documents, kind, name)?;
    }
    let labels = &find(&documents, "Namespace", "olmv1-system")?["metadata"]["labels"];
    for mode in ["enforce", "audit", "warn"] {
        assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}")], "restricted", "{mode}");
        assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}-version")], "latest", "{mode}");
    }
    Ok(())
}

/// rule: operator-controller §8 (chart option `openshift`)
#[test]
fn openshift_overlay_meets_openshift_requirements() -> Result<()> {
    let documents = render("overlays/openshift")?;
    for name in ["catalogd-controller-manager", "operator-controller-controller-manager"] {
        let deployment = find(&documents, "Deployment", name)?;
        let args: Vec<&str> = container_args(deployment).collect();
        assert!(args.contains(&"--global-pull-secret=openshift-config/pull-secret"), "{name}: {args:?}");
        let pod = &deployment["spec"]["template"]["spec"];
        let env = &pod["containers"][0]["env"];
        assert_eq!(*env, json!([{"name": "SSL_CERT_DIR", "value": "/var/ca-certs"}]), "{name}");
        let volumes = || pod["volumes"].as_array().into_iter().flatten();
        for path in ["/etc/containers", "/etc/docker"] {
            assert!(volumes().any(|volume| volume["hostPath"]["path"] == path), "{name}: {path}");
        }
        let sources =
            volumes().flat_map(|volume| volume["projected"]["sources"].as_array().into_iter().flatten());
        let maps: Vec<&str> = sources.filter_map(|source| source["configMap"]["name"].as_str()).collect();
        assert!(maps.contains(&"olmv1-trusted-ca"), "{name}: {maps:?}");
    }
    for service in ["catalogd-service", "operator-controller-service"] {
        let annotations = &find(&documents, "Service", service)?["metadata"]["annotations"];
        assert!(annotations["service.beta.openshift.io/serving-cert-secret-name"].is_string(), "{service}");
    }
    assert!(documents.iter().any(|document| document["kind"] == "ServiceMonitor"));
    let catalogs = render("options/openshift-catalogs")?;
    for (name, priority) in [
        ("openshift-redhat-operators", -100),
        ("openshift-certified-operators", -200),
        ("openshift-community-operators", -400),
    ] {
        assert_eq!(find(&catalogs, "ClusterCatalog", name)?["spec"]["priority"], priority, "{name}");
    }
    Ok(())
}

/// The flags of a Deployment's first container.
pub(crate) fn container_args(deployment: &Value) -> impl Iterator<Item = &str> {
    let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    args.as_array().into_iter().flatten().filter_map(Value::as_str)
}
