//! registry+v1 bundle images from a small description.
//!
//! The default bundle of package `demo` is a complete operator: one CRD (kind Widget, `spec.size`), the Deployment
//! `demo-ctrl` with the service account `demo-sa`, one permission, one cluster permission, and the ConfigMap
//! `demo-config` that holds the version; it supports AllNamespaces. Every part can be replaced, added to or left out.

use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::{Files, Image, Layer, read_dir};

const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

/// A CustomResourceDefinition.
#[derive(Debug, Clone)]
#[must_use]
pub struct Crd {
    kind: String,
    group: String,
    scope: &'static str,
    versions: Vec<(String, bool, bool)>,
    fields: Map<String, Value>,
}

impl Crd {
    /// Namespaced, version v1, with the integer field `spec.size`.
    pub fn new(kind: &str, group: &str) -> Self {
        let fields = Map::from_iter([("size".to_owned(), json!({"type": "integer"}))]);
        let (kind, group) = (kind.to_owned(), group.to_owned());
        Self { kind, group, scope: "Namespaced", versions: Vec::new(), fields }
    }

    pub fn cluster_scoped(mut self) -> Self {
        self.scope = "Cluster";
        self
    }

    /// Adds a version (the first one replaces v1).
    pub fn version(mut self, name: &str, served: bool, storage: bool) -> Self {
        self.versions.push((name.to_owned(), served, storage));
        self
    }

    /// Adds or replaces a field below `spec`.
    pub fn field(mut self, name: &str, schema: Value) -> Self {
        self.fields.insert(name.to_owned(), schema);
        self
    }

    /// Removes a field below `spec`.
    pub fn without_field(mut self, name: &str) -> Self {
        self.fields.remove(name);
        self
    }

    /// `<plural>.<group>`
    pub fn name(&self) -> String {
        format!("{}s.{}", self.kind.to_lowercase(), self.group)
    }

    pub fn manifest(&self) -> Value {
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": self.fields},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}});
        let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage, "schema": schema});
        let mut versions: Vec<Value> =
            self.versions.iter().map(|(name, served, storage)| version(name, *served, *storage)).collect();
        if versions.is_empty() {
            versions.push(version("v1", true, true));
        }
        let singular = self.kind.to_lowercase();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": self.name()},
            "spec": {
                "group": self.group, "scope": self.scope,
                "names": {
                    "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": format!("{singular}s"), "singular": singular,
                },
                "versions": versions,
            },
        })
    }
}

/// A registry+v1 bundle.
#[derive(Debug, Clone)]
#[must_use]
pub struct BundleImage {
    package: String,
    version: String,
    name: Option<String>,
    crds: Vec<Crd>,
    deployments: Vec<Value>,
    permissions: Vec<Value>,
    cluster_permissions: Vec<Value>,
    install_modes: Vec<String>,
    webhooks: Vec<Value>,
    config: Option<Map<String, Value>>,
    extra: Vec<Value>,
    properties: Vec<Value>,
    csv_patch: Value,
    annotations: Map<String, Value>,
    /// given as a whole instead of described
    whole: Option<Files>,
    /// on top of all that: a file, or its absence
    changes: Vec<(String, Option<Vec<u8>>)>,
}

impl BundleImage {
    /// The default bundle of a package in a version; its CRD is `widgets.<package>.kit.test`.
    pub fn new(package: &str, version: &str) -> Self {
        let group = format!("{package}.kit.test");
        let account = format!("{package}-sa");
        let annotation = |key: &str, value: &str| {
            (format!("operators.operatorframework.io.bundle.{key}.v1"), Value::from(value))
        };
        Self {
            package: package.to_owned(),
            version: version.to_owned(),
            name: None,
            crds: vec![Crd::new("Widget", &group)],
            deployments: vec![deployment(&format!("{package}-ctrl"), &account)],
            permissions: vec![json!({"serviceAccountName": account, "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}]})],
            cluster_permissions: vec![json!({"serviceAccountName": account, "rules": [
                {"apiGroups": [group], "resources": ["*"], "verbs": ["*"]}]})],
            install_modes: vec!["AllNamespaces".to_owned()],
            webhooks: Vec::new(),
            config: Some(Map::from_iter([("version".to_owned(), Value::from(version))])),
            extra: Vec::new(),
            properties: Vec::new(),
            csv_patch: Value::Null,
            annotations: Map::from_iter([
                annotation("mediatype", "registry+v1"),
                annotation("manifests", "manifests/"),
                annotation("metadata", "metadata/"),
                annotation("package", package),
                annotation("channels", "stable"),
                annotation("channel.default", "stable"),
            ]),
            whole: None,
            changes: Vec::new(),
        }
    }

    /// A bundle whose files are given.
    pub fn from_files(files: Files) -> Self {
        Self { whole: Some(files), ..Self::new("given", "0.0.0") }
    }

    /// A bundle from a folder that holds `manifests/` and `metadata/`.
    pub fn from_dir(dir: &Path) -> Result<Self> {
        Ok(Self::from_files(read_dir(dir, "")?))
    }

    /// Another name than `<package>.v<version>` for the ClusterServiceVersion.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Replaces all CRDs.
    pub fn crds(mut self, crds: impl IntoIterator<Item = Crd>) -> Self {
        self.crds = crds.into_iter().collect();
        self
    }

    /// Adds a Deployment, with the default service account.
    pub fn deployment(mut self, name: &str) -> Self {
        self.deployments.push(deployment(name, &format!("{}-sa", self.package)));
        self
    }

    /// Replaces all Deployments by entries `{name, spec, label}` as the ClusterServiceVersion has them.
    pub fn deployments(mut self, entries: impl IntoIterator<Item = Value>) -> Self {
        self.deployments = entries.into_iter().collect();
        self
    }

    /// Replaces the permissions by entries `{serviceAccountName, rules}`.
    pub fn permissions(mut self, entries: impl IntoIterator<Item = Value>) -> Self {
        self.permissions = entries.into_iter().collect();
        self
    }

    /// Replaces the cluster permissions by entries `{serviceAccountName, rules}`.
    pub fn cluster_permissions(mut self, entries: impl IntoIterator<Item = Value>) -> Self {
        self.cluster_permissions = entries.into_iter().collect();
        self
    }

    /// Replaces the supported install modes.
    pub fn install_modes(mut self, modes: &[&str]) -> Self {
        self.install_modes = modes.iter().map(|&mode| mode.to_owned()).collect();
        self
    }

    /// Adds an entry of `webhookdefinitions`.
    pub fn webhook(mut self, definition: Value) -> Self {
        self.webhooks.push(definition);
        self
    }

    /// Sets a key of the ConfigMap `<package>-config`.
    pub fn config_map(mut self, key: &str, value: &str) -> Self {
        self.config.get_or_insert_default().insert(key.to_owned(), Value::from(value));
        self
    }

    /// Leaves the ConfigMap out.
    pub fn without_config_map(mut self) -> Self {
        self.config = None;
        self
    }

    /// Adds a further manifest.
    pub fn extra(mut self, manifest: Value) -> Self {
        self.extra.push(manifest);
        self
    }

    /// Adds a property to `metadata/properties.yaml`.
    pub fn property(mut self, kind: &str, value: Value) -> Self {
        self.properties.push(json!({"type": kind, "value": value}));
        self
    }

    /// A merge patch (RFC 7396) of the ClusterServiceVersion; a later one is applied after an earlier one.
    pub fn csv_patch(mut self, patch: Value) -> Self {
        merge(&mut self.csv_patch, &patch, true);
        self
    }

    /// Sets an annotation of `metadata/annotations.yaml`.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), Value::from(value));
        self
    }

    /// Adds or replaces a file.
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.changes.push((path.to_owned(), Some(text.as_bytes().to_vec())));
        self
    }

    /// Leaves a file out.
    pub fn without_file(mut self, path: &str) -> Self {
        self.changes.push((path.to_owned(), None));
        self
    }

    /// The ClusterServiceVersion.
    pub fn csv(&self) -> Value {
        let name = self.name.clone().unwrap_or_else(|| format!("{}.v{}", self.package, self.version));
        let modes: Vec<Value> = MODES
            .iter()
            .map(|&mode| json!({"type": mode, "supported": self.install_modes.iter().any(|it| it == mode)}))
            .collect();
        let owned = self.crds.iter().map(|crd| {
            let manifest = crd.manifest();
            json!({"name": crd.name(), "kind": crd.kind, "version": manifest["spec"]["versions"][0]["name"]})
        });
        let owned: Vec<Value> = owned.collect();
        let mut install = json!({"deployments": self.deployments});
        if !self.permissions.is_empty() {
            install["permissions"] = json!(self.permissions);
        }
        if !self.cluster_permissions.is_empty() {
            install["clusterPermissions"] = json!(self.cluster_permissions);
        }
        let mut csv = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": name, "annotations": {}},
            "spec": {
                "displayName": self.package, "description": "A bundle made for a test.", "version": self.version,
                "provider": {"name": "olm-rs"}, "maturity": "alpha", "installModes": modes,
                "install": {"strategy": "deployment", "spec": install}, "customresourcedefinitions": {"owned": owned},
            },
        });
        if !self.webhooks.is_empty() {
            csv["spec"]["webhookdefinitions"] = json!(self.webhooks);
        }
        merge(&mut csv, &self.csv_patch, false);
        csv
    }

    /// All files of the bundle.
    pub fn files(&self) -> Files {
        let mut files = self.whole.clone().unwrap_or_else(|| self.described());
        for (path, content) in &self.changes {
            match content {
                Some(content) => files.insert(path.clone(), content.clone()),
                None => files.remove(path),
            };
        }
        files
    }

    fn described(&self) -> Files {
        let mut files = Files::new();
        // JSON is YAML
        let mut put =
            |path: &str, value: &Value| files.insert(path.to_owned(), format!("{value:#}\n").into_bytes());
        put("manifests/csv.yaml", &self.csv());
        for crd in &self.crds {
            put(&format!("manifests/{}.yaml", crd.name()), &crd.manifest());
        }
        if let Some(data) = &self.config {
            let name = format!("{}-config", self.package);
            let map =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            put("manifests/configmap.yaml", &map);
        }
        for (at, manifest) in self.extra.iter().enumerate() {
            put(&format!("manifests/extra-{at:02}.yaml"), manifest);
        }
        put("metadata/annotations.yaml", &json!({"annotations": self.annotations}));
        if !self.properties.is_empty() {
            put("metadata/properties.yaml", &json!({"properties": self.properties}));
        }
        files
    }

    /// The image: one layer, the annotations as labels too.
    pub fn image(&self) -> Image {
        let labels = self.annotations.iter().filter_map(|(key, value)| Some((key, value.as_str()?)));
        labels.fold(Image::new().layer(Layer::from_files(&self.files())), |image, (key, value)| {
            image.label(key, value)
        })
    }
}

fn deployment(name: &str, account: &str) -> Value {
    json!({"name": name, "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {
            "serviceAccountName": account,
            "containers": [{"name": "manager", "image": "example.invalid/manager:v1", "command": ["/manager"],
                "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true}}],
        }},
    }})
}

/// RFC 7396; with `keep_null` two patches are combined instead of one applied.
fn merge(target: &mut Value, patch: &Value, keep_null: bool) {
    let Value::Object(patch) = patch else {
        if !patch.is_null() {
            *target = patch.clone();
        }
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Value::Object(target) = target else { return };
    for (key, value) in patch {
        if value.is_null() && !keep_null {
            target.remove(key);
        } else if value.is_object() {
            merge(target.entry(key.clone()).or_insert(Value::Null), value, keep_null);
        } else {
            target.insert(key.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_default_bundle_has_every_part() {
        let files = BundleImage::new("demo", "1.2.3").files();
        let paths: Vec<&str> = files.keys().map(String::as_str).collect();
        let manifests = "manifests/configmap.yaml manifests/csv.yaml manifests/widgets.demo.kit.test.yaml";
        assert_eq!(paths.join(" "), format!("{manifests} metadata/annotations.yaml"));
        let csv: Value = serde_json::from_slice(&files["manifests/csv.yaml"]).unwrap();
        assert_eq!(csv["metadata"]["name"], "demo.v1.2.3");
        assert_eq!(csv["spec"]["installModes"][3], json!({"type": "AllNamespaces", "supported": true}));
        assert_eq!(csv["spec"]["customresourcedefinitions"]["owned"][0]["version"], "v1");
    }

    #[test]
    fn image_bundle_changes_apply_in_order() {
        let bundle = BundleImage::new("demo", "1.0.0")
            .csv_patch(json!({"spec": {"maturity": null, "extra": {"a": 1}}}))
            .csv_patch(json!({"spec": {"extra": {"b": 2}}}))
            .file("manifests/x.yaml", "x")
            .without_file("manifests/configmap.yaml");
        let csv = bundle.csv();
        assert_eq!(csv["spec"].get("maturity"), None);
        assert_eq!(csv["spec"]["extra"], json!({"a": 1, "b": 2}));
        let files = bundle.files();
        assert!(files.contains_key("manifests/x.yaml") && !files.contains_key("manifests/configmap.yaml"));
    }
}
