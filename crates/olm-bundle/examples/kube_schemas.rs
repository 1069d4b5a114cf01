//! Makes `src/kube/schemas.json`: the Kubernetes object shapes that a bundle's config and typed parts are held against.
//!
//! Input is the folder `api/openapi-spec/v3` of the Go module `k8s.io/kubernetes` at the version the project builds its
//! control plane from; `make` is not involved, the result is committed. Descriptions are left out, nothing else is changed.
//!
//! ```text
//! cargo run -p olm-bundle --example kube_schemas -- "$(go env GOMODCACHE)/k8s.io/kubernetes@v1.36.3/api/openapi-spec/v3" \
//!     > crates/olm-bundle/src/kube/schemas.json
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

const DOCUMENTS: [&str; 4] = [
    "api__v1_openapi.json",
    "apis__apps__v1_openapi.json",
    "apis__apiextensions.k8s.io__v1_openapi.json",
    "apis__admissionregistration.k8s.io__v1_openapi.json",
];

const ROOTS: [&str; 11] = [
    "io.k8s.api.core.v1.Affinity",
    "io.k8s.api.core.v1.EnvFromSource",
    "io.k8s.api.core.v1.EnvVar",
    "io.k8s.api.core.v1.ResourceRequirements",
    "io.k8s.api.core.v1.Toleration",
    "io.k8s.api.core.v1.Volume",
    "io.k8s.api.core.v1.VolumeMount",
    "io.k8s.api.apps.v1.DeploymentSpec",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    "io.k8s.api.admissionregistration.v1.MutatingWebhook",
];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("name the folder api/openapi-spec/v3 of k8s.io/kubernetes")?;
    let mut known = BTreeMap::new();
    for document in DOCUMENTS {
        let text = std::fs::read(Path::new(&folder).join(document))?;
        let value: Value = serde_json::from_slice(&text)?;
        let schemas = value
            .pointer("/components/schemas")
            .and_then(Value::as_object)
            .ok_or("no /components/schemas")?;
        for (name, schema) in schemas {
            // the documents agree on shared types; the first one that names a type is core/v1 where it can be
            known.entry(name.clone()).or_insert_with(|| schema.clone());
        }
    }
    let mut pending: Vec<String> = ROOTS.map(str::to_owned).to_vec();
    let mut out = BTreeMap::new();
    while let Some(name) = pending.pop() {
        if out.contains_key(&name) {
            continue;
        }
        let mut schema =
            known.get(&name).ok_or_else(|| format!("{name} is in none of the documents"))?.clone();
        strip(&mut schema, &mut pending);
        out.insert(name, schema);
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(b"{\n")?;
    let last = out.len() - 1;
    for (index, (name, schema)) in out.iter().enumerate() {
        let comma = if index == last { "" } else { "," };
        writeln!(stdout, "\"{name}\": {}{comma}", serde_json::to_string(schema)?)?;
    }
    stdout.write_all(b"}\n")?;
    Ok(())
}

/// Drops descriptions of a schema and of the schemas in it, and collects what it refers to.
fn strip(schema: &mut Value, referred: &mut Vec<String>) {
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("description");
    if let Some(name) =
        members.get("$ref").and_then(Value::as_str).and_then(|target| target.rsplit('/').next())
    {
        referred.push(name.to_owned());
    }
    for (key, member) in members {
        match (key.as_str(), member) {
            ("properties", Value::Object(properties)) => {
                properties.values_mut().for_each(|one| strip(one, referred))
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => {
                branches.iter_mut().for_each(|one| strip(one, referred));
            }
            ("items" | "additionalProperties" | "not", one) => strip(one, referred),
            _ => {}
        }
    }
}
