//! Merge rules of the fields of a kind: which maps and lists are atomic, and which lists have keys. Not a validation.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::fields::key_step;

/// The merge rules of a value.
#[derive(Debug)]
pub(crate) enum Node {
    /// Fields with names of their own. Lists and scalars without a row are leaves.
    Struct {
        fields: BTreeMap<String, Arc<Node>>,
        /// Other fields are known, too (built-in kinds, whose table holds exceptions only).
        is_open: bool,
    },
    /// Items are merged one by one.
    Map(Arc<Node>),
    /// Replaced as a whole.
    Atomic,
    /// A list of scalars that is merged as a set.
    Set,
    /// A list of maps that is merged by keys, with defaults of absent keys.
    Keyed { keys: Vec<(String, Option<Value>)>, items: Arc<Node> },
}

static ATOMIC: LazyLock<Arc<Node>> = LazyLock::new(|| Arc::new(Node::Atomic));
/// A built-in struct without exceptions.
static OPEN: LazyLock<Arc<Node>> =
    LazyLock::new(|| Arc::new(Node::Struct { fields: BTreeMap::new(), is_open: true }));
/// A value without schema: maps are merged item by item, lists are replaced.
static UNTYPED: LazyLock<Arc<Node>> =
    LazyLock::new(|| Arc::new(Node::Struct { fields: BTreeMap::new(), is_open: false }));

impl Node {
    /// The rules of a field, and whether it has a name of its own.
    pub(crate) fn field(&self, name: &str) -> (&Node, bool) {
        match self {
            Self::Struct { fields, is_open } => match fields.get(name) {
                Some(node) => (node, true),
                None if *is_open => (&OPEN, true),
                None => (&UNTYPED, false),
            },
            Self::Map(items) => (items, false),
            _ => (&ATOMIC, false),
        }
    }

    /// The rules below a step of a field path, and whether it is a field with a name of its own.
    pub(crate) fn step(&self, step: &str) -> (&Node, bool) {
        match (self, step.strip_prefix("f:")) {
            (_, Some(name)) => self.field(name),
            (Self::Keyed { items, .. }, None) => (items, false),
            _ => (&ATOMIC, false),
        }
    }

    /// The rules of items, if the list is merged item by item.
    pub(crate) fn items(&self) -> Option<&Node> {
        match self {
            Self::Set => Some(&ATOMIC),
            Self::Keyed { items, .. } => Some(items),
            _ => None,
        }
    }

    /// The step to an item of a list that is merged item by item.
    pub(crate) fn item_step(&self, item: &Value) -> String {
        match self {
            Self::Keyed { keys, .. } => {
                let value = |(key, default): &(String, Option<Value>)| {
                    let value = item.get(key).cloned().or_else(|| default.clone())?;
                    Some((key.clone(), value))
                };
                key_step(&keys.iter().filter_map(value).collect())
            }
            _ => format!("v:{item}"),
        }
    }

    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self, Self::Atomic)
    }
}

/// The rules of a version of a custom resource.
pub(crate) fn of_crd(schema: &Value) -> Arc<Node> {
    let node = read(schema);
    let mut fields = match Arc::try_unwrap(node) {
        Ok(Node::Struct { fields, .. }) => fields,
        _ => BTreeMap::new(),
    };
    fields.insert("metadata".to_owned(), Arc::clone(&META));
    fields.insert("apiVersion".to_owned(), Arc::clone(&ATOMIC));
    fields.insert("kind".to_owned(), Arc::clone(&ATOMIC));
    Arc::new(Node::Struct { fields, is_open: false })
}

fn read(schema: &Value) -> Arc<Node> {
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    if text("x-kubernetes-map-type") == Some("atomic") {
        return Arc::clone(&ATOMIC);
    }
    if let Some(items) = schema.get("items") {
        return match text("x-kubernetes-list-type") {
            Some("set") => Arc::new(Node::Set),
            Some("map") => {
                let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let default = |key: &str| items.pointer(&format!("/properties/{key}/default")).cloned();
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                let keys = keys.map(|key| (key.to_owned(), default(key))).collect();
                Arc::new(Node::Keyed { keys, items: read(items) })
            }
            _ => Arc::clone(&ATOMIC),
        };
    }
    if text("type") != Some("object") && schema.get("properties").is_none() {
        return match schema.get("x-kubernetes-preserve-unknown-fields") {
            Some(Value::Bool(true)) => Arc::clone(&UNTYPED),
            _ => Arc::clone(&ATOMIC),
        };
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        return Arc::new(Node::Map(read(values)));
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    let fields =
        properties.into_iter().flatten().map(|(name, schema)| (name.clone(), read(schema))).collect();
    Arc::new(Node::Struct { fields, is_open: false })
}

/// The exceptions of built-in kinds, below the path of the row: `{}` a map, `!` atomic, `=` a set, else the keys of a list.
const OBJECT_META: &str = "labels={} annotations={} finalizers== ownerReferences=uid managedFields=!";
const POD_SPEC: &str = "nodeSelector=! containers=name initContainers=name ephemeralContainers=name volumes=name \
    imagePullSecrets=name hostAliases=ip topologySpreadConstraints=topologyKey,whenUnsatisfiable resourceClaims=name \
    readinessGates=! tolerations=! schedulingGates=name";
const CONTAINER: &str = "env=name ports=containerPort,protocol:TCP volumeMounts=mountPath volumeDevices=devicePath \
    resources.limits={} resources.requests={} resources.claims=name";

fn table(rows: &str, mut fields: BTreeMap<String, Arc<Node>>, items: &Arc<Node>) -> Arc<Node> {
    for row in rows.split_whitespace() {
        let Some((path, rule)) = row.split_once('=') else { continue };
        let node = match rule {
            "{}" => Arc::new(Node::Map(Arc::clone(&ATOMIC))),
            "!" => Arc::clone(&ATOMIC),
            "=" => Arc::new(Node::Set),
            keys => {
                let key = |key: &str| match key.split_once(':') {
                    Some((key, default)) => (key.to_owned(), Some(Value::from(default))),
                    None => (key.to_owned(), None),
                };
                // an owner reference is replaced as a whole
                let items = if path.ends_with("ownerReferences") { &ATOMIC } else { items };
                let items = if path.to_lowercase().ends_with("containers") || items.is_atomic() {
                    items
                } else {
                    &OPEN
                };
                Arc::new(Node::Keyed { keys: keys.split(',').map(key).collect(), items: Arc::clone(items) })
            }
        };
        put(&mut fields, path, node);
    }
    Arc::new(Node::Struct { fields, is_open: true })
}

fn put(fields: &mut BTreeMap<String, Arc<Node>>, path: &str, node: Arc<Node>) {
    match path.split_once('.') {
        None => drop(fields.insert(path.to_owned(), node)),
        Some((first, rest)) => {
            let mut below = match fields.get(first).map(AsRef::as_ref) {
                Some(Node::Struct { fields, .. }) => fields.clone(),
                _ => BTreeMap::new(),
            };
            put(&mut below, rest, node);
            fields.insert(first.to_owned(), Arc::new(Node::Struct { fields: below, is_open: true }));
        }
    }
}

static META: LazyLock<Arc<Node>> = LazyLock::new(|| table(OBJECT_META, BTreeMap::new(), &OPEN));

/// The rules of a built-in kind.
pub(crate) fn of_built_in(kind: &str) -> Arc<Node> {
    let container = table(CONTAINER, BTreeMap::new(), &OPEN);
    let pod = table(POD_SPEC, BTreeMap::new(), &container);
    let mut fields = BTreeMap::from([("metadata".to_owned(), Arc::clone(&META))]);
    let rows = match kind {
        "ConfigMap" => "data={} binaryData={}",
        "Secret" => "data={} stringData={}",
        "ServiceAccount" => "secrets=name imagePullSecrets=!",
        "Namespace" => "spec.finalizers=! status.conditions=type",
        "Service" => "spec.selector=! spec.ports=port,protocol:TCP status.conditions=type",
        "Pod" => {
            fields.insert("spec".to_owned(), pod);
            "status.conditions=type"
        }
        "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet" | "Job" => {
            put(&mut fields, "spec.template.metadata", Arc::clone(&META));
            put(&mut fields, "spec.template.spec", pod);
            "spec.selector=! status.conditions=type"
        }
        "ClusterRole" => "aggregationRule=!",
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => "webhooks=name",
        "CustomResourceDefinition" => "status.conditions=type",
        "PodDisruptionBudget" => "spec.selector=! status.conditions=type",
        "NetworkPolicy" => "spec.podSelector=!",
        "APIService" => "status.conditions=type",
        _ => "",
    };
    table(rows, fields, &OPEN)
}
