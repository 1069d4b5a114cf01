//! `manifests/`: every overlay and option is rendered and held against the schemas of its kinds; the Helm chart must render the
//! same objects as the overlay that each of its presets is named after. kube-api-linter has no finding about the CRDs that
//! `hack/api-lint.tsv` does not have.
//!
//! Deliberately without a cluster: what an apiserver alone can judge (CEL, admission, references) is the job of the tests
//! in tests/integration/tests/deploy.

mod schema;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A preset of the chart, and the overlay or the options beside `kubernetes` that it must equal.
const PRESETS: &[(&str, &[&str])] = &[
    ("kubernetes", &["overlays/kubernetes"]),
    ("restricted", &["overlays/restricted"]),
    ("cert-manager", &["overlays/cert-manager"]),
    ("openshift", &["overlays/openshift"]),
    ("dev", &["overlays/dev"]),
    (
        "options",
        &[
            "overlays/kubernetes",
            "options/aggregated-roles",
            "options/mutating-policy",
            "options/guard-rails",
        ],
    ),
];
/// Components that no overlay has and no option contains.
const COMPONENTS: &[&str] = &["components/prometheus/cluster-operator"];
/// Findings about the CRDs that stay, with their reasons.
const ACCEPTED: &str = "hack/api-lint.tsv";
/// What the chart adds on purpose: CRDs outlive the release.
const KEEP: &str = "helm.sh/resource-policy";

/// Renders and checks everything. Needs `kubectl`, `helm-template`, `api-lint` and `rule-test` in the folder `OLM_TOOLS` (`make verify` sees to that).
pub(crate) fn check(root: &Path) -> Result<()> {
    let tools = std::env::var_os("OLM_TOOLS").filter(|folder| !folder.is_empty());
    let tools = PathBuf::from(tools.context("OLM_TOOLS names no folder of tools; run `make verify`")?);
    let manifests = root.join("manifests");
    lint_crds(root, &tools.join("api-lint"))?;
    test_rules(root, &tools.join("rule-test"))?;
    let mut names: Vec<String> = COMPONENTS.iter().map(|&name| name.to_owned()).collect();
    for kind in ["overlays", "options"] {
        for entry in std::fs::read_dir(manifests.join(kind))? {
            names.push(format!("{kind}/{}", entry?.file_name().to_string_lossy()));
        }
    }
    let mut rendered = BTreeMap::new();
    for name in names {
        let objects =
            render(&tools.join("kubectl"), &["kustomize".as_ref(), manifests.join(&name).as_ref()])?;
        for object in objects.values() {
            schema::check(object).with_context(|| format!("manifests/{name}: {}", title(object)))?;
        }
        eprintln!("checked  manifests/{name}: {} objects", objects.len());
        rendered.insert(name, objects);
    }
    let chart = manifests.join("chart");
    for entry in std::fs::read_dir(chart.join("presets"))? {
        let path = entry?.path();
        let preset = path.file_stem().unwrap_or_default().to_string_lossy();
        ensure!(
            PRESETS.iter().any(|(known, _)| *known == preset),
            "manifests/chart/presets/{preset}.yaml is compared with nothing; name its overlay in xtask"
        );
    }
    for (preset, parts) in PRESETS {
        let values = chart.join("presets").join(format!("{preset}.yaml"));
        let arguments = [chart.as_os_str(), "olm".as_ref(), "olmv1-system".as_ref(), values.as_ref()];
        let charted = render(&tools.join("helm-template"), &arguments)?;
        let mut expected = BTreeMap::new();
        for part in *parts {
            expected.extend(rendered.get(*part).with_context(|| format!("no {part}"))?.clone());
        }
        compare(&expected, &charted)
            .with_context(|| format!("the chart with preset {preset} is not {}", parts.join(" and ")))?;
        eprintln!("checked  manifests/chart, preset {preset}: {} objects", charted.len());
    }
    Ok(())
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

/// Runs a program that prints YAML; gives its objects by title.
fn render(program: &Path, arguments: &[&OsStr]) -> Result<Objects> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}; run `make tools`", program.display()))?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} {arguments:?}: {printed}", program.display());
    let documents: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout)?)
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

fn compare(expected: &Objects, got: &Objects) -> Result<()> {
    let mut differences = Vec::new();
    for title in expected.keys().chain(got.keys().filter(|title| !expected.contains_key(*title))) {
        match (expected.get(title), got.get(title)) {
            (Some(expected), Some(got)) => {
                let mut got = got.clone();
                if let Some(metadata) = got["metadata"].as_object_mut() {
                    let annotations = metadata.get_mut("annotations").and_then(Value::as_object_mut);
                    if annotations.is_some_and(|all| all.remove(KEEP).is_some() && all.is_empty()) {
                        metadata.remove("annotations");
                    }
                }
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
    fn manifests_differences_are_named() {
        let plain = config_map(json!({"n": 1, "l": [{"x": "y"}]}));
        assert!(compare(&plain, &config_map(json!({"n": 1.0, "l": [{"x": "y"}]}))).is_ok());
        assert!(compare(&plain, &config_map(json!({"n": 1, "l": [{"x": "y"}], "metadata": {"name": "a", "annotations": {KEEP: "keep"}}}))).is_ok());
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
