//! The acceptance lab's bundles: small declarative specs turned into the files of a registry+v1 bundle.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// A folder of the shared data, which is in `OLM_SHARED` or beside the repository; without it there is none, and that is printed.
#[expect(clippy::disallowed_methods, clippy::print_stdout, reason = "the one setting of tests")]
pub(crate) fn shared(folder: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let found = std::env::var_os("OLM_SHARED").map_or_else(beside, PathBuf::from).join(folder);
    if !found.is_dir() {
        println!("SKIPPED: no shared data; set OLM_SHARED to the folder that holds {folder}");
        return None;
    }
    Some(found)
}

/// Names of one scenario.
pub(crate) struct Scenario {
    pub(crate) id: String,
}

impl Scenario {
    pub(crate) fn package(&self) -> String {
        format!("demo-{}", self.id)
    }

    pub(crate) fn namespace(&self) -> String {
        format!("ns-{}", self.id)
    }

    fn group(&self) -> String {
        format!("{}.lab.test", self.id)
    }

    /// Fills the placeholders of a spec.
    pub(crate) fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => text
                .replace("${PKG}", &self.package())
                .replace("${NS}", &self.namespace())
                .replace("${GROUP}", &self.group())
                .replace("${CE}", &self.id)
                .replace("${SID}", &self.id)
                .into(),
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(members) => {
                let filled =
                    members.iter().map(|(key, member)| match self.fill(&Value::from(key.as_str())) {
                        Value::String(key) => (key, self.fill(member)),
                        _ => unreachable!("a text stays a text"),
                    });
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    /// The files of a bundle.
    pub(crate) fn files(&self, version: &str, spec: &Value) -> Vec<(String, Vec<u8>)> {
        let package = self.package();
        let account = format!("{package}-sa");
        let get = |name: &str| spec.get(name).filter(|value| !value.is_null());
        let list =
            |name: &str, default: Value| get(name).cloned().unwrap_or(default).as_array().cloned().unwrap();
        let crds: Vec<_> =
            list("crds", json!([{"kind": "Widget"}])).iter().map(|crd| self.crd(crd)).collect();
        let deployments: Vec<_> = list("deployments", json!([{"name": format!("{package}-ctrl")}]))
            .iter()
            .map(|deployment| self.deployment(deployment))
            .collect();
        let cluster_permissions = list(
            "clusterPermissions",
            json!([{"serviceAccountName": account, "rules": [{"apiGroups": [self.group()], "resources": ["*"], "verbs": ["*"]}]}]),
        );
        let permissions = list(
            "permissions",
            json!([{"serviceAccountName": account, "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}]}]),
        );
        let supported = list("installModes", json!(["AllNamespaces"]));
        let modes: Vec<_> = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
            .iter()
            .map(|mode| json!({"type": mode, "supported": supported.contains(&Value::from(*mode))}))
            .collect();
        let owned: Vec<_> = crds
            .iter()
            .map(|crd| {
                json!({"name": crd["metadata"]["name"], "kind": crd["spec"]["names"]["kind"],
                       "version": crd["spec"]["versions"][0]["name"]})
            })
            .collect();
        let name = get("name")
            .and_then(Value::as_str)
            .map_or_else(|| format!("{package}.v{version}"), str::to_owned);
        let mut csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": name, "annotations": get("csvAnnotations").cloned().unwrap_or_else(|| json!({}))},
            "spec": {
                "version": version, "installModes": modes,
                "install": {"strategy": "deployment", "spec": {"deployments": deployments,
                    "permissions": permissions, "clusterPermissions": cluster_permissions}},
                "customresourcedefinitions": {"owned": owned},
            }
        });
        if let Some(webhooks) = get("webhooks") {
            csv["spec"]["webhookdefinitions"] = webhooks.clone();
        }
        if let Some(patch) = get("csvPatch") {
            merge(&mut csv, patch);
        }
        let omitted = list("omit", json!([]));
        let omits = |what: &str| omitted.contains(&Value::from(what));
        let mut files: Map<String, Value> = Map::new();
        if !omits("csv") {
            files.insert("manifests/csv.yaml".into(), csv.to_string().into());
        }
        for crd in &crds {
            let name = crd["metadata"]["name"].as_str().unwrap();
            files.insert(format!("manifests/crd-{name}.yaml"), crd.to_string().into());
        }
        let config = get("configmap").cloned().unwrap_or_else(|| json!({"version": version}));
        if config != Value::Bool(false) {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                                "metadata": {"name": format!("{package}-config")}, "data": config});
            files.insert("manifests/configmap.yaml".into(), object.to_string().into());
        }
        for (index, object) in list("extra", json!([])).iter().enumerate() {
            files.insert(format!("manifests/extra-{index:02}.yaml"), object.to_string().into());
        }
        if !omits("annotations") {
            let annotations =
                json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": package}});
            files.insert("metadata/annotations.yaml".into(), annotations.to_string().into());
        }
        if let Some(properties) = get("properties") {
            let file = json!({"properties": properties});
            files.insert("metadata/properties.yaml".into(), file.to_string().into());
        }
        for (path, text) in get("files").and_then(Value::as_object).into_iter().flatten() {
            files.insert(path.clone(), text.clone());
        }
        files.retain(|_, text| !text.is_null());
        files.into_iter().map(|(path, text)| (path, text.as_str().unwrap().as_bytes().to_vec())).collect()
    }

    fn crd(&self, spec: &Value) -> Value {
        let kind = spec["kind"].as_str().unwrap();
        let text = |name: &str, default: String| spec[name].as_str().map_or(default, str::to_owned);
        let group = text("group", self.group());
        let plural = text("plural", format!("{}s", kind.to_lowercase()));
        let versions = spec.get("versions").cloned().unwrap_or_else(|| json!([{"name": "v1"}]));
        let versions: Vec<_> = versions
            .as_array()
            .unwrap()
            .iter()
            .map(|version| {
                json!({"name": version["name"], "served": version.get("served").cloned().unwrap_or(true.into()),
                       "storage": version.get("storage").cloned().unwrap_or(true.into()),
                       "schema": {"openAPIV3Schema": {"type": "object"}}})
            })
            .collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
               "metadata": {"name": format!("{plural}.{group}")},
               "spec": {"group": group, "scope": text("scope", "Namespaced".into()), "versions": versions,
                        "names": {"kind": kind, "plural": plural}}})
    }

    fn deployment(&self, spec: &Value) -> Value {
        let name = &spec["name"];
        let account = spec.get("sa").cloned().unwrap_or_else(|| format!("{}-sa", self.package()).into());
        let mut pod = json!({"serviceAccountName": account, "containers": [{
            "name": "manager", "image": spec.get("image").cloned().unwrap_or("lab.invalid/manager:v1".into()),
            "command": ["/manager"],
            "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true}}]});
        if let Some(extra) = spec.get("spec") {
            merge(&mut pod, extra);
        }
        let mut made = json!({"name": name, "spec": {
            "replicas": spec.get("replicas").cloned().unwrap_or(1.into()),
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}});
        if let Some(annotations) = spec.get("annotations") {
            made["spec"]["template"]["metadata"]["annotations"] = annotations.clone();
        }
        if let Some(labels) = spec.get("labels") {
            made["label"] = labels.clone();
        }
        made
    }
}

/// JSON merge patch.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            merge(target.as_object_mut().unwrap().entry(key).or_insert(Value::Null), value);
        }
    }
}
