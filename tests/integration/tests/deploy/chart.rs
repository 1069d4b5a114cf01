//! The Helm chart: the effect of each value, the values that it rejects, and what an apiserver and an uninstallation make of it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{ListParams, PostParams};
use olm_api::ClusterExtension;
use olm_kit::{Cluster, Options, SYSTEM_NAMESPACE, Tools};
use serde_json::{Value, json};

use crate::manifests::{apply, find, folder, make_default_account, prepare, stdout_of};

/// Values that are set as a whole.
const WHOLE: &[&str] = &["resources", "nodeSelector", "affinity", "podSecurityContext"];

/// Values whose default an empty value removes, as Helm does.
#[rustfmt::skip]
const REMOVABLE: &[&str] = &[
    "resources", "nodeSelector", "tolerations", "affinity", "topologySpreadConstraints", "podSecurityContext",
];

/// The programs: key in the values, name in the manifests.
const PROGRAMS: [(&str, &str); 4] = [
    ("catalogd", "catalogd"),
    ("operatorController", "operator-controller"),
    ("clusterOperator", "cluster-operator"),
    ("classicController", "classic-controller"),
];

/// Settings, and what they change in what is rendered.
struct Case {
    /// Cases of one name are rendered together.
    together: &'static str,
    values: Value,
    kind: &'static str,
    name: String,
    /// A JSON pointer; `/*` at its end is any item of a list.
    pointer: String,
    /// `null`: not there.
    want: Value,
}

/// `helm template` with these values.
pub(crate) fn template(values: &Value) -> Result<Vec<Value>> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), values.to_string())?;
    let mut command = Tools::locate()?.command("helm")?;
    command.args(["template", "olm", "--namespace", SYSTEM_NAMESPACE, "--values"]).arg(file.path());
    let text = stdout_of(command.arg(folder("chart")))?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).map_err(|problem| anyhow::anyhow!("{values}: {problem}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The value at the pointer, or, if the pointer ends in `/*`, the item that equals `want`.
fn got(documents: &[Value], case: &Case) -> Value {
    let Ok(object) = find(documents, case.kind, &case.name) else { return Value::Null };
    match case.pointer.strip_suffix("/*") {
        Some(list) => {
            let items = object.pointer(list).and_then(Value::as_array);
            items.into_iter().flatten().find(|item| **item == case.want).cloned().unwrap_or_default()
        }
        None => object.pointer(&case.pointer).cloned().unwrap_or_default(),
    }
}

/// Puts the members of `more` into `values`.
fn merge(values: &mut Value, more: &Value) {
    match (values, more) {
        (Value::Object(values), Value::Object(more)) => {
            for (key, value) in more {
                merge(values.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (values, more) => *values = more.clone(),
    }
}

/// The paths of the values below `value`.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let whole = WHOLE.iter().any(|name| path.ends_with(&format!(".{name}")));
    match value {
        Value::Object(members) if !members.is_empty() && !whole => {
            for (key, value) in members {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                paths(value, &path, found);
            }
        }
        _ => {
            found.insert(path.to_owned());
        }
    }
}

/// The values at the root of the chart.
#[rustfmt::skip]
fn general_cases() -> Vec<Case> {
    let case = |together, values: Value, kind, name: &str, pointer: &str, want: Value|
        Case { together, values, kind, name: name.to_owned(), pointer: pointer.to_owned(), want };
    let catalogd = "catalogd-controller-manager";
    let controller = "operator-controller-controller-manager";
    let args = "/spec/template/spec/containers/0/args/*";
    let env = "/spec/template/spec/containers/0/env/*";
    let name = "/metadata/name";
    let monitor = json!({"metrics": {"serviceMonitor": {"enabled": true}}});
    let classic = json!({"classic": {"enabled": true}});
    let classic_manager = "classic-controller-controller-manager";
    let proxied = "$(KUBERNETES_SERVICE_HOST),.svc,.cluster.local,localhost,127.0.0.1,10.0.0.0/8";
    vec![
        case("namespace", json!({"namespace": {"name": "other"}}), "ServiceAccount", catalogd, "/metadata/namespace", json!("other")),
        case("all", json!({"namespace": {"create": true}}), "Namespace", SYSTEM_NAMESPACE, "/metadata/annotations/helm.sh~1resource-policy",
            json!("keep")),
        case("all", json!({"grpcRegistry": {"enabled": true}}), "NetworkPolicy", "catalogd-grpc-registry", name,
            json!("catalogd-grpc-registry")),
        case("all", classic.clone(), "CustomResourceDefinition", "subscriptions.operators.coreos.com",
            "/metadata/annotations/helm.sh~1resource-policy", json!("keep")),
        case("all", classic, "Deployment", classic_manager, name, json!(classic_manager)),
        case("all", json!({"classic": {"globalNamespace": "elsewhere"}}), "Deployment", classic_manager, env,
            json!({"name": "GLOBAL_CATALOG_NAMESPACE", "value": "elsewhere"})),
        case("all", json!({"classic": {"repairDeployments": "Repaired"}}), "Deployment", classic_manager, args,
            json!("--repair-deployments=Repaired")),
        case("stopped", json!({"classicController": {"replicas": 0}}), "Deployment", classic_manager, "/spec/replicas", json!(0)),
        case("stopped", json!({"classicController": {"replicas": 0}}), "Pod", "olm-test-classic-controller", name, Value::Null),
        case("all", monitor.clone(), "ServiceMonitor", "classic-controller-metrics-monitor",
            "/spec/endpoints/0/tlsConfig/ca/configMap/name", json!("classic-controller-serving-cert")),
        case("less", json!({"crds": {"enabled": false}}), "CustomResourceDefinition", "clustercatalogs.olm.operatorframework.io", name,
            Value::Null),
        case("less", json!({"crds": {"enabled": false}}), "CustomResourceDefinition", "subscriptions.operators.coreos.com", name,
            Value::Null),
        case("less", json!({"serviceAccountPolicy": false}), "ValidatingAdmissionPolicy", "clusterextension-service-account", name,
            Value::Null),
        case("less", json!({"annotationPolicy": false}), "ValidatingAdmissionPolicy", "olm-annotation-values", name, Value::Null),
        case("openshift", json!({"platform": "openshift"}), "Deployment", "cluster-operator-controller-manager", name,
            json!("cluster-operator-controller-manager")),
        case("openshift", json!({"platform": "openshift"}), "Deployment", classic_manager,
            "/spec/template/spec/securityContext/fsGroup", Value::Null),
        case("openshift", json!({"platform": "openshift"}), "Deployment", classic_manager, args,
            json!("--global-pull-secret=openshift-config/pull-secret")),
        case("openshift", json!({"platform": "openshift"}), "Pod", "olm-test-cluster-operator", "/spec/volumes/0/configMap/name",
            json!("cluster-operator-serving-cert")),
        case("cert-manager", json!({"certificates": "cert-manager"}), "Certificate", "catalogd-service-cert", name,
            json!("catalogd-service-cert")),
        case("cert-manager", monitor.clone(), "ServiceMonitor", "catalogd-metrics-monitor", "/spec/endpoints/0/tlsConfig/ca/secret/key",
            json!("ca.crt")),
        case("all", json!({"rights": "restricted"}), "Deployment", controller, args, json!("--service-account-mode=Require")),
        case("all", json!({"rights": "restricted"}), "ClusterRoleBinding", "operator-controller-cluster-admin-rolebinding", name,
            Value::Null),
        case("all", json!({"mutatingPolicy": true}), "MutatingAdmissionPolicy", "clustercatalog-metadata-name", name,
            json!("clustercatalog-metadata-name")),
        case("all", json!({"aggregatedRoles": true}), "ClusterRole", "operator-controller-aggregated-viewer-role", name,
            json!("operator-controller-aggregated-viewer-role")),
        case("all", json!({"guardRails": {"enabled": true}}), "ValidatingAdmissionPolicy", "clustercatalog-allowed-images", name,
            json!("clustercatalog-allowed-images")),
        case("all", json!({"guardRails": {"lists": {"packages": "a\nb\n"}}}), "ConfigMap", "olmv1-guard-rails", "/data/packages",
            json!("a\nb\n")),
        case("all", json!({"signaturePolicy": {"configMap": "signed"}}), "Deployment", catalogd, "/spec/template/spec/volumes/*",
            json!({"name": "signatures", "configMap": {"name": "signed"}})),
        case("all", json!({"signaturePolicy": {"key": "mine.json"}}), "Deployment", catalogd, args,
            json!("--signature-policy=/etc/olm-signatures/mine.json")),
        case("all", json!({"signaturePolicy": {"key": "mine.json"}}), "Deployment", controller, args,
            json!("--signature-policy=/etc/olm-signatures/mine.json")),
        case("all", json!({"signaturePolicy": {"key": "mine.json"}}), "Deployment", classic_manager, args,
            json!("--signature-policy=/etc/olm-signatures/mine.json")),
        case("all", json!({"imagePullSecrets": [{"name": "pull"}]}), "Deployment", catalogd, "/spec/template/spec/imagePullSecrets",
            json!([{"name": "pull"}])),
        case("all", json!({"imagePullSecrets": [{"name": "pull"}]}), "ServiceAccount", controller, "/imagePullSecrets",
            json!([{"name": "pull"}])),
        case("all", json!({"proxy": {"httpProxy": "http://proxy:1"}}), "Deployment", catalogd, env,
            json!({"name": "HTTP_PROXY", "value": "http://proxy:1"})),
        case("all", json!({"proxy": {"httpsProxy": "http://proxy:2"}}), "Deployment", controller, env,
            json!({"name": "HTTPS_PROXY", "value": "http://proxy:2"})),
        case("all", json!({"proxy": {"noProxy": ["10.0.0.0/8"]}}), "Deployment", controller, env,
            json!({"name": "NO_PROXY", "value": proxied})),
        case("all", json!({"otlp": {"endpoint": "http://collector:4318"}}), "Deployment", catalogd, args,
            json!("--otlp-endpoint=http://collector:4318")),
        case("all", json!({"otlp": {"endpoint": "http://collector:4318"}}), "Deployment", controller, args,
            json!("--otlp-endpoint=http://collector:4318")),
        case("all", json!({"otlp": {"endpoint": "http://collector:4318"}}), "Deployment", classic_manager, args,
            json!("--otlp-endpoint=http://collector:4318")),
        case("all", monitor, "ServiceMonitor", "operator-controller-metrics-monitor", "/spec/endpoints/0/tlsConfig/ca/configMap/name",
            json!("operator-controller-serving-cert")),
        case("all", json!({"metrics": {"serviceMonitor": {"enabled": true}}}), "Secret", "metrics-reader-token", "/type",
            json!("kubernetes.io/service-account-token")),
        case("openshift", json!({"metrics": {"serviceMonitor": {"enabled": true}}}), "ClusterRoleBinding",
            "catalogd-metrics-reader-rolebinding", "/subjects/0/name", json!("prometheus-k8s")),
        case("all", json!({"metrics": {"serviceMonitor": {"interval": "1m"}}}), "ServiceMonitor", "catalogd-metrics-monitor",
            "/spec/endpoints/0/interval", json!("1m")),
        case("all", json!({"metrics": {"serviceMonitor": {"labels": {"release": "mon"}}}}), "ServiceMonitor", "catalogd-metrics-monitor",
            "/metadata/labels/release", json!("mon")),
        case("all", json!({"metrics": {"prometheusRule": {"enabled": true}}}), "PrometheusRule", "olm", "/metadata/namespace",
            json!(SYSTEM_NAMESPACE)),
        case("all", json!({"metrics": {"prometheusRule": {"labels": {"release": "mon"}}}}), "PrometheusRule", "olm",
            "/metadata/labels/release", json!("mon")),
    ]
}

/// The values of a program.
fn program_cases(key: &'static str, name: &'static str) -> Vec<Case> {
    let manager = format!("{name}-controller-manager");
    // cluster-operator is there on OpenShift only
    let group = |plain, openshift| if key == "clusterOperator" { openshift } else { plain };
    let case = |together, values: Value, kind, name: &str, pointer: &str, want: Value| {
        let (values, name, pointer) = (json!({key: values}), name.to_owned(), pointer.to_owned());
        Case { together, values, kind, name, pointer, want }
    };
    let of_pod = |values: Value, pointer: &str, want: Value| {
        let (together, pointer) = (group("all", "openshift"), format!("/spec/template{pointer}"));
        case(together, values, "Deployment", &manager, &pointer, want)
    };
    let whole = |field: &str, pointer: &str, value: Value| of_pod(json!({field: value}), pointer, value);
    let item = |field: &str, pointer: &str, value: Value| of_pod(json!({field: [value]}), pointer, value);
    let selector = json!({"matchLabels": {"control-plane": manager}});
    let spread = json!({"maxSkew": 2, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"});
    let mut spread_over_pods = spread.clone();
    spread_over_pods["labelSelector"] = selector;
    let apart = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
 {"topologyKey": "rack", "labelSelector": {"matchLabels": {"a": "b"}}}]});
    let digest = format!("sha256:{}", "0".repeat(64));
    #[rustfmt::skip]
    let mut cases = vec![
        of_pod(json!({"image": {"repository": "localhost:5000/mine", "tag": "v2"}}), "/spec/containers/0/image",
            json!("localhost:5000/mine:v2")),
        case(group("digest", "digest-openshift"), json!({"image": {"repository": "localhost:5000/mine", "digest": digest}}), "Deployment",
            &manager, "/spec/template/spec/containers/0/image", json!(format!("localhost:5000/mine@{digest}"))),
        of_pod(json!({"image": {"pullPolicy": "Always"}}), "/spec/containers/0/imagePullPolicy", json!("Always")),
        case(group("all", "openshift"), json!({"replicas": 3}), "Deployment", &manager, "/spec/replicas", json!(3)),
        item("extraArgs", "/spec/containers/0/args/*", json!("--v=6")),
        item("extraEnv", "/spec/containers/0/env/*", json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}})),
        item("extraVolumes", "/spec/volumes/*", json!({"name": "more", "configMap": {"name": "more"}})),
        item("extraVolumeMounts", "/spec/containers/0/volumeMounts/*", json!({"name": "more", "mountPath": "/more"})),
        of_pod(json!({"resources": {"limits": {"memory": "1Gi"}}}), "/spec/containers/0/resources/limits/memory", json!("1Gi")),
        of_pod(json!({"nodeSelector": {"pool": "a"}}), "/spec/nodeSelector/pool", json!("a")),
        item("tolerations", "/spec/tolerations/*", json!({"key": "a", "operator": "Exists"})),
        of_pod(json!({"affinity": {"podAntiAffinity": apart}}), "/spec/affinity/podAntiAffinity", apart.clone()),
        of_pod(json!({"topologySpreadConstraints": [spread]}), "/spec/topologySpreadConstraints", json!([spread_over_pods])),
        whole("priorityClassName", "/spec/priorityClassName", json!("high")),
        of_pod(json!({"podAnnotations": {"a": "b"}}), "/metadata/annotations/a", json!("b")),
        of_pod(json!({"podLabels": {"a": "b"}}), "/metadata/labels/a", json!("b")),
        of_pod(json!({"podSecurityContext": {"fsGroup": 1}}), "/spec/securityContext/fsGroup", json!(1)),
        case(group("all", "openshift"), json!({"serviceAccount": {"annotations": {"a": "b"}}}), "ServiceAccount", &manager,
            "/metadata/annotations/a", json!("b")),
        case("one", json!({"replicas": 1}), "PodDisruptionBudget", &manager, "/metadata/name", Value::Null),
    ];
    if key == "clusterOperator" {
        cases.retain(|case| case.together != "one");
        return cases;
    }
    let claim = format!("{name}-cache");
    let persistent = |more: Value| json!({"replicas": 1, "cache": {"persistence": more}});
    let volume = "/spec/template/spec/volumes/0";
    let of_claim = |field: &str, value: Value, pointer: &str| {
        case("claim", persistent(json!({field: &value})), "PersistentVolumeClaim", &claim, pointer, value)
    };
    let strategy = "/spec/strategy";
    let ephemeral = json!({"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}});
    #[rustfmt::skip]
    cases.extend([
        of_pod(json!({"cache": {"sizeLimit": "9Gi"}}), "/spec/volumes/0/emptyDir/sizeLimit", json!("9Gi")),
        case("volume", json!({"cache": {"volume": {"ephemeral": ephemeral}}}), "Deployment", &manager, &format!("{volume}/ephemeral"),
            ephemeral.clone()),
        case("claim", persistent(json!({"enabled": true})), "Deployment", &manager, strategy, json!({"type": "Recreate"})),
        case("claim", persistent(json!({"enabled": true})), "Deployment", &manager, &format!("{volume}/persistentVolumeClaim"),
            json!({"claimName": claim})),
        of_claim("storageClassName", json!("fast"), "/spec/storageClassName"),
        of_claim("accessModes", json!(["ReadWriteOncePod"]), "/spec/accessModes"),
        of_claim("annotations", json!({"a": "b"}), "/metadata/annotations"),
        of_claim("size", json!("9Gi"), "/spec/resources/requests/storage"),
        case("mine", persistent(json!({"enabled": true, "existingClaim": "mine"})), "Deployment", &manager,
            &format!("{volume}/persistentVolumeClaim"), json!({"claimName": "mine"})),
    ]);
    cases
}

/// Every case.
fn cases() -> Vec<Case> {
    let mut cases = general_cases();
    cases.extend(PROGRAMS.iter().flat_map(|(key, name)| program_cases(key, name)));
    cases
}

/// The values of the cases that are rendered together. All programs are there.
fn groups(cases: &[Case]) -> BTreeMap<&'static str, Value> {
    let mut groups = BTreeMap::new();
    for case in cases {
        let values = groups.entry(case.together).or_insert_with(|| json!({"classic": {"enabled": true}}));
        if case.together.ends_with("openshift") {
            merge(values, &json!({"platform": "openshift"}));
        }
        merge(values, &case.values);
    }
    groups
}

#[test]
fn chart_values_have_their_effects() -> Result<()> {
    let cases = cases();
    let openshift = json!({"platform": "openshift"});
    let (plain, openshift_defaults) = (template(&json!({}))?, template(&openshift)?);
    let defaults = template(&json!({"classic": {"enabled": true}}))?;
    let groups = groups(&cases);
    let mut set = BTreeSet::new();
    cases.iter().for_each(|case| paths(&case.values, "", &mut set));
    let mut rendered = BTreeMap::new();
    for (name, values) in &groups {
        rendered.insert(*name, template(values)?);
    }
    let mut wrong = Vec::new();
    for case in &cases {
        let what = format!("{}: {} {} {}", case.values, case.kind, case.name, case.pointer);
        let found = got(&rendered[case.together], case);
        if found != case.want {
            wrong.push(format!("{what}: expected {}, got {found}", case.want));
        }
        let only_there = case.together.ends_with("openshift") && case.values != openshift;
        let default = match case.values.get("classic") {
            Some(_) => &plain,
            None if only_there => &openshift_defaults,
            None => &defaults,
        };
        if got(default, case) == case.want {
            wrong.push(format!("{what}: the default is the same"));
        }
    }
    let text = std::fs::read_to_string(folder("chart/values.yaml"))?;
    let values: Value = serde_saphyr::from_str(&text).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let mut all = BTreeSet::new();
    paths(&values, "", &mut all);
    let tested = |path: &str| {
        let below =
            |long: &str, short: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
        set.iter().any(|set| set == path || below(set, path) || below(path, set))
    };
    wrong.extend(all.iter().filter(|path| !tested(path)).map(|path| format!("{path}: no case sets it")));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Nothing is left in the default namespace of the manifests when the chart is installed into another one.
#[test]
fn chart_uses_the_namespace_of_the_release() -> Result<()> {
    let all = json!({
        "namespace": {"name": "elsewhere", "create": true}, "platform": "openshift",
        "guardRails": {"enabled": true}, "classic": {"enabled": true}, "metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}},
    });
    for document in template(&all)? {
        let is_crd = document["kind"] == "CustomResourceDefinition";
        ensure!(is_crd || !document.to_string().contains(SYSTEM_NAMESPACE), "{document}");
    }
    Ok(())
}

#[test]
fn chart_rejects_invalid_values() -> Result<()> {
    for (values, message) in [
        (json!({"catalogd": {"imagee": {}}}), "additional properties 'imagee' not allowed"),
        (json!({"catalogd": {"image": {"tag": "a b"}}}), "/catalogd/image/tag"),
        (json!({"catalogd": {"image": {"digest": "sha256:1"}}}), "/catalogd/image/digest"),
        (json!({"catalogd": {"replicas": 0}}), "/catalogd/replicas"),
        (json!({"operatorController": {"replicas": 0}}), "/operatorController/replicas"),
        (json!({"catalogd": {"extraArgs": ["v=4"]}}), "/catalogd/extraArgs/0"),
        (json!({"catalogd": {"extraEnv": [{"value": "a"}]}}), "missing property 'name'"),
        (json!({"catalogd": {"tolerations": [{"effect": "Never"}]}}), "/catalogd/tolerations/0/effect"),
        (json!({"clusterOperator": {"cache": {}}}), "additional properties 'cache' not allowed"),
        (json!({"rights": "none"}), "/rights"),
        (json!({"otlp": {"endpoint": "collector:4318"}}), "/otlp/endpoint"),
        (json!({"imagePullSecrets": ["pull"]}), "/imagePullSecrets/0"),
        (json!({"namespace": {"name": "kube-system"}}), "OLM needs a namespace of its own"),
        (
            json!({"operatorController": {"cache": {"persistence": {"enabled": true}}}}),
            "operatorController.cache.persistence.enabled needs operatorController.replicas=1",
        ),
    ] {
        let error = template(&values).err().with_context(|| format!("{values} is accepted"))?;
        ensure!(error.to_string().contains(message), "{values}: {error}");
    }
    Ok(())
}

/// The values without a value: those at this depth, and those above it that have no values below.
fn emptied(values: &Value, depth: usize) -> Value {
    let Value::Object(members) = values else { return Value::Null };
    if members.is_empty() {
        return Value::Null;
    }
    let kept = members.iter().filter(|(key, _)| !REMOVABLE.contains(&key.as_str()));
    kept.map(|(key, value)| {
        let value = if depth == 0 { Value::Null } else { emptied(value, depth - 1) };
        (key.clone(), value)
    })
    .collect()
}

/// A key without a value in a file of values is null, and Helm takes its default away.
#[test]
fn chart_takes_empty_values_for_absent() -> Result<()> {
    let text = std::fs::read_to_string(folder("chart/values.yaml"))?;
    let values: Value = serde_saphyr::from_str(&text).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    let on = json!({
        "classic": {"enabled": true}, "platform": "openshift", "proxy": {"httpProxy": "http://proxy:1"}, "guardRails": {"enabled": true},
        "metrics": {"serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true}},
    });
    let persistent = json!({"catalogd": {"replicas": 1, "cache": {"persistence": {"enabled": true}}}});
    for set in [json!({}), on, persistent] {
        let want = template(&set)?;
        for depth in 0..4 {
            let mut empty = emptied(&values, depth);
            empty["global"] = Value::Null;
            merge(&mut empty, &set);
            ensure!(
                template(&empty)? == want,
                "with {set}, empty values at depth {depth} are not the defaults"
            );
        }
    }
    let none =
        json!({"catalogd": REMOVABLE.iter().map(|key| ((*key).to_owned(), Value::Null)).collect::<Value>()});
    let documents = template(&none)?;
    let pod = &find(&documents, "Deployment", "catalogd-controller-manager")?["spec"]["template"]["spec"];
    for name in REMOVABLE.iter().filter(|name| **name != "resources") {
        let name = if *name == "podSecurityContext" { "securityContext" } else { *name };
        ensure!(pod.get(name).is_none(), "{name}: {}", pod[name]);
    }
    ensure!(pod["containers"][0].get("resources").is_none());
    Ok(())
}

#[tokio::test]
async fn chart_is_accepted_by_the_apiserver() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    prepare(&cluster).await?;
    // a dry run makes neither the namespace nor the kinds that the other objects need. (On OpenShift pods mount folders of the host.)
    apply(&cluster, "overlays/openshift")?;
    make_default_account(&cluster).await?;
    let elsewhere = |(name, _): &(&str, Value)| *name != "namespace";
    let values: Vec<(&str, Value)> = groups(&cases()).into_iter().filter(elsewhere).collect();
    ensure!(!values.is_empty());
    for (name, values) in values {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": template(&values)?});
        let file = tempfile::NamedTempFile::with_suffix(".json")?;
        std::fs::write(file.path(), list.to_string())?;
        let mut command = cluster.kubectl()?;
        let flags = "--server-side --force-conflicts --dry-run=server --validate=strict -f";
        command.arg("apply").args(flags.split(' ')).arg(file.path());
        let output = command.stdin(Stdio::null()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && errors.is_empty(), "{name}: {errors}");
    }
    Ok(())
}

pub(crate) fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let mut command: Command = Tools::locate()?.command("helm")?;
    stdout_of(command.args(arguments).env("KUBECONFIG", cluster.kubeconfig()).env("HOME", cluster.dir()))
}

#[tokio::test]
async fn chart_uninstall_keeps_extensions_and_their_content() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    let chart = folder("chart").display().to_string();
    let install = ["install", "olm-rs", &chart, "--namespace", SYSTEM_NAMESPACE, "--create-namespace"];
    helm(&cluster, &install)?;
    let client = cluster.client().await?;
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let strategy = async || -> Result<Value> {
        let deployment = deployments.get("catalogd-controller-manager").await?;
        Ok(json!(deployment.spec.context("no spec")?.strategy))
    };
    assert_eq!(strategy().await?["type"], "RollingUpdate");
    // an apiserver takes no Recreate with what is left of a rolling update
    let claim = "catalogd.replicas=1,catalogd.cache.persistence.enabled=true";
    helm(&cluster, &["upgrade", "olm-rs", &chart, "--namespace", SYSTEM_NAMESPACE, "--set", claim])?;
    assert_eq!(strategy().await?, json!({"type": "Recreate"}));
    helm(&cluster, &["upgrade", "olm-rs", &chart, "--namespace", SYSTEM_NAMESPACE, "--reset-values"])?;
    assert_eq!(strategy().await?["type"], "RollingUpdate");

    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "kept"},
        "spec": {"namespace": "kept", "source": {"sourceType": "Catalog", "catalog": {"packageName": "kept"}}}});
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    extensions.create(&PostParams::default(), &serde_json::from_value(extension)?).await?;
    let content = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kept"}});
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    secrets.create(&PostParams::default(), &serde_json::from_value(content)?).await?;
    helm(&cluster, &["uninstall", "olm-rs", "--namespace", SYSTEM_NAMESPACE])?;
    let left = async || -> Result<()> {
        assert!(deployments.list(&ListParams::default()).await?.items.is_empty());
        extensions.get("kept").await?;
        secrets.get("kept").await?;
        Ok(())
    };
    left().await?;
    // the CRDs are those of this release
    helm(&cluster, &install)?;
    helm(&cluster, &["uninstall", "olm-rs", "--namespace", SYSTEM_NAMESPACE])?;
    left().await?;

    // a Namespace of the chart
    let values = "namespace.name=olm-elsewhere,namespace.create=true,crds.enabled=false";
    helm(&cluster, &["install", "elsewhere", &chart, "--set", values])?;
    helm(&cluster, &["uninstall", "elsewhere"])?;
    let namespaces: Api<Namespace> = Api::all(client);
    let labels = namespaces.get("olm-elsewhere").await?.metadata.labels.unwrap_or_default();
    assert_eq!(labels["pod-security.kubernetes.io/enforce"], "restricted");
    Ok(())
}
