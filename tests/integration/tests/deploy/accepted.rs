//! Everything that users apply, as it is rendered: overlays, options, the chart with each preset, and examples. An apiserver accepts it in
//! a dry run, and kubeconform by schemas that are made from that apiserver's OpenAPI. Kinds of others have their own CRDs, from the Go
//! modules of their projects.
//!
//! `make test-oldest` runs it on the oldest apiserver that is supported.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_kit::{Cluster, Options, Tools, eventually, repository};
use serde_json::{Map, Value, json};

use crate::chart::template;
use crate::manifests::{
    OPTIONS, OVERLAYS, apply, apply_dry, folder, make_default_account, prepare, render, stdout_of, write_list,
};

/// Kinds of Flux and Argo CD, whose CRDs are not here. `make test-gitops` has those of Flux.
const ELSEWHERE: [&str; 3] = ["Application", "GitRepository", "Kustomization"];
/// A component that no overlay, option or preset contains.
const COMPONENT: &str = "components/prometheus/cluster-operator";
/// A kind that apiservers have since 1.36.
const NEW: &str = "MutatingAdmissionPolicy";
const LIMIT: Duration = Duration::from_secs(60);

/// What is rendered, by what it is rendered from.
fn rendered() -> Result<BTreeMap<String, Vec<Value>>> {
    let mut all = BTreeMap::new();
    for path in OVERLAYS.iter().chain(OPTIONS).chain([&COMPONENT]) {
        all.insert((*path).to_owned(), render(path)?);
    }
    for entry in std::fs::read_dir(folder("chart/presets"))? {
        let path = entry?.path();
        let values = parse(&std::fs::read_to_string(&path)?)?.pop().context("no values")?;
        let name = format!("chart/presets/{}", path.file_name().unwrap_or_default().display());
        all.insert(name, template(&values)?);
    }
    examples(&repository().join("examples"), &mut all)?;
    Ok(all)
}

/// Folders with a kustomization, and files that are in none.
fn examples(folder: &Path, all: &mut BTreeMap<String, Vec<Value>>) -> Result<()> {
    let kustomized = folder.join("kustomization.yaml").is_file();
    let title = |path: &Path| path.strip_prefix(repository()).unwrap_or(path).display().to_string();
    if kustomized {
        let text = stdout_of(Tools::locate()?.command("kubectl")?.arg("kustomize").arg(folder))?;
        all.insert(title(folder), parse(&text)?);
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            examples(&path, all)?;
        } else if path.extension().is_some_and(|it| it == "yaml") && !path.ends_with("kustomization.yaml") {
            all.insert(title(&path), parse(&std::fs::read_to_string(&path)?)?);
        }
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|problem| anyhow::anyhow!("{problem}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn manifests_are_accepted_and_fit_their_schemas() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    prepare(&cluster).await?;
    cluster.apply("{apiVersion: v1, kind: Namespace, metadata: {name: monitoring}}").await?;
    // a dry run makes neither the namespace nor the kinds that the other objects need. (On OpenShift pods mount folders of the host.)
    apply(&cluster, "overlays/openshift")?;
    make_default_account(&cluster).await?;
    let version = cluster.client().await?.apiserver_version().await?;
    let minor: u32 = version.minor.parse().with_context(|| format!("version {version:?}"))?;
    let mut all = rendered()?;
    ensure!(all.len() > 25, "{:?}", all.keys());
    for objects in all.values_mut() {
        let known = |object: &Value| {
            !ELSEWHERE.contains(&kind(object)) && (minor >= 36 || !kind(object).starts_with(NEW))
        };
        objects.retain(known);
    }
    let folder = tempfile::tempdir()?;
    let (files, schemas) = (folder.path().join("objects"), folder.path().join("schemas"));
    std::fs::create_dir(&files)?;
    std::fs::create_dir(&schemas)?;
    let mut written = Vec::new();
    for (name, objects) in all.iter().filter(|(_, objects)| !objects.is_empty()) {
        let file = files.join(format!("{}.json", name.replace('/', "_")));
        write_list(&file, objects)?;
        written.push((name, file));
    }
    let forced = ["--force-conflicts"];
    if let Err(problem) = apply_dry(&cluster, &files, &forced) {
        // which of them it is
        for (name, file) in &written {
            apply_dry(&cluster, file, &forced).with_context(|| (*name).clone())?;
        }
        return Err(problem);
    }
    let count: usize = all.values().map(Vec::len).sum();
    let kinds: BTreeSet<String> =
        all.values().flatten().map(|object| format!("{} {}", object["apiVersion"], kind(object))).collect();
    eventually("the OpenAPI has every kind", LIMIT, || async {
        let written = write_schemas(&cluster, &schemas).await?;
        let missing: Vec<&String> = kinds.difference(&written).collect();
        ensure!(missing.is_empty(), "no schema of {missing:?}");
        Ok(())
    })
    .await?;
    let judge = |path: &Path| -> Result<std::process::Output> {
        let mut command = Tools::locate()?.command("kubeconform")?;
        let location = format!(
            "{}/{{{{.ResourceKind}}}}_{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}.json",
            schemas.display()
        );
        command.args(["-strict", "-summary", "-schema-location", &location]).arg(path);
        Ok(command.stdin(Stdio::null()).output()?)
    };
    let output = judge(&files)?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let (renderings, kinds, text) = (all.len(), kinds.len(), text.trim());
    println!("Kubernetes 1.{minor}: {count} objects of {renderings} renderings, {kinds} kinds: {text}");

    // a field that a kind does not have is found
    let invalid =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"portz": []}});
    let file = folder.path().join("invalid.json");
    std::fs::write(&file, invalid.to_string())?;
    let output = judge(&file)?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(!output.status.success() && text.contains("portz"), "{text}");
    Ok(())
}

/// Writes a schema for each kind that the apiserver describes; gives `"<apiVersion>" <kind>` of each.
async fn write_schemas(cluster: &Cluster, folder: &Path) -> Result<BTreeSet<String>> {
    let client = cluster.client().await?;
    let get = async |path: &str| -> Result<Value> {
        let request = axum::http::Request::get(path).body(Vec::new())?;
        Ok(serde_json::from_str(&client.request_text(request).await?)?)
    };
    let mut written = BTreeSet::new();
    for (name, entry) in get("/openapi/v3").await?["paths"].as_object().context("no paths")? {
        if !name.starts_with("api/") && !name.starts_with("apis/") {
            continue;
        }
        let document = get(entry["serverRelativeURL"].as_str().context("no URL")?).await?;
        let Value::Object(mut schemas) = document["components"]["schemas"].clone() else { continue };
        schemas.values_mut().for_each(close);
        for (title, schema) in &schemas {
            for gvk in schema["x-kubernetes-group-version-kind"].as_array().into_iter().flatten() {
                let text = |key: &str| gvk[key].as_str().unwrap_or_default();
                let (group, version, kind) = (text("group"), text("version"), text("kind"));
                let slash = if group.is_empty() { "" } else { "/" };
                if name.trim_start_matches("apis/").trim_start_matches("api/")
                    != format!("{group}{slash}{version}")
                {
                    continue;
                }
                let whole = json!({"$ref": format!("#/components/schemas/{title}"), "components": {"schemas": schemas}});
                // kubeconform takes the version of the core group for its name
                let group_or_version = if group.is_empty() { version } else { group };
                let file = format!("{}_{group_or_version}_{version}.json", kind.to_lowercase());
                std::fs::write(folder.join(file), whole.to_string())?;
                written.insert(format!("{} {kind}", json!(format!("{group}{slash}{version}"))));
            }
        }
    }
    Ok(written)
}

/// Rejects fields without a schema, as the apiserver does with `fieldValidation=Strict`.
fn close(schema: &mut Value) {
    let Value::Object(members) = schema else { return };
    for key in ["properties", "patternProperties"] {
        members
            .get_mut(key)
            .and_then(Value::as_object_mut)
            .into_iter()
            .flat_map(Map::values_mut)
            .for_each(close);
    }
    for key in ["items", "additionalProperties"] {
        members.get_mut(key).into_iter().for_each(close);
    }
    let open = members.contains_key("additionalProperties")
        || members.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if members.contains_key("properties") && !open {
        members.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}
