//! Checks of the Grafana dashboard, a file that is edited in Grafana: that it works in another Grafana, and what its queries ask for.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::query::{self, Scope};

/// The variable that every panel reads from, so that the file names no data source of the Grafana in which it was edited.
const SOURCE: &str = "${datasource}";
/// Variables that queries may use beside those that Grafana has.
const VARIABLES: [&str; 3] = ["datasource", "namespace", "job"];

/// Fails with one line for each problem.
pub(super) fn check(text: &str) -> Result<()> {
    let dashboard: Value = serde_json::from_str(text)?;
    let mut problems = Vec::new();
    let mut report = |title: &str, outcome: Result<()>| {
        problems.extend(outcome.err().map(|error| format!("{title}: {error:#}")));
    };
    report("dashboard", check_head(&dashboard));
    let variables = items(&dashboard["templating"]["list"]);
    for variable in &variables {
        report(&format!("variable {}", variable["name"]), check_variable(variable));
    }
    for name in VARIABLES {
        let there = variables.iter().any(|variable| variable["name"] == name);
        report("dashboard", there.then_some(()).with_context(|| format!("no variable {name}")));
    }
    for annotation in items(&dashboard["annotations"]["list"]) {
        // (that of Grafana's own annotations has none)
        let query = annotation["expr"].as_str().map_or(Ok(()), |it| query::check(it, Scope::Dashboard));
        report(&format!("annotation {}", annotation["name"]), query);
    }
    let mut ids = BTreeSet::new();
    for panel in panels(&dashboard) {
        let title = format!("panel {}", panel["title"]);
        report(&title, check_layout(panel, &mut ids));
        if panel["type"] != "row" && panel["type"] != "text" {
            report(&title, check_targets(panel));
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Every panel, also those of collapsed rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    for panel in items(&dashboard["panels"]) {
        found.push(panel);
        found.extend(items(&panel["panels"]));
    }
    found
}

fn items(list: &Value) -> Vec<&Value> {
    list.as_array().into_iter().flatten().collect()
}

fn check_head(dashboard: &Value) -> Result<()> {
    for field in ["title", "uid"] {
        ensure!(dashboard[field].as_str().is_some_and(|text| !text.is_empty()), "no {field}");
    }
    ensure!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 36), "no schemaVersion");
    ensure!(dashboard["id"].is_null(), "the id is that of one Grafana; set it to null");
    ensure!(
        dashboard["__inputs"].is_null(),
        "exported for sharing externally; export it without that option"
    );
    ensure!(!items(&dashboard["panels"]).is_empty(), "no panels");
    Ok(())
}

/// The query of a variable, which lists the values of a label of a metric that only these programs have, or of their own series.
fn check_variable(variable: &Value) -> Result<()> {
    if variable["type"] != "query" {
        return Ok(());
    }
    check_source(variable)?;
    let text = [&variable["query"], &variable["query"]["query"]].into_iter().find_map(Value::as_str);
    let text = text.context("no query")?;
    let listed = text.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
    let (selector, _) = listed
        .and_then(|inner| inner.rsplit_once(','))
        .with_context(|| format!("not label_values(METRIC, LABEL): {text}"))?;
    ensure!(selector.starts_with("olm_"), "{selector} is not a metric of these programs alone");
    query::check_names(selector)
}

fn check_layout(panel: &Value, ids: &mut BTreeSet<u64>) -> Result<()> {
    let id = panel["id"].as_u64().context("no id")?;
    ensure!(ids.insert(id), "another panel has the id {id}");
    let grid = |side: &str| panel["gridPos"][side].as_u64().with_context(|| format!("no gridPos.{side}"));
    ensure!(grid("x")? + grid("w")? <= 24, "wider than the dashboard");
    Ok(())
}

fn check_targets(panel: &Value) -> Result<()> {
    check_source(panel)?;
    let targets = items(&panel["targets"]);
    ensure!(!targets.is_empty(), "no query");
    for target in targets {
        check_source(target)?;
        query::check(target["expr"].as_str().context("no expr")?, Scope::Dashboard)?;
    }
    Ok(())
}

fn check_source(owner: &Value) -> Result<()> {
    let uid = owner["datasource"]["uid"].as_str().unwrap_or_default();
    ensure!(uid == SOURCE, "the data source is {uid:?} instead of {SOURCE:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dashboard() -> Value {
        let source = json!({"type": "prometheus", "uid": SOURCE});
        let panel = |id: u64, query: &str| {
            json!({"id": id, "title": format!("p{id}"), "type": "timeseries", "datasource": source,
                "gridPos": {"h": 8, "w": 12, "x": 12, "y": 0}, "targets": [{"datasource": source, "expr": query, "refId": "A"}]})
        };
        let query = r#"rate(workqueue_adds_total{namespace="$namespace",job=~"$job"}[$__rate_interval])"#;
        let variable = |name: &str, query: Value| json!({"name": name, "type": "query", "datasource": source, "query": query});
        json!({
            "id": null, "title": "T", "uid": "u", "schemaVersion": 39,
            "annotations": {"list": [{"name": "Grafana"}, {"name": "restarts", "expr": query}]},
            "templating": {"list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                variable("namespace", json!("label_values(olm_events_total, namespace)")),
                variable("job", json!({"refId": "x", "query": "label_values(olm_events_total{namespace=\"$namespace\"}, job)"})),
            ]},
            "panels": [
                panel(1, query),
                {"id": 2, "title": "row", "type": "row", "gridPos": {"h": 1, "w": 24, "x": 0, "y": 8}, "panels": [panel(3, query)]},
            ],
        })
    }

    #[test]
    fn dashboard_of_one_grafana_is_rejected() {
        check(&dashboard().to_string()).unwrap();
        let up = json!(r#"up{job=~"$job"}"#);
        for (pointer, value, want) in [
            ("/id", json!(7), "set it to null"),
            ("/uid", json!(""), "no uid"),
            ("/panels", json!([]), "no panels"),
            ("/annotations/list/1/expr", up.clone(), "annotation \"restarts\": up: no matcher for namespace"),
            ("/panels/0/id", json!(3), "panel \"p3\": another panel has the id 3"),
            ("/panels/0/gridPos/x", json!(13), "wider"),
            ("/panels/0/datasource/uid", json!("P1"), "the data source is \"P1\""),
            ("/panels/0/targets/0/datasource/uid", json!("P1"), "the data source is \"P1\""),
            ("/panels/0/targets/0/expr", up.clone(), "panel \"p1\": up: no matcher for namespace"),
            ("/panels/1/panels/0/targets/0/expr", up, "panel \"p3\": up: no matcher for namespace"),
            ("/panels/0/targets", json!([]), "no query"),
            (
                "/templating/list/1/query",
                json!("label_values(up, namespace)"),
                "up is not a metric of these programs alone",
            ),
            ("/templating/list/1/query", json!("label_values(olm_nothing, namespace)"), "not in the table"),
            ("/templating/list/1/query", json!("metrics(olm_events_total)"), "not label_values"),
            ("/templating/list/2/name", json!("other"), "no variable job"),
        ] {
            let mut changed = dashboard();
            *changed.pointer_mut(pointer).unwrap() = value;
            let error =
                check(&changed.to_string()).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(error.contains(want), "{pointer}: {error}");
        }
    }
}
