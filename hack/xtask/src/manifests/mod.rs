//! `manifests/`: every overlay, component and option is rendered and held against the schemas of its kinds; the Helm chart passes `helm
//! lint` and must render the same objects as the kustomization that each of its presets is named after. kube-api-linter has no finding
//! about the CRDs that `hack/api-lint.tsv` does not have.
//!
//! Deliberately without a cluster: what an apiserver alone can judge (CEL, admission, references) is the job of the tests
//! in tests/integration/tests/deploy.

mod schema;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A file of values of the chart, and what it must equal.
struct Preset {
    name: &'static str,
    /// An overlay.
    overlay: &'static str,
    /// Components on top of it.
    components: &'static [&'static str],
    /// Options beside it.
    options: &'static [&'static str],
}

const PLAIN: Preset = Preset { name: "", overlay: "", components: &[], options: &[] };
const PRESETS: &[Preset] = &[
    Preset { name: "kubernetes", overlay: "kubernetes", ..PLAIN },
    Preset { name: "restricted", overlay: "restricted", ..PLAIN },
    Preset { name: "cert-manager", overlay: "cert-manager", ..PLAIN },
    Preset { name: "openshift", overlay: "openshift", ..PLAIN },
    Preset { name: "dev", overlay: "dev", ..PLAIN },
    Preset {
        name: "options",
        overlay: "kubernetes",
        options: &["aggregated-roles", "mutating-policy", "guard-rails"],
        ..PLAIN
    },
    Preset { name: "prometheus", overlay: "kubernetes", options: &["prometheus"], ..PLAIN },
    Preset {
        name: "prometheus-cert-manager",
        overlay: "cert-manager",
        options: &["prometheus-cert-manager"],
        ..PLAIN
    },
    Preset { name: "persistent-cache", overlay: "kubernetes", components: &["persistent-cache"], ..PLAIN },
    Preset { name: "signatures", overlay: "kubernetes", components: &["signatures"], ..PLAIN },
    Preset { name: "grpc-registry", overlay: "kubernetes", components: &["grpc-registry"], ..PLAIN },
    Preset { name: "classic", overlay: "kubernetes", components: &["classic"], ..PLAIN },
    Preset {
        name: "signatures-classic",
        overlay: "kubernetes",
        components: &["classic", "signatures", "signatures/classic"],
        ..PLAIN
    },
    Preset {
        name: "persistent-cache-classic",
        overlay: "kubernetes",
        components: &["classic", "persistent-cache/classic"],
        ..PLAIN
    },
    Preset {
        name: "prometheus-classic",
        overlay: "kubernetes",
        components: &["classic", "prometheus/classic"],
        options: &["prometheus"],
    },
    Preset { name: "openshift-classic", overlay: "openshift", components: &["openshift/classic"], ..PLAIN },
];
/// Components that no overlay has and no option contains.
const COMPONENTS: &[&str] = &["components/prometheus/classic", "components/prometheus/cluster-operator"];
/// Findings about the CRDs that stay, with their reasons.
const ACCEPTED: &str = "hack/api-lint.tsv";
/// What the chart adds on purpose: CRDs and the Namespace outlive the release.
const KEEP: &str = "helm.sh/resource-policy";
/// What it adds to the labels of every object that has labels.
const HELM_LABELS: [&str; 4] = [
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
];
const NAMESPACE: &str = "olmv1-system";
/// The label by which a former version is applied without its CRDs (docs/upgrading.md).
const PART_OF: &str = "app.kubernetes.io/part-of";

/// Renders and checks everything. Needs `kubectl`, `helm`, `api-lint` and `rule-test` in the folder `OLM_TOOLS` (`make verify` sees to
/// that).
pub(crate) fn check(root: &Path) -> Result<()> {
    let tools = std::env::var_os("OLM_TOOLS").filter(|folder| !folder.is_empty());
    let tools = PathBuf::from(tools.context("OLM_TOOLS names no folder of tools; run `make verify`")?);
    let manifests = root.join("manifests");
    lint_crds(root, &tools.join("api-lint"))?;
    test_rules(root, &tools.join("rule-test"))?;
    let kustomize = |folder: &Path| -> Result<Objects> {
        let objects = render(&tools.join("kubectl"), &[OsStr::new("kustomize"), folder.as_os_str()])?;
        for object in objects.values() {
            schema::check(object).with_context(|| format!("{}: {}", folder.display(), title(object)))?;
        }
        Ok(objects)
    };
    let mut rendered = BTreeMap::new();
    for kind in ["overlays", "options"] {
        for name in entries(&manifests.join(kind))? {
            let name = format!("{kind}/{name}");
            let objects = kustomize(&manifests.join(&name))?;
            if kind == "overlays" {
                check_part_of(&objects).with_context(|| name.clone())?;
            }
            eprintln!("checked  manifests/{name}: {} objects", objects.len());
            rendered.insert(name, objects);
        }
    }
    let composed = |overlay: &str, components: &[&str]| -> Result<Objects> {
        let objects = kustomize(&compose(root, overlay, components)?)?;
        check_part_of(&objects).with_context(|| components.join(", "))?;
        Ok(objects)
    };
    let overlays = entries(&manifests.join("overlays"))?;
    let mut used = String::new();
    for overlay in &overlays {
        used += &std::fs::read_to_string(manifests.join("overlays").join(overlay).join(KUSTOMIZATION))?;
    }
    for component in entries(&manifests.join("components"))? {
        if !used.contains(&format!("components/{component}\n")) {
            let objects = composed("kubernetes", &[&component])?;
            eprintln!("checked  manifests/components/{component}: {} objects", objects.len());
        }
    }
    for name in COMPONENTS {
        let objects = kustomize(&manifests.join(name))?;
        eprintln!("checked  manifests/{name}: {} objects", objects.len());
    }
    let chart = manifests.join("chart");
    for file in entries(&chart.join("presets"))? {
        ensure!(
            PRESETS.iter().any(|preset| file == format!("{}.yaml", preset.name)),
            "manifests/chart/presets/{file} is compared with nothing; name its overlay in xtask"
        );
    }
    let helm = |verb: &[&str], values: Option<&Path>| -> Vec<OsString> {
        let mut arguments: Vec<OsString> = verb.iter().map(Into::into).collect();
        arguments.push(format!("--namespace={NAMESPACE}").into());
        if let Some(values) = values {
            arguments.push("--values".into());
            arguments.push(values.into());
        }
        arguments.push(chart.clone().into());
        arguments
    };
    succeed(&tools.join("helm"), &helm(&["lint", "--strict"], None))?;
    for preset in PRESETS {
        let values = chart.join("presets").join(format!("{}.yaml", preset.name));
        succeed(&tools.join("helm"), &helm(&["lint", "--strict"], Some(&values)))?;
        // (overlays have the Namespace, `helm install --create-namespace` makes its own)
        let template = ["template", "olm", "--skip-tests", "--set", "namespace.create=true"];
        let charted = render(&tools.join("helm"), &helm(&template, Some(&values)))?;
        let mut expected = match preset.components {
            [] => rendered.get(&format!("overlays/{}", preset.overlay)).context(preset.overlay)?.clone(),
            components => composed(preset.overlay, components)?,
        };
        for option in preset.options {
            expected.extend(rendered.get(&format!("options/{option}")).context(*option)?.clone());
        }
        compare(&expected, &charted).with_context(|| {
            format!("the chart with preset {} is not what kustomize renders", preset.name)
        })?;
        eprintln!("checked  manifests/chart, preset {}: {} objects", preset.name, charted.len());
    }
    Ok(())
}

const KUSTOMIZATION: &str = "kustomization.yaml";

/// The names in a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Writes a kustomization of an overlay and components; gives its folder. (Its paths must be relative.)
fn compose(root: &Path, overlay: &str, components: &[&str]) -> Result<PathBuf> {
    let folder = root.join(".run/xtask").join(components.join("-").replace('/', "-"));
    std::fs::create_dir_all(&folder)?;
    let manifests = "../../../manifests";
    let components: Vec<String> =
        components.iter().map(|component| format!("{manifests}/components/{component}")).collect();
    let kustomization = serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("{manifests}/overlays/{overlay}")], "components": components,
    });
    std::fs::write(folder.join(KUSTOMIZATION), kustomization.to_string())?;
    Ok(folder)
}

/// Runs kube-api-linter over the CRDs (decision 46).
fn lint_crds(root: &Path, program: &Path) -> Result<()> {
    let mut crds = Vec::new();
    for entry in std::fs::read_dir(root.join("manifests/crds"))? {
        crds.push(entry?.path());
    }
    crds.retain(|path| path.extension() == Some(OsStr::new("yaml")));
    crds.sort();
    let output = Command::new(program).arg(root.join(ACCEPTED)).args(&crds).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "kube-api-linter: fix the field in api/, or add its line with the reason to {ACCEPTED}:\n{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("checked  manifests/crds: {}", text.trim());
    Ok(())
}

/// Runs the tests of the alerts with Prometheus' own packages, which also parse the queries of the dashboard.
fn test_rules(root: &Path, program: &Path) -> Result<()> {
    let folder = root.join("manifests/monitoring");
    let files = ["prometheus-rule.yaml", "tests.yaml", "dashboard.json"].map(|name| folder.join(name));
    let output = Command::new(program).args(&files).output();
    let output = output.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(
        output.status.success(),
        "tests of the alerts failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("checked  manifests/monitoring: {}", String::from_utf8_lossy(&output.stdout).trim());
    Ok(())
}

type Objects = BTreeMap<String, Value>;

/// Runs a program that must succeed; gives its standard output.
fn succeed(program: &Path, arguments: &[impl AsRef<OsStr> + std::fmt::Debug]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}; run `make tools`", program.display()))?;
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{} {arguments:?}: {printed}{errors}", program.display());
    Ok(printed.into_owned())
}

/// Runs a program that prints YAML; gives its objects by title.
fn render(program: &Path, arguments: &[impl AsRef<OsStr> + std::fmt::Debug]) -> Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&succeed(program, arguments)?)
        .map_err(|problem| anyhow::anyhow!("{arguments:?}: {problem}"))?;
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|object| !object.is_null()) {
        let title = title(&object);
        ensure!(objects.insert(title.clone(), object).is_none(), "{arguments:?} has {title} twice");
    }
    ensure!(!objects.is_empty(), "{arguments:?} renders nothing");
    Ok(objects)
}

/// What makes an object one of its own.
fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
    format!(
        "{} {} {}/{}",
        text("/apiVersion"),
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

/// Every object of an installation has the label [`PART_OF`], except for CRDs.
fn check_part_of(objects: &Objects) -> Result<()> {
    let is_wrong = |object: &&Value| {
        let is_labelled = object["metadata"]["labels"][PART_OF] == "olm";
        is_labelled == (object["kind"] == "CustomResourceDefinition")
    };
    let wrong: Vec<String> = objects.values().filter(is_wrong).map(title).collect();
    ensure!(
        wrong.is_empty(),
        "{PART_OF}=olm is a label of every object but of no CRD; not so: {}",
        wrong.join(", ")
    );
    Ok(())
}

fn compare(expected: &Objects, got: &Objects) -> Result<()> {
    let mut differences = Vec::new();
    for title in expected.keys().chain(got.keys().filter(|title| !expected.contains_key(*title))) {
        match (expected.get(title), got.get(title)) {
            (Some(expected), Some(got)) => {
                let got = without_additions(got).with_context(|| title.clone())?;
                if let Some(place) = first_difference(expected, &got, "") {
                    differences.push(format!("{title}: {place}"));
                }
            }
            (Some(_), None) => differences.push(format!("{title}: missing")),
            (None, _) => differences.push(format!("{title}: not expected")),
        }
    }
    ensure!(differences.is_empty(), "{}", differences.join("\n"));
    Ok(())
}

/// An object of the chart without what Helm's conventions add to it, all of which must be there.
fn without_additions(object: &Value) -> Result<Value> {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().context("no metadata")?;
    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
    if annotations.is_some_and(|all| all.remove(KEEP).is_some() && all.is_empty()) {
        metadata.remove("annotations");
    }
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        for label in HELM_LABELS {
            ensure!(labels.remove(label).is_some(), "no label {label}");
        }
    }
    if let Some(labels) = object.pointer_mut("/spec/template/metadata/labels").and_then(Value::as_object_mut)
    {
        let [instance, ..] = HELM_LABELS;
        ensure!(labels.remove(instance).is_some(), "pods have no label {instance}");
    }
    Ok(object)
}

/// The place of the first difference and both values.
fn first_difference(expected: &Value, got: &Value, place: &str) -> Option<String> {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            let keys = expected.keys().chain(got.keys().filter(|key| !expected.contains_key(*key)));
            let of = |map: &serde_json::Map<String, Value>, key: &String| {
                map.get(key).cloned().unwrap_or_default()
            };
            keys.into_iter().find_map(|key| {
                first_difference(&of(expected, key), &of(got, key), &format!("{place}/{key}"))
            })
        }
        (Value::Array(expected), Value::Array(got)) if expected.len() == got.len() => {
            let pairs = expected.iter().zip(got).enumerate();
            pairs
                .into_iter()
                .find_map(|(at, (expected, got))| first_difference(expected, got, &format!("{place}/{at}")))
        }
        (Value::Number(expected), Value::Number(got)) if expected.as_f64() == got.as_f64() => None,
        _ if expected == got => None,
        _ => Some(format!("{place}: expected {expected}, got {got}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config_map(more: Value) -> Objects {
        let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        Objects::from([(title(&object), object)])
    }

    #[test]
    fn manifests_without_the_common_label_are_named() {
        for (kind, labels, is_right) in [
            ("ConfigMap", json!({PART_OF: "olm"}), true),
            ("ConfigMap", json!({PART_OF: "other"}), false),
            ("ConfigMap", json!({}), false),
            ("CustomResourceDefinition", json!({"a": "b"}), true),
            ("CustomResourceDefinition", json!({PART_OF: "olm"}), false),
        ] {
            let objects = config_map(json!({"kind": kind, "metadata": {"name": "a", "labels": labels}}));
            let checked = check_part_of(&objects);
            assert_eq!(checked.is_ok(), is_right, "{objects:?}: {checked:?}");
            assert!(checked.is_ok() || checked.unwrap_err().to_string().contains(&format!("v1 {kind} -/a")));
        }
    }

    #[test]
    fn manifests_differences_are_named() {
        let plain = config_map(json!({"n": 1, "l": [{"x": "y"}]}));
        assert!(compare(&plain, &config_map(json!({"n": 1.0, "l": [{"x": "y"}]}))).is_ok());
        let added =
            json!({"n": 1, "l": [{"x": "y"}], "metadata": {"name": "a", "annotations": {KEEP: "keep"}}});
        assert!(compare(&plain, &config_map(added)).is_ok());
        let labelled = |more: Value| config_map(json!({"metadata": {"name": "a", "labels": more}}));
        let mut labels = json!({"a": "b"});
        let expected = labelled(labels.clone());
        assert!(
            format!("{:#}", compare(&expected, &expected).unwrap_err())
                .contains("no label app.kubernetes.io/instance")
        );
        HELM_LABELS.iter().for_each(|label| labels[label] = json!("x"));
        assert!(compare(&expected, &labelled(labels)).is_ok());
        for (other, difference) in [
            (config_map(json!({"n": 2, "l": [{"x": "y"}]})), "/n: expected 1, got 2"),
            (config_map(json!({"n": 1, "l": [{"x": "z"}]})), "/l/0/x: expected \"y\", got \"z\""),
            (config_map(json!({"n": 1, "l": [{"x": "y"}, {}]})), "/l: expected"),
            (config_map(json!({"n": 1, "l": [{"x": "y"}], "m": true})), "/m: expected null, got true"),
            (config_map(json!({"kind": "Secret"})), "missing"),
            (Objects::new(), "v1 ConfigMap -/a: missing"),
        ] {
            let error = compare(&plain, &other).unwrap_err().to_string();
            assert!(error.contains(difference), "{error}");
        }
        assert!(compare(&Objects::new(), &plain).unwrap_err().to_string().contains("not expected"));
    }
}
