//! manifests/chart/README.md: the values of the Helm chart, from the comments of `values.yaml`. Every property of the chart's schema is
//! there, too, so that none is without a description.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

const VALUES: &str = "manifests/chart/values.yaml";
const SCHEMA: &str = "manifests/chart/values.schema.json";
/// The program whose comments hold for the others, too.
const FIRST: &str = "catalogd";
const OTHERS: [&str; 3] = ["operatorController", "clusterOperator", "classicController"];
/// A longer default is not printed.
const MAX_DEFAULT: usize = 80;

const HEAD: &str = "<!-- Generated from values.yaml by `make generate`. Do not edit. -->\n\
    # Helm chart olm-rs\n\n\
    catalogd and operator-controller, on OpenShift cluster-operator too, and on request classic-controller, with what they need: CustomResourceDefinitions, permissions, \
    network policies, admission policies. [Installing](../../docs/install.md#helm) describes installation, upgrades, and what stays after \
    `helm uninstall`. One release per cluster: the names of the objects are fixed.\n\n\
    The files in `presets/` hold the values that render what the kustomize overlays of the same names render; a check compares both. \
    `values.schema.json` rejects a value that is not listed here. A key without a value (`catalogd:`) has its default; only `resources`, \
    `nodeSelector`, `tolerations`, `affinity`, `topologySpreadConstraints` and `podSecurityContext` are removed by it, as is usual in Helm.\n";

/// The page.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let page = page(&read(VALUES)?, &serde_json::from_str(&read(SCHEMA)?).context(SCHEMA)?)?;
    Ok(vec![("manifests/chart/README.md".into(), page)])
}

fn page(text: &str, schema: &Value) -> Result<String> {
    let values: Value =
        serde_saphyr::from_str(text).map_err(|problem| anyhow::anyhow!("{VALUES}: {problem}"))?;
    let rows = rows(&keys(text), &values)?;
    listed(&values, schema, schema, "", &rows)?;
    let mut page = HEAD.to_owned();
    let of_programs = |row: &Row| row.program() == FIRST || OTHERS.contains(&row.program());
    table(&mut page, "Values", rows.iter().filter(|row| !of_programs(row)));
    table(&mut page, FIRST, rows.iter().filter(|row| row.program() == FIRST));
    for other in OTHERS {
        table(&mut page, other, rows.iter().filter(|row| row.program() == other && row.differs));
        let keys = values[FIRST].as_object().into_iter().flat_map(|all| all.keys());
        let missing: Vec<&str> =
            keys.filter(|key| values[other].get(key).is_none()).map(|key| &**key).collect();
        let but =
            if missing.is_empty() { String::new() } else { format!(", but for `{}`", missing.join("`, `")) };
        let _ = writeln!(page, "\nIts other values are those of `{FIRST}`{but}, with the same defaults.");
    }
    Ok(page)
}

fn table<'a>(page: &mut String, heading: &str, rows: impl Iterator<Item = &'a Row>) {
    let _ = write!(page, "\n## {heading}\n\n| value | default | meaning |\n|---|---|---|\n");
    for Row { path, default, meaning, .. } in rows {
        let default =
            if default.len() > MAX_DEFAULT { "see `values.yaml`".to_owned() } else { format!("`{default}`") };
        let _ = writeln!(page, "| `{path}` | {default} | {meaning} |");
    }
}

/// A value with a meaning.
#[derive(Debug)]
struct Row {
    path: String,
    /// JSON.
    default: String,
    meaning: String,
    /// The meaning or the default is not that of catalogd's value.
    differs: bool,
}

impl Row {
    fn program(&self) -> &str {
        self.path.split('.').next().unwrap_or_default()
    }
}

/// The keys of the file in their order: path, and the comment above.
fn keys(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut comment = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.trim());
            continue;
        }
        let words = std::mem::take(&mut comment).join(" ");
        let Some((key, _)) = trimmed.split_once(':').filter(|(key, _)| !key.starts_with(['-', '{'])) else {
            continue;
        };
        let indent = line.len() - trimmed.len();
        above.retain(|(of, _)| *of < indent);
        above.push((indent, key));
        let path: Vec<&str> = above.iter().map(|(_, key)| *key).collect();
        found.push((path.join("."), words));
    }
    found
}

/// The values that are described. Those below one are part of it.
fn rows(keys: &[(String, String)], values: &Value) -> Result<Vec<Row>> {
    let meanings: BTreeMap<&str, &str> = keys.iter().map(|(path, meaning)| (&**path, &**meaning)).collect();
    let mut rows: Vec<Row> = Vec::new();
    for (path, meaning) in keys {
        if rows
            .last()
            .is_some_and(|row| path.strip_prefix(&row.path).is_some_and(|rest| rest.starts_with('.')))
        {
            continue;
        }
        let value = at(values, path).with_context(|| format!("{VALUES}: cannot find {path}"))?;
        let first = OTHERS.iter().find_map(|other| path.strip_prefix(other));
        let first = first.map(|rest| format!("{FIRST}{rest}"));
        let inherited = first.as_ref().and_then(|first| meanings.get(&**first)).copied().unwrap_or_default();
        let same = first.and_then(|first| at(values, &first)) == Some(value);
        match (&**meaning, inherited, value) {
            ("", "", Value::Object(members)) if !members.is_empty() => {}
            ("", "", _) => bail!("{VALUES}: {path} has no comment"),
            (own, inherited, _) => rows.push(Row {
                path: path.clone(),
                default: value.to_string(),
                meaning: if own.is_empty() { inherited } else { own }.to_owned(),
                differs: !own.is_empty() || !same,
            }),
        }
    }
    Ok(rows)
}

fn at<'a>(values: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(values, |value, key| value.get(key))
}

/// Fails for a property of the schema that has no default, and for an object of values that may have others.
fn listed(values: &Value, schema: &Value, root: &Value, path: &str, rows: &[Row]) -> Result<()> {
    let Value::Object(members) = values else { return Ok(()) };
    let definition = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#'));
    let schema = definition.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema);
    ensure!(schema["additionalProperties"] == false, "{SCHEMA}: {path} must not have additional properties");
    // (Helm adds it for charts of charts)
    for key in
        schema["properties"].as_object().into_iter().flat_map(|all| all.keys()).filter(|key| *key != "global")
    {
        ensure!(members.contains_key(key), "{SCHEMA}: {path} has the property {key}, {VALUES} does not");
    }
    for (key, value) in members {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if !rows.iter().any(|row| row.path == path) {
            listed(value, &schema["properties"][key], root, &path, rows)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TEXT: &str = "# A file.\n\n# On\n# or off.\non: true\ncatalogd:\n  image:\n    # Its tag.\n    tag: \"\"\n  # Labels: of the pods.\n  labels:\n    a/b: c\n\
        operatorController:\n  image:\n    tag: \"v1\"\n  labels:\n    a/b: c\nclusterOperator:\n  image:\n    tag: \"\"\n  # None.\n  labels: {}\n\
        classicController:\n  image:\n    tag: \"\"\n  labels:\n    a/b: c\n";

    fn schema() -> Value {
        let object = |properties: Value| json!({"type": "object", "additionalProperties": false, "properties": properties});
        let program = json!({"$ref": "#/definitions/program"});
        let mut schema = object(
            json!({"global": {}, "on": {}, "catalogd": program, "operatorController": program, "clusterOperator": program, "classicController": program}),
        );
        schema["definitions"] =
            json!({"program": object(json!({"image": object(json!({"tag": {}})), "labels": {}}))});
        schema
    }

    #[test]
    fn chart_page_has_a_row_for_each_value() {
        let page = page(TEXT, &schema()).unwrap();
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `on` | `true` | On or off. |",
                "| `catalogd.image.tag` | `\"\"` | Its tag. |",
                "| `catalogd.labels` | `{\"a/b\":\"c\"}` | Labels: of the pods. |",
                "| `operatorController.image.tag` | `\"v1\"` | Its tag. |",
                "| `clusterOperator.labels` | `{}` | None. |",
            ]
        );
    }

    #[test]
    fn chart_values_and_schema_must_agree() {
        let commented = |text: &str| page(&TEXT.replace("# On\n# or off.\n", text), &schema());
        assert!(commented("# On.\n").is_ok());
        assert!(commented("").unwrap_err().to_string().contains("on has no comment"));
        let mut other = schema();
        other["properties"]["off"] = json!({});
        assert!(page(TEXT, &other).unwrap_err().to_string().contains("property off"));
        let mut open = schema();
        open["definitions"]["program"]["properties"]["image"]["additionalProperties"] = json!(true);
        assert!(page(TEXT, &open).unwrap_err().to_string().contains("catalogd.image must not"));
    }
}
