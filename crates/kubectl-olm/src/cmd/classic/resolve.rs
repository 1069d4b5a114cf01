//! `classic resolve`: the bundles that the Subscriptions of a namespace come to together, and why.

use clap::Args;
use olm_solver::{CandidateName, Choice, Clause, Limits, Reason, Rejected, SolveError, explain};
use serde::Serialize;

use super::objects::Objects;
use super::space::Space;
use crate::CommandOutput;
use crate::cmd::output::{Output, Table, or_dash};
use crate::failure::CommandError;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl olm classic resolve -n operators
  kubectl olm classic resolve -n operators -f subscriptions.yaml --content operatorhubio=./catalog
  kubectl olm classic resolve -n operators --global-namespace openshift-marketplace -o json

Exit codes: 0 the Subscriptions can be met, 1 they cannot, 2 bad input, 3 no answer.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    space: Space,
}

/// What `-o json` prints.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResolveReport {
    /// To install, in the order in which they are chosen.
    bundles: Vec<Row>,
    /// CSVs that stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    installed: Vec<Row>,
    /// Subscriptions that get no next version now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting: Vec<WaitingRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Rules that contradict each other; without any one of them they would not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conflict: Vec<ClauseRow>,
}

/// A bundle or CSV of the namespace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip_serializing_if = "String::is_empty")]
    package: String,
    bundle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    catalog: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    catalog_namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    replaces: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    skip_range: String,
    /// The Subscription that names the package; absent for a dependency.
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<String>,
    /// What asks for it.
    reasons: Vec<String>,
    /// Alternatives that are preferred to it, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<RejectedRow>,
}

/// An alternative that cannot be chosen.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RejectedRow {
    bundle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    channel: String,
    catalog: String,
    catalog_namespace: String,
    /// The rules that forbid it beside what was chosen before.
    rules: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitingRow {
    subscription: String,
    waits_for: String,
}

#[derive(Debug, Serialize)]
struct ClauseRow {
    rule: String,
    /// What would take it out of the conflict.
    hint: String,
}

pub(super) async fn run(arguments: &Arguments) -> Result<CommandOutput, CommandError> {
    let gathered = arguments.space.gather_subscribed().await?;
    let input = gathered.solver_input();
    let report = match explain(&input, Limits::default()) {
        Ok(choices) => {
            let (bundles, installed) = choices.iter().partition(|choice| choice.bundle.is_some());
            let rows = |choices: Vec<&Choice>| choices.iter().map(|it| row(it, &gathered.objects)).collect();
            let waiting = gathered.waiting(&input).into_iter();
            let waiting =
                waiting.map(|(subscription, waits_for)| WaitingRow { subscription, waits_for }).collect();
            ResolveReport {
                bundles: rows(bundles),
                installed: rows(installed),
                waiting,
                ..ResolveReport::default()
            }
        }
        Err(error @ SolveError::TooMuchWork { .. }) => {
            return Err(CommandError::Unreachable(error.to_string()));
        }
        Err(error) => ResolveReport {
            conflict: conflict(&error),
            error: Some(error.to_string()),
            ..ResolveReport::default()
        },
    };
    let names = || report.bundles.iter().map(|row| row.bundle.clone()).collect();
    let text = arguments.output.print(&report, names, |_| text(&report));
    Ok(CommandOutput { text, yes: report.error.is_none() })
}

fn conflict(error: &SolveError) -> Vec<ClauseRow> {
    let clauses: &[Clause] = match error {
        SolveError::Unsatisfiable(conflict) => &conflict.clauses,
        SolveError::Input(_) | SolveError::TooMuchWork { .. } => &[],
    };
    clauses.iter().map(|clause| ClauseRow { rule: clause.to_string(), hint: clause.hint() }).collect()
}

fn row(choice: &Choice, objects: &Objects) -> Row {
    let subscription = choice.reasons.iter().find_map(|reason| match reason {
        Reason::Subscription { name } => Some(name.clone()),
        Reason::Dependency { .. } | Reason::Unreferenced => None,
    });
    let CandidateName { name, .. } = &choice.candidate;
    let package = || {
        let mut all = objects.subscriptions.iter();
        let of_csv = all.find(|it| it.status.as_ref().is_some_and(|status| status.installed_csv == *name));
        of_csv.map(|it| it.spec.package.clone()).unwrap_or_default()
    };
    let chosen = choice.bundle.as_ref();
    let text = |field: Option<&String>| field.cloned().unwrap_or_default();
    Row {
        package: chosen.map_or_else(package, |it| it.package.clone()),
        bundle: name.clone(),
        channel: text(chosen.map(|it| &it.channel)),
        catalog: text(chosen.map(|it| &it.catalog)),
        catalog_namespace: text(chosen.map(|it| &it.namespace)),
        replaces: text(chosen.map(|it| &it.replaces)),
        skips: choice.skips.clone(),
        skip_range: choice.skip_range.clone(),
        subscription,
        reasons: choice.reasons.iter().map(ToString::to_string).collect(),
        rejected: choice.rejected.iter().map(rejected).collect(),
    }
}

fn rejected(rejected: &Rejected) -> RejectedRow {
    let CandidateName { catalog, namespace, channel, name } = rejected.candidate.clone();
    let rules = rejected.clauses.iter().map(ToString::to_string).collect();
    RejectedRow { bundle: name, channel, catalog, catalog_namespace: namespace, rules }
}

fn text(report: &ResolveReport) -> String {
    if let Some(error) = &report.error {
        if report.conflict.is_empty() {
            return format!("{error}\n");
        }
        let mut text = "constraints not satisfiable; these rules contradict each other:\n".to_owned();
        for ClauseRow { rule, hint } in &report.conflict {
            text.push_str(&format!("- {rule}\n  to do: {hint}\n"));
        }
        return text;
    }
    let mut text = table(&report.bundles);
    text.push_str("\nReasons:\n");
    for row in report.bundles.iter().chain(&report.installed) {
        text.push_str(&reasons(row));
    }
    for WaitingRow { subscription, waits_for } in &report.waiting {
        text.push_str(&format!("\nSubscription {subscription} waits: {waits_for}\n"));
    }
    text
}

fn reasons(row: &Row) -> String {
    let mut text = match row.catalog.as_str() {
        "" => format!("{}, installed, stays\n", row.bundle),
        catalog => format!("{} from {}/{catalog}\n", row.bundle, row.catalog_namespace),
    };
    for reason in &row.reasons {
        text.push_str(&format!("  required: {reason}\n"));
    }
    let edges = [
        ("replaces", row.replaces.clone()),
        ("skips", row.skips.join(", ")),
        ("skipRange", row.skip_range.clone()),
    ];
    for (name, value) in edges.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("  {name}: {value}\n"));
    }
    for RejectedRow { bundle, channel, catalog, catalog_namespace, rules } in &row.rejected {
        let channel = if channel.is_empty() { String::new() } else { format!(", channel {channel}") };
        text.push_str(&format!("  rejected: {bundle} from {catalog_namespace}/{catalog}{channel}\n"));
        for rule in rules {
            text.push_str(&format!("    because {rule}\n"));
        }
    }
    text
}

fn table(rows: &[Row]) -> String {
    if rows.is_empty() {
        return "nothing to install: no Subscription has a newer bundle that can be chosen\n".to_owned();
    }
    let mut table = Table::new(["PACKAGE", "BUNDLE", "CHANNEL", "CATALOG", "REPLACES", "SUBSCRIPTION"]);
    for row in rows {
        let catalog = format!("{}/{}", row.catalog_namespace, row.catalog);
        let subscription = row.subscription.clone().unwrap_or_else(|| "(dependency)".to_owned());
        let replaces = or_dash(&row.replaces);
        table.row([
            row.package.clone(),
            row.bundle.clone(),
            row.channel.clone(),
            catalog,
            replaces,
            subscription,
        ]);
    }
    table.text("")
}
