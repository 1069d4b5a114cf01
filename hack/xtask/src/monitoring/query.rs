//! Rules for a query of an alert or of the dashboard: its metrics and labels are those of the table, and its matchers select series of
//! these programs alone. Many of the names are those of controller-runtime and client-go, which every other operator exposes, too.

use anyhow::{Context as _, Result, bail, ensure};
use olm_api::observe::{self, Component, Kind, METRICS};
use olm_api::{classic, condition};
use operator_controller::{certificates, extension, objectset};

use crate::promql::{self, Matcher, Selector};

/// The Service of each program, which a ServiceMonitor makes the label `job`.
const JOBS: [(Component, &str); 4] = [
    (Component::Catalogd, "catalogd-service"),
    (Component::OperatorController, "operator-controller-service"),
    (Component::ClusterOperator, "cluster-operator-service"),
    (Component::ClassicController, "classic-controller-service"),
];
/// Labels that Prometheus adds to every series of a target.
const TARGET_LABELS: [&str; 2] = ["instance", "pod"];
/// Values of the label `controller` that a query may name.
const CONTROLLERS: [&str; 3] = [extension::NAME, objectset::NAME, certificates::NAME];

/// Metrics with the label `condition`, also as the beginning of a name, and the kind whose conditions they have.
const CONDITIONS: [(observe::Metric, &str); 2] =
    [(observe::EXTENSION_CONDITION, condition::EXTENSION), (observe::CATALOG_CONDITION, condition::CATALOG)];

/// A metric as it is queried: the program that exposes it, and its labels.
#[derive(Debug, PartialEq)]
struct Exposed {
    from: Component,
    labels: Vec<&'static str>,
}

/// Where a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Alert,
    Dashboard,
}

impl Scope {
    /// The value of the matcher of `namespace`.
    fn namespace(self) -> &'static str {
        match self {
            Self::Alert => "olmv1-system",
            Self::Dashboard => "$namespace",
        }
    }
}

/// Fails if the query asks for what does not exist, or for series of other programs.
pub(super) fn check(query: &str, scope: Scope) -> Result<()> {
    let selectors = promql::selectors(query);
    ensure!(!selectors.is_empty(), "the query selects no metric: {query}");
    for selector in &selectors {
        let exposed = check_metric(selector)?;
        check_target(selector, &exposed, scope).with_context(|| selector.name.clone())?;
    }
    Ok(())
}

/// Fails if the query asks for a metric, label or condition that no program exposes.
pub(super) fn check_names(query: &str) -> Result<()> {
    promql::selectors(query).iter().try_for_each(|selector| check_metric(selector).map(drop))
}

fn check_metric(selector: &Selector) -> Result<Exposed> {
    let Selector { name, matchers } = selector;
    let exposed =
        find(name).with_context(|| format!("{name:?} is not in the table of api/src/observe.rs"))?;
    for Matcher { label, operator, value } in matchers {
        let is_own = exposed.labels.contains(&label.as_str()) && label != "namespace";
        // a label of the program that has the name of a label of the target
        let is_renamed = label == "exported_namespace" && exposed.labels.contains(&"namespace");
        ensure!(
            is_own
                || is_renamed
                || ["namespace", "job"].contains(&label.as_str())
                || TARGET_LABELS.contains(&label.as_str()),
            "{name} has no label {label}"
        );
        let kind =
            CONDITIONS.iter().find_map(|(metric, kind)| name.starts_with(metric.name).then_some(*kind));
        match (label.as_str(), kind) {
            ("condition", Some(kind)) if *operator == "=" => ensure!(
                condition::spec(kind, value).is_some_and(|spec| spec.in_metrics),
                "{name} has no condition {value}"
            ),
            ("controller", _) if *operator == "=" => {
                ensure!(CONTROLLERS.contains(&value.as_str()), "{name} has no controller {value}");
            }
            _ => {}
        }
    }
    Ok(exposed)
}

/// Fails if a matcher of `namespace` or `job` is missing, or if a job that is named does not expose the metric.
fn check_target(selector: &Selector, exposed: &Exposed, scope: Scope) -> Result<()> {
    let find = |label: &str| {
        let matcher = selector.matchers.iter().find(|matcher| matcher.label == label);
        matcher.with_context(|| format!("no matcher for {label}"))
    };
    let Matcher { operator, value, .. } = find("namespace")?;
    let want = scope.namespace();
    ensure!(*operator == "=" && value == want, "namespace{operator}{value:?} instead of namespace={want:?}");
    let Matcher { operator, value, .. } = find("job")?;
    if scope == Scope::Dashboard && *operator == "=~" && value == "$job" {
        return Ok(());
    }
    ensure!(["=", "=~"].contains(operator), "job{operator}{value:?} names no job");
    let named: Vec<&str> = if *operator == "=" { vec![value] } else { value.split('|').collect() };
    for name in named {
        let Some((program, _)) = JOBS.iter().find(|(_, job)| *job == name) else {
            bail!("there is no job {name:?}");
        };
        ensure!(
            exposed.from == Component::Every || exposed.from == *program,
            "{} does not expose it, {} does",
            program.name(),
            exposed.from.name()
        );
    }
    Ok(())
}

fn find(name: &str) -> Option<Exposed> {
    // Prometheus itself makes it
    if name == "up" {
        return Some(Exposed { from: Component::Every, labels: vec![] });
    }
    METRICS.iter().chain(classic::observe::METRICS).find_map(|metric| {
        let mut labels = metric.labels.to_vec();
        match metric.kind {
            Kind::Counter | Kind::Gauge if metric.name == name => {}
            Kind::Counter | Kind::Gauge => return None,
            Kind::Histogram => match name.strip_prefix(metric.name)? {
                "_bucket" => labels.push("le"),
                "_sum" | "_count" => {}
                _ => return None,
            },
            Kind::Summary => match name.strip_prefix(metric.name)? {
                "" => labels.push("quantile"),
                "_sum" | "_count" => {}
                _ => return None,
            },
        }
        Some(Exposed { from: metric.from, labels })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn query_of_other_programs_is_rejected() {
        const TARGET: &str = r#"namespace="olmv1-system",job="operator-controller-service""#;
        for (query, want) in [
            (format!("up{{{TARGET}}} == 0"), ""),
            (format!("sum(rate(workqueue_work_duration_seconds_bucket{{{TARGET},le=\"1\"}}[5m]))"), ""),
            (format!("olm_webhook_certificate_expiry_timestamp_seconds{{{TARGET},exported_namespace=\"a\"}}"), ""),
            ("up".to_owned(), "no matcher for namespace"),
            (format!("up{{{TARGET}}} or leader_election_master_status"), "no matcher for namespace"),
            (r#"up{namespace="olmv1-system"}"#.to_owned(), "no matcher for job"),
            (r#"up{namespace=~"olmv1-system|.*"}"#.to_owned(), "instead of namespace=\"olmv1-system\""),
            (r#"up{namespace="olmv1-system",job!="a"}"#.to_owned(), "names no job"),
            (r#"up{namespace="olmv1-system",job=~"catalogd-service|.*"}"#.to_owned(), "there is no job \".*\""),
            (r#"up{namespace="olmv1-system",job=~"$job"}"#.to_owned(), "there is no job \"$job\""),
            (format!("catalogd_served_catalogs{{{TARGET}}}"), "operator-controller does not expose it, catalogd does"),
            (r#"csv_abnormal{namespace="olmv1-system",job="classic-controller-service",phase="Failed"}"#.to_owned(), ""),
            (format!("csv_abnormal{{{TARGET}}}"), "operator-controller does not expose it, classic-controller does"),
            (format!("{{{TARGET}}}"), "\"\" is not in the table"),
            ("vector(1)".to_owned(), "selects no metric"),
        ] {
            let found =
                check(&query, Scope::Alert).map_or_else(|error| format!("{error:#}"), |()| String::new());
            assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{query}: {found}");
        }
        let job = r#"up{namespace="$namespace",job=~"$job"}"#;
        check(job, Scope::Dashboard).unwrap();
        let fixed = job.replace("$namespace", "olmv1-system");
        assert!(check(&fixed, Scope::Dashboard).is_err(), "{fixed}");
    }

    #[test]
    fn query_names_what_programs_expose() {
        for (query, want) in [
            ("rate(workqueue_adds_total[5m])", ""),
            ("workqueue_work_duration_seconds_bucket", ""),
            (
                r#"olm_cluster_extension_condition{condition="Installed",controller="x"}"#,
                "has no label controller",
            ),
            (r#"olm_cluster_extension_condition{condition="Serving"}"#, "has no condition Serving"),
            (r#"olm_cluster_catalog_condition{condition="Serving"}"#, ""),
            (r#"workqueue_depth{controller="clusterobjectset"}"#, ""),
            (r#"workqueue_depth{controller="clusterobjectsets"}"#, "has no controller clusterobjectsets"),
            ("workqueue_work_duration_seconds", "not in the table"),
            ("workqueue_adds", "not in the table"),
            ("sum(olm_nothing_total)", "not in the table"),
        ] {
            let found = check_names(query).map_or_else(|error| format!("{error:#}"), |()| String::new());
            assert!(found.contains(want) && found.is_empty() == want.is_empty(), "{query}: {found}");
        }
    }
}
