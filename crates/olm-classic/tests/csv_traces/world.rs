//! A cluster in memory: the steps of a scenario change it, the phase machine runs over its CSVs, and the actions are carried out.

use std::collections::{BTreeMap, BTreeSet};

use olm_api::classic::subscription::SubscriptionConfig;
use olm_api::classic::{ClusterServiceVersion, Time};
use olm_classic::csv::requirements::{Cluster, ObservedCrd, ObservedServiceAccount, check as requirements};
use olm_classic::csv::strategy::{self, Settings, serving};
use olm_classic::csv::{
    Action, GroupState, InstallResult, Observed, Phase, Reason, Step, UpgradeGate, chain, decide, health,
};
use olm_core::Object;
use serde_json::{Value, json};

/// Steps of all CSVs after one change; the longest record needs some 40.
const LIMIT: usize = 500;

/// An operator group.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) targets: Vec<String>,
    pub(crate) is_static: bool,
    pub(crate) is_fail_forward: bool,
    pub(crate) provided: BTreeSet<String>,
}

pub(crate) type Key = (String, String);

#[derive(Default)]
pub(crate) struct World {
    pub(crate) csvs: Vec<ClusterServiceVersion>,
    pub(crate) groups: Vec<Group>,
    pub(crate) crds: BTreeMap<String, ObservedCrd>,
    pub(crate) accounts: BTreeMap<Key, ObservedServiceAccount>,
    /// Namespaces whose accounts have no rights.
    pub(crate) without_rights: BTreeSet<String>,
    pub(crate) live: Vec<Object>,
    /// Of OperatorConditions, by CSV: the message of `Upgradeable: False`, and whether an override lets it through.
    pub(crate) conditions: BTreeMap<String, (Option<String>, bool)>,
    /// Of Subscriptions, by package.
    pub(crate) configs: BTreeMap<String, SubscriptionConfig>,
    pub(crate) installs: BTreeMap<Key, InstallResult>,
    /// Phases and reasons by CSV of the first namespace.
    pub(crate) traces: BTreeMap<String, Vec<String>>,
    /// (CSV, reason, message) of all events.
    pub(crate) events: BTreeSet<(String, String, String)>,
    /// The lines of the table that decided.
    pub(crate) reached: BTreeSet<(u8, &'static str)>,
    pub(crate) namespace: String,
    pub(crate) seconds: i64,
}

pub(crate) fn key(csv: &ClusterServiceVersion) -> Key {
    (csv.metadata.namespace.clone().unwrap(), csv.metadata.name.clone().unwrap())
}

fn owned_crds(csv: &ClusterServiceVersion) -> BTreeSet<String> {
    let crds = csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned);
    crds.map(|crd| crd.name.clone()).collect()
}

impl World {
    pub(crate) fn now(&self) -> Time {
        serde_json::from_value(json!(format!(
            "2026-01-01T{:02}:{:02}:{:02}Z",
            self.seconds / 3600,
            self.seconds / 60 % 60,
            self.seconds % 60
        )))
        .unwrap()
    }

    pub(crate) fn put(&mut self, csv: ClusterServiceVersion) {
        let at = self.csvs.iter().position(|other| key(other) == key(&csv));
        match at {
            Some(at) => {
                let mut csv = csv;
                let old = &self.csvs[at];
                csv.status.clone_from(&old.status);
                csv.metadata
                    .annotations
                    .get_or_insert_default()
                    .extend(old.metadata.annotations.clone().unwrap_or_default());
                self.csvs[at] = csv;
            }
            None => {
                self.record(&csv, "/".to_owned());
                self.csvs.push(csv);
            }
        }
    }

    pub(crate) fn delete(&mut self, namespace: &str, name: &str) {
        let Some(at) = self.csvs.iter().position(|csv| key(csv) == (namespace.to_owned(), name.to_owned()))
        else {
            return;
        };
        let csv = self.csvs.remove(at);
        self.live.retain(|object| {
            object.labels().get("olm.owner").copied() != Some(name) || object.namespace() != Some(namespace)
        });
        self.record(&csv, "deleted".to_owned());
    }

    fn record(&mut self, csv: &ClusterServiceVersion, state: String) {
        let (namespace, name) = key(csv);
        if namespace == self.namespace {
            self.traces.entry(name).or_default().push(state);
        }
    }

    /// Runs all CSVs until none changes.
    pub(crate) fn settle(&mut self) {
        for _ in 0..LIMIT {
            self.seconds += 1;
            let keys: Vec<_> = self.csvs.iter().map(key).collect();
            let mut has_changed = false;
            for key_ in keys {
                has_changed |= self.step(&key_);
            }
            if !has_changed {
                return;
            }
        }
        panic!("the CSVs do not rest: {:?}", self.traces);
    }

    fn step(&mut self, key_: &Key) -> bool {
        let Some(at) = self.csvs.iter().position(|csv| key(csv) == *key_) else { return false };
        let observed = self.observe(&self.csvs[at]);
        let (now, phase) = (self.now(), Phase::read(&self.csvs[at]));
        let step = decide(&self.csvs[at], &observed, &now);
        if let Some(row) = step.row {
            self.reached.insert((row.number, row.case));
        }
        let status = step.apply(self.csvs[at].status.as_ref(), &now);
        if !step.keeps_status() {
            self.csvs[at].status = Some(status);
        }
        if let Some(to) = &step.transition {
            let csv = self.csvs[at].clone();
            self.record(&csv, format!("{}/{}", to.phase.as_str(), to.reason.as_str()));
            if phase == Phase::InstallReady && to.phase != phase {
                self.installs.remove(key_);
            }
        }
        self.carry_out(key_, &step) || !step.keeps_status()
    }

    fn carry_out(&mut self, key_: &Key, step: &Step) -> bool {
        let mut has_changed = false;
        for action in &step.actions {
            let at = self.csvs.iter().position(|csv| key(csv) == *key_).unwrap();
            match action {
                Action::WriteAnnotations(annotations) => {
                    self.csvs[at].metadata.annotations.get_or_insert_default().extend(annotations.clone());
                    has_changed = true;
                }
                Action::SetProvidedApis(_) => {
                    let provided = owned_crds(&self.csvs[at]);
                    let group = self.groups.iter_mut().find(|group| group.namespace == key_.0).unwrap();
                    group.provided.extend(provided);
                    has_changed = true;
                }
                Action::ApplyStrategy => {
                    let csv = self.csvs[at].clone();
                    self.install(&csv);
                    self.installs.insert(key_.clone(), InstallResult::Succeeded);
                    has_changed = true;
                }
                Action::DeleteDeployments => {
                    let csv = &self.csvs[at];
                    let name = csv.metadata.name.clone().unwrap();
                    self.live.retain(|object| {
                        object.labels().get("olm.owner").copied() != Some(&name)
                            || object.namespace() != Some(&key_.0)
                    });
                }
                Action::DeleteCsv => {
                    self.delete(&key_.0, &key_.1);
                    return true;
                }
                Action::EmitEvent { reason, message, .. } => {
                    self.events.insert((key_.1.clone(), reason.as_str().to_owned(), message.clone()));
                }
                Action::CountUpgrade | Action::RequeueAfter(_) | Action::Report(_) => {}
            }
        }
        has_changed
    }

    pub(crate) fn desired(&self, csv: &ClusterServiceVersion) -> Vec<Object> {
        let (_, name) = key(csv);
        let package = name.split(".v").next().unwrap();
        let served = serving::deployments(csv);
        let settings = Settings {
            config: self.configs.get(package),
            ca_hashes: served.into_iter().map(|name| (name.to_owned(), "<hash>".to_owned())).collect(),
            ..Settings::default()
        };
        strategy::deployments(csv, &settings).unwrap_or_default()
    }

    fn install(&mut self, csv: &ClusterServiceVersion) {
        for mut object in self.desired(csv) {
            let is_never_ready =
                object.0["spec"]["template"]["spec"]["nodeSelector"].get("lab.test/none").is_some();
            let at = self
                .live
                .iter()
                .position(|live| live.name() == object.name() && live.namespace() == object.namespace());
            let is_rolling = at.is_some() && is_never_ready;
            let available = if is_never_ready && !is_rolling { "False" } else { "True" };
            object.0.insert("status".to_owned(), json!({
                "replicas": 1 + i32::from(is_rolling), "updatedReplicas": 1,
                "conditions": [{"type": "Available", "status": available, "message": "Deployment does not have minimum availability."}],
            }));
            match at {
                Some(at) => self.live[at] = object,
                None => self.live.push(object),
            }
        }
        let obsolete: Vec<_> = strategy::obsolete(csv, &self.live).into_iter().map(Object::key).collect();
        self.live.retain(|object| !obsolete.contains(&object.key()));
    }

    fn observe(&self, csv: &ClusterServiceVersion) -> Observed {
        let (namespace, name) = key(csv);
        let here: Vec<_> =
            self.live.iter().filter(|object| object.namespace() == Some(&namespace)).cloned().collect();
        let group = self.groups.iter().find(|group| group.namespace == namespace);
        let condition = self.conditions.get(&csv.spec.replaces);
        let gate = match condition {
            Some((Some(message), false)) => {
                UpgradeGate::Closed(format!("the operator is not upgradeable: {message}"))
            }
            _ => UpgradeGate::Open,
        };
        Observed {
            group: self.group_state(csv),
            is_fail_forward: group.is_some_and(|group| group.is_fail_forward),
            gate,
            requirements: self.requirements(csv),
            neighbors: chain::neighbors(csv, &self.csvs, &BTreeMap::new()),
            install: self.installs.get(&(namespace, name)).cloned().unwrap_or_default(),
            health: health::check(&self.desired(csv), &here, &chain::others(csv, &self.csvs)),
            api_services: Default::default(),
            certificates: None,
            is_certificate_missing: false,
        }
    }

    fn requirements(&self, csv: &ClusterServiceVersion) -> olm_classic::csv::Requirements {
        let namespace = key(csv).0;
        let here = self.accounts.iter().filter(|((other, _), _)| *other == namespace);
        let replaced = (namespace.clone(), csv.spec.replaces.clone());
        let cluster = Cluster {
            version: "1.36.3".parse().unwrap(),
            crds: &self.crds,
            apis: &BTreeSet::from([("apps".to_owned(), "v1".to_owned(), "Deployment".to_owned())]),
            api_services: &BTreeMap::new(),
            has_replaced: self.csvs.iter().any(|other| key(other) == replaced),
            service_accounts: &here.map(|((_, name), account)| (name.clone(), account.clone())).collect(),
            may: &|_, _, _| !self.without_rights.contains(&namespace),
        };
        requirements(csv, &cluster)
    }

    /// Rows 1 to 7, as far as the records need them; the rules themselves are those of operator groups.
    fn group_state(&self, csv: &ClusterServiceVersion) -> GroupState {
        let failed = |reason, message: &str| GroupState::Failed { reason, message: message.to_owned() };
        let namespace = key(csv).0;
        let here: Vec<_> = self.groups.iter().filter(|group| group.namespace == namespace).collect();
        let group = match here.as_slice() {
            [] => return failed(Reason::NoOperatorGroup, "csv in namespace with no operatorgroups"),
            [group] => *group,
            _ => {
                let message =
                    "csv created in namespace with multiple operatorgroups, can't pick one automatically";
                return failed(Reason::TooManyOperatorGroups, message);
            }
        };
        let annotations = BTreeMap::from([
            ("olm.operatorGroup".to_owned(), group.name.clone()),
            ("olm.operatorNamespace".to_owned(), namespace.clone()),
            ("olm.targetNamespaces".to_owned(), group.targets.join(",")),
        ]);
        let present = csv.metadata.annotations.clone().unwrap_or_default();
        if annotations.iter().any(|(key, value)| present.get(key) != Some(value)) {
            return GroupState::Annotate(annotations);
        }
        let supports = |mode: &str| csv.spec.install_modes.iter().any(|it| it.type_ == mode && it.supported);
        if group.targets == [namespace.clone()] && !supports("OwnNamespace") {
            let message =
                "OwnNamespace InstallModeType not supported, cannot configure to watch own namespace";
            return failed(Reason::UnsupportedOperatorGroup, message);
        }
        if group.targets.len() > 1 && !supports("MultiNamespace") {
            let message = format!(
                "MultiNamespace InstallModeType not supported, cannot configure to watch {} namespaces",
                group.targets.len()
            );
            return failed(Reason::UnsupportedOperatorGroup, &message);
        }
        let mine = owned_crds(csv);
        let scope =
            |group: &Group| group.targets.iter().chain([&group.namespace]).cloned().collect::<BTreeSet<_>>();
        let others = self.groups.iter().filter(|other| other.namespace != namespace);
        let others = others.filter(|other| {
            other.targets == [""] || group.targets == [""] || !scope(other).is_disjoint(&scope(group))
        });
        // a group loses the APIs that none of its CSVs has
        let provided = others.filter(|other| self.csvs.iter().any(|csv| key(csv).0 == other.namespace));
        if provided.flat_map(|other| &other.provided).any(|api| mine.contains(api)) {
            return failed(
                Reason::InterOperatorGroupOwnerConflict,
                "intersecting operatorgroups provide the same apis",
            );
        }
        if mine.is_subset(&group.provided) {
            return GroupState::Member;
        }
        if group.is_static {
            let message = "static provided api operatorgroup cannot be modified by these apis";
            return failed(Reason::CannotModifyStaticProvidedApis, message);
        }
        GroupState::SetProvidedApis(mine.into_iter().collect::<Vec<_>>().join(","))
    }

    pub(crate) fn set_account(&mut self, namespace: &str, name: &str, owner: Option<&str>) {
        let account = self.accounts.entry((namespace.to_owned(), name.to_owned())).or_default();
        account.owners.extend(owner.map(str::to_owned));
    }

    pub(crate) fn set_crd(&mut self, name: &str, versions: &[String], owner: Option<String>) {
        let crd = self.crds.entry(name.to_owned()).or_default();
        crd.served_versions.extend(versions.iter().cloned());
        (crd.is_established, crd.are_names_accepted) = (true, true);
        crd.installed_alongside.extend(owner);
    }

    pub(crate) fn status(&self, namespace: &str, name: &str) -> Option<Value> {
        let csv = self.csvs.iter().find(|csv| key(csv) == (namespace.to_owned(), name.to_owned()))?;
        Some(serde_json::to_value(csv.status.as_ref()?).unwrap())
    }
}

impl World {
    /// The CSVs and Deployments at this moment.
    pub(crate) fn picture(&self) -> Self {
        Self { csvs: self.csvs.clone(), live: self.live.clone(), ..Self::default() }
    }
}
