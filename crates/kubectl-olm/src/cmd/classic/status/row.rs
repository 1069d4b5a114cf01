//! A Subscription, or a ClusterServiceVersion without one, as `classic status` shows it: derived from objects alone.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt as _;
use olm_api::ConditionStatus;
use olm_api::classic::{CatalogSource, ClusterServiceVersion, InstallPlan, Subscription};
use olm_classic::csv::edits::{authorities, edited};
use olm_classic::csv::requirements::unmet;
use olm_classic::csv::strategy::{self, Settings};
use olm_classic::csv::{Phase, chain};
use olm_classic::install_plan::{PlanPhase, plan_wait};
use olm_classic::operator_group::is_copy;
use olm_classic::subscription::{SubscriptionState, subscription_wait};
use olm_core::Object;
use serde::Serialize;
use serde_json::Value;

/// The objects of one namespace or of all.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) csvs: Vec<ClusterServiceVersion>,
    pub(super) plans: Vec<InstallPlan>,
    /// Those of other namespaces, too, if Subscriptions name them.
    pub(super) catalogs: Vec<CatalogSource>,
    /// Namespaces whose CatalogSources were not read.
    pub(super) unread: BTreeSet<String>,
    pub(super) deployments: Vec<Object>,
    /// The variables of the cluster's proxy.
    pub(super) proxy: BTreeMap<String, String>,
}

/// `-o json` prints a list of these.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: String,
    /// Empty for a ClusterServiceVersion that no Subscription names.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subscription: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) package: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) catalog: Option<Catalog>,
    /// The installed ClusterServiceVersion.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) csv: String,
    /// Of the ClusterServiceVersion.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    /// Of the Subscription.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) state: String,
    /// Whether the newest known version is installed, healthy, and nothing waits.
    pub(super) ready: bool,
    /// A plan that is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plan: Option<Plan>,
    /// Conditions of the Subscription that are True.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
    /// Requirements of the ClusterServiceVersion that are not met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) requirements: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) edited: Vec<Edit>,
    /// What to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) next: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Catalog {
    name: String,
    namespace: String,
    /// Of the connection; `missing` if there is no such CatalogSource, `unknown` if those of its namespace were not read.
    state: String,
    /// Absent until the Subscription has a status.
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Catalog {
    pub(super) fn title(&self) -> String {
        let state = if self.state.is_empty() { "unknown" } else { &self.state };
        format!("{}/{} ({state})", self.namespace, self.name)
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) csvs: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) type_: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A Deployment that differs from its ClusterServiceVersion.
#[derive(Debug, Serialize)]
pub(super) struct Edit {
    pub(super) deployment: String,
    pub(super) fields: Vec<Field>,
}

#[derive(Debug, Serialize)]
pub(super) struct Field {
    pub(super) path: String,
    /// As the ClusterServiceVersion has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) desired: Option<Value>,
    /// As the cluster has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) live: Option<Value>,
}

impl Row {
    /// That of the Subscription, or of the ClusterServiceVersion without one.
    pub(super) fn name(&self) -> &str {
        if self.subscription.is_empty() { &self.csv } else { &self.subscription }
    }
}

impl Observed {
    /// By namespace and name: Subscriptions, then ClusterServiceVersions that none names.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.subscriptions.iter().map(|it| self.of_subscription(it)).collect();
        let status = self.subscriptions.iter().filter_map(|it| Some((it.namespace(), it.status.as_ref()?)));
        let named: BTreeSet<_> = status
            .flat_map(|(namespace, status)| {
                [(namespace.clone(), status.installed_csv.clone()), (namespace, status.current_csv.clone())]
            })
            .collect();
        let others = self.csvs.iter().filter(|csv| !is_copy(csv));
        let others = others.filter(|csv| !named.contains(&(csv.namespace(), csv.name_any())));
        rows.extend(others.map(|csv| {
            let mut row = Row { namespace: csv.namespace().unwrap_or_default(), ..Row::default() };
            self.add_csv(&mut row, csv, None);
            row.ready = row.phase == Phase::Succeeded.as_str();
            row
        }));
        rows.sort_by_cached_key(|row| {
            (row.namespace.clone(), row.subscription.is_empty(), row.name().to_owned())
        });
        rows
    }

    fn of_subscription(&self, subscription: &Subscription) -> Row {
        let (spec, namespace) = (&subscription.spec, subscription.namespace().unwrap_or_default());
        let mut row = Row {
            subscription: subscription.name_any(),
            package: spec.package.clone(),
            channel: spec.channel.clone(),
            state: SubscriptionState::from_subscription(subscription).to_string(),
            catalog: Some(self.catalog(subscription)),
            namespace,
            ..Row::default()
        };
        let Some(status) = &subscription.status else {
            row.next
                .push("no controller has worked on it yet; check that classic-controller runs".to_owned());
            return row;
        };
        let are_true = status.conditions.iter().filter(|condition| condition.status == ConditionStatus::True);
        row.conditions = are_true
            .map(|it| Condition {
                type_: it.type_.clone(),
                reason: it.reason.clone(),
                message: it.message.clone(),
            })
            .collect();
        row.next.extend(subscription_wait(status));
        self.add_plan(&mut row, subscription);
        row.csv.clone_from(&status.installed_csv);
        match self.csv(&row.namespace, &status.installed_csv) {
            Some(csv) => self.add_csv(&mut row, csv, Some(subscription)),
            None if status.installed_csv.is_empty() => {}
            None => "missing".clone_into(&mut row.phase),
        }
        // an upgrade that is under way
        if status.current_csv != status.installed_csv
            && let Some(newer) = self.csv(&row.namespace, &status.current_csv)
        {
            row.next.extend(self.csv_wait(newer));
            row.requirements.extend(requirements(newer));
        }
        row.ready = row.state == SubscriptionState::AtLatestKnown.as_str()
            && row.phase == Phase::Succeeded.as_str()
            && subscription_wait(status).is_none();
        row
    }

    fn csv(&self, namespace: &str, name: &str) -> Option<&ClusterServiceVersion> {
        self.csvs.iter().find(|csv| csv.namespace().as_deref() == Some(namespace) && csv.name_any() == name)
    }

    fn catalog(&self, subscription: &Subscription) -> Catalog {
        let (name, namespace) =
            (subscription.spec.source.clone(), subscription.spec.source_namespace.clone());
        let found = self
            .catalogs
            .iter()
            .find(|it| it.name_any() == name && it.namespace().as_ref() == Some(&namespace));
        let status = found.and_then(|catalog| catalog.status.as_ref());
        let connection = status.and_then(|status| status.connection_state.as_ref());
        let state = match (found, connection) {
            (None, _) if self.unread.contains(&namespace) => "unknown".to_owned(),
            (None, _) => "missing".to_owned(),
            (Some(_), connection) => connection.map(|it| it.last_observed_state.clone()).unwrap_or_default(),
        };
        let health = subscription.status.iter().flat_map(|status| &status.catalog_health).find(|health| {
            let of = &health.catalog_source_ref;
            of.name.as_ref() == Some(&name) && of.namespace.as_ref() == Some(&namespace)
        });
        Catalog {
            state,
            healthy: health.map(|health| health.healthy),
            message: status.map(|status| status.message.clone()).unwrap_or_default(),
            name,
            namespace,
        }
    }

    fn add_plan(&self, row: &mut Row, subscription: &Subscription) {
        let reference = subscription.status.as_ref().and_then(|status| status.install_plan_ref.as_ref());
        let Some(name) = reference.and_then(|reference| reference.name.as_ref()) else { return };
        let is_it = |plan: &&InstallPlan| {
            plan.metadata.name.as_ref() == Some(name) && plan.namespace() == subscription.namespace()
        };
        let Some(plan) = self.plans.iter().find(is_it) else { return };
        let phase = PlanPhase::from_plan(plan);
        if phase == Some(PlanPhase::Complete) {
            return;
        }
        // approval and failure are conditions of the Subscription
        if phase == Some(PlanPhase::Installing) {
            row.next.extend(plan_wait(plan));
        }
        row.plan = Some(Plan {
            name: name.clone(),
            phase: phase.map_or("new", PlanPhase::as_str).to_owned(),
            csvs: plan.spec.cluster_service_version_names.clone(),
        });
    }

    fn add_csv(&self, row: &mut Row, csv: &ClusterServiceVersion, subscription: Option<&Subscription>) {
        let status = csv.status.clone().unwrap_or_default();
        row.csv = csv.name_any();
        row.phase = status.phase;
        row.reason = status.reason;
        row.next.extend(self.csv_wait(csv));
        row.requirements = requirements(csv);
        row.edited = self.edits(csv, subscription);
        if !row.edited.is_empty() {
            let next = "revert the edits of Deployments, or make them last: spec.config of the Subscription has settings for its Deployments";
            row.next.push(next.to_owned());
        }
    }

    /// Why a ClusterServiceVersion is not installed.
    fn csv_wait(&self, csv: &ClusterServiceVersion) -> Vec<String> {
        let (name, status) = (csv.name_any(), csv.status.clone().unwrap_or_default());
        let phase = Phase::read(csv);
        match phase {
            Phase::New => vec![format!(
                "ClusterServiceVersion {name} has no phase yet; check the conditions and events of the OperatorGroup, and that \
                 classic-controller runs"
            )],
            Phase::Pending | Phase::InstallReady | Phase::Installing | Phase::Failed => {
                let text = format!(
                    "ClusterServiceVersion {name} is {} ({}): {}",
                    status.phase, status.reason, status.message
                );
                let is_free = phase == Phase::Pending && requirements(csv).is_empty();
                let neighbors = is_free.then(|| chain::neighbors(csv, &self.csvs, &BTreeMap::new()));
                let before = neighbors.and_then(|neighbors| neighbors.wait());
                [text].into_iter().chain(before).collect()
            }
            Phase::Succeeded | Phase::Replacing | Phase::Deleting | Phase::Unknown => Vec::new(),
        }
    }

    fn edits(&self, csv: &ClusterServiceVersion, subscription: Option<&Subscription>) -> Vec<Edit> {
        if matches!(Phase::read(csv), Phase::New | Phase::Replacing | Phase::Deleting | Phase::Unknown) {
            return Vec::new();
        }
        let here = self.deployments.iter().filter(|it| it.namespace() == csv.namespace().as_deref());
        let here: Vec<Object> = here.cloned().collect();
        let config = subscription.and_then(|subscription| subscription.spec.config.as_ref());
        let settings = Settings { config, proxy: self.proxy.clone(), ca_hashes: authorities(&here) };
        let desired = strategy::deployments(csv, &settings).unwrap_or_default();
        let edit = |it: olm_classic::csv::edits::EditedDeployment| Edit {
            deployment: it.name,
            fields: it
                .fields
                .into_iter()
                .map(|it| Field { path: it.path, desired: it.old, live: it.new })
                .collect(),
        };
        edited(&desired, &here).into_iter().map(edit).collect()
    }
}

/// Those that are not met, as far as they are why it is not installed.
fn requirements(csv: &ClusterServiceVersion) -> Vec<String> {
    let status = csv.status.iter().filter(|_| matches!(Phase::read(csv), Phase::Pending | Phase::Failed));
    status.flat_map(|status| &status.requirement_status).filter_map(unmet).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn decoded<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn subscription(name: &str, status: Value) -> Subscription {
        let spec = json!({"name": "demo", "channel": "stable", "source": "main", "sourceNamespace": "olm"});
        decoded(json!({"metadata": {"namespace": "ns", "name": name}, "spec": spec, "status": status}))
    }

    fn status(installed: &str, current: &str, state: &str, conditions: Value) -> Value {
        json!({
            "installedCSV": installed, "currentCSV": current, "state": state, "conditions": conditions,
            "lastUpdated": "2026-01-01T00:00:00Z", "installPlanRef": {"name": format!("plan-of-{current}")},
            "catalogHealth": [{
                "catalogSourceRef": {"namespace": "olm", "name": "main"}, "healthy": true, "lastUpdated": "2026-01-01T00:00:00Z",
            }],
        })
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    }

    fn csv(name: &str, phase: &str, requirements: Value) -> ClusterServiceVersion {
        let pod = json!({"containers": [{"name": "manager", "image": "demo:v1"}]});
        let spec = json!({"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": pod}});
        decoded(json!({
            "metadata": {"namespace": "ns", "name": name, "uid": "u"},
            "spec": {"displayName": "demo", "install": {"strategy": "deployment", "spec": {"deployments": [{"name": name, "spec": spec}]}}},
            "status": {"phase": phase, "reason": "R", "message": "M", "requirementStatus": requirements},
        }))
    }

    /// One Subscription at rest, one with an edited Deployment, one that waits for approval, one without status, one whose CSV is gone, and a
    /// CSV that none names.
    pub(in super::super) fn observed() -> Observed {
        let healthy =
            || json!([condition("CatalogSourcesUnhealthy", "False", "AllCatalogSourcesHealthy", "fine")]);
        let approval = json!([condition("InstallPlanPending", "True", "RequiresApproval", "")]);
        let missing =
            json!([condition("InstalledCSVMissing", "True", "ReferencedCSVNotFound", "create d.v1 again")]);
        let csvs = vec![
            csv("a.v1", "Succeeded", json!([])),
            csv("b.v1", "Succeeded", json!([])),
            csv("c.v1", "Succeeded", json!([])),
            csv(
                "z.v1",
                "Pending",
                json!([
                    {"group": "", "version": "v1", "kind": "CustomResourceDefinition", "name": "x.io", "status": "NotPresent", "message": "CRD is not present"},
                    {"group": "", "version": "v1", "kind": "ServiceAccount", "name": "z", "status": "Present", "message": ""},
                ]),
            ),
        ];
        let mut live = strategy::deployments(&csvs[1], &Settings::default()).unwrap().remove(0);
        live.0["spec"]["replicas"] = 3.into();
        Observed {
            subscriptions: vec![
                subscription("a", status("a.v1", "a.v1", "AtLatestKnown", healthy())),
                subscription("b", status("b.v1", "b.v1", "AtLatestKnown", json!([]))),
                subscription("c", status("c.v1", "c.v2", "UpgradePending", approval)),
                subscription("d", status("d.v1", "d.v1", "UpgradePending", missing)),
                decoded(
                    json!({"metadata": {"namespace": "ns", "name": "e"}, "spec": {"name": "e", "source": "gone", "sourceNamespace": "olm"}}),
                ),
            ],
            csvs,
            plans: vec![decoded(json!({
                "metadata": {"namespace": "ns", "name": "plan-of-c.v2"},
                "spec": {"approval": "Manual", "approved": false, "clusterServiceVersionNames": ["c.v2"]},
                "status": {"phase": "RequiresApproval", "catalogSources": []},
            }))],
            catalogs: vec![decoded(json!({
                "metadata": {"namespace": "olm", "name": "main"}, "spec": {"sourceType": "grpc", "image": "i"},
                "status": {"connectionState": {"address": "a", "lastObservedState": "READY"}},
            }))],
            unread: BTreeSet::new(),
            deployments: vec![live],
            proxy: BTreeMap::new(),
        }
    }

    #[test]
    fn classic_status_rows_name_what_a_csv_waits_for() {
        let before = "waiting until ClusterServiceVersion a.v1, which this one replaces, is Succeeded; it is Failed, and its status names \
                      the cause";
        for (phase, replaced, want) in [
            (
                "",
                "Failed",
                &[
                    "ClusterServiceVersion a.v2 has no phase yet; check the conditions and events of the OperatorGroup, and that \
                    classic-controller runs",
                ][..],
            ),
            ("Pending", "Failed", &["ClusterServiceVersion a.v2 is Pending (R): M", before]),
            ("Pending", "Replacing", &["ClusterServiceVersion a.v2 is Pending (R): M"]),
            ("Installing", "Replacing", &["ClusterServiceVersion a.v2 is Installing (R): M"]),
            ("Succeeded", "Replacing", &[]),
        ] {
            let mut newer = csv("a.v2", phase, json!([]));
            newer.spec.replaces = "a.v1".to_owned();
            let csvs = vec![csv("a.v1", replaced, json!([])), newer];
            let rows = Observed { csvs, ..Observed::default() }.rows();
            assert_eq!(rows[1].next, want, "{phase} {replaced}");
        }
    }

    #[test]
    fn classic_status_rows_find_edits_beside_a_proxy() {
        let mut observed = observed();
        observed.proxy = BTreeMap::from([("HTTP_PROXY".to_owned(), "http://p".to_owned())]);
        let settings = Settings { proxy: observed.proxy.clone(), ..Settings::default() };
        observed.deployments = strategy::deployments(&observed.csvs[1], &settings).unwrap();
        assert!(observed.rows()[1].edited.is_empty(), "the proxy is no edit");
        observed.deployments[0].0["spec"]["replicas"] = 3.into();
        let rows = observed.rows();
        let edited = rows[1].edited.iter();
        let paths: Vec<_> = edited.flat_map(|edit| &edit.fields).map(|field| &*field.path).collect();
        assert_eq!(paths, ["spec.replicas"]);
    }

    #[test]
    fn classic_status_rows_name_state_and_what_to_do() {
        let rows = observed().rows();
        let seen: Vec<_> = rows
            .iter()
            .map(|row| {
                (
                    row.name(),
                    row.ready,
                    &*row.phase,
                    &*row.state,
                    row.next.first().map(String::as_str).unwrap_or_default(),
                )
            })
            .collect();
        let edits = "revert the edits of Deployments, or make them last: spec.config of the Subscription has settings for its Deployments";
        assert_eq!(
            seen,
            [
                ("a", true, "Succeeded", "AtLatestKnown", ""),
                ("b", true, "Succeeded", "AtLatestKnown", edits),
                (
                    "c",
                    false,
                    "Succeeded",
                    "UpgradePending",
                    "InstallPlan plan-of-c.v2 waits for approval; set spec.approved of it to true"
                ),
                ("d", false, "missing", "UpgradePending", "create d.v1 again"),
                (
                    "e",
                    false,
                    "",
                    "",
                    "no controller has worked on it yet; check that classic-controller runs"
                ),
                ("z.v1", false, "Pending", "", "ClusterServiceVersion z.v1 is Pending (R): M"),
            ]
        );
        let catalogs: Vec<String> =
            rows.iter().filter_map(|row| row.catalog.as_ref()).map(Catalog::title).collect();
        assert_eq!(catalogs[0], "olm/main (READY)");
        assert_eq!(catalogs[4], "olm/gone (missing)");
        assert_eq!(rows[5].requirements, ["CustomResourceDefinition x.io: NotPresent CRD is not present"]);
        let field = &rows[1].edited[0].fields[0];
        assert_eq!(
            (&*field.path, &field.desired, &field.live),
            ("spec.replicas", &Some(json!(1)), &Some(json!(3)))
        );
        assert_eq!(rows[2].plan.as_ref().map(|plan| plan.csvs.clone()), Some(vec!["c.v2".to_owned()]));
    }
}
