//! Copies of CSVs in the target namespaces of their group (classic-apis §7.8), and the switch that turns them off (§10).

use std::borrow::Borrow;
use std::collections::BTreeSet;

use olm_api::ConditionStatus;
use olm_api::classic::{ClusterServiceVersion, OlmConfig};
use olm_core::go;
use serde_json::json;

use super::targets::is_global;
use super::{encode, is_copy, keys};
use crate::csv::Reason;

/// `status.reason` of a copy.
pub(super) const REASON: &str = "Copied";

/// Which copies of CSVs of global groups exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopySettings {
    /// `spec.features.disableCopiedCSVs`.
    pub is_disabled: bool,
    /// Namespaces that get copies although they are disabled.
    pub protected: BTreeSet<String>,
}

impl CopySettings {
    /// The settings of the object `cluster`; without it, copies are made.
    #[must_use]
    pub fn new(config: Option<&OlmConfig>, protected: BTreeSet<String>) -> Self {
        let features = config.and_then(|config| config.spec.features.as_ref());
        let is_disabled = features.and_then(|features| features.disable_copied_csvs) == Some(true);
        Self { is_disabled, protected }
    }

    fn allows(&self, targets: &[String], namespace: &str) -> bool {
        !(self.is_disabled && is_global(targets)) || self.protected.contains(namespace)
    }
}

/// What of a CSV its copies have, as hashes; a cache can hold them in place of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyHash {
    /// Of name, spec, labels and annotations.
    pub content: String,
    /// Of the status.
    pub status: String,
}

impl CopyHash {
    /// The hashes of an object as it is in the cluster.
    #[must_use]
    pub fn from_csv(csv: &ClusterServiceVersion) -> Self {
        let meta = &csv.metadata;
        let content = json!([meta.name, meta.labels, meta.annotations, csv.spec]);
        let hash = |value| encode(&go::json_string(&value));
        Self { content: hash(content), status: hash(json!(csv.status)) }
    }
}

/// A CSV of the cluster, as far as copies depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCsv {
    pub namespace: String,
    pub name: String,
    /// The namespace of the original; `None` for an original.
    pub copied_from: Option<String>,
    pub hash: CopyHash,
}

impl ObservedCsv {
    #[must_use]
    pub fn from_csv(csv: &ClusterServiceVersion) -> Self {
        let copied_from = csv.metadata.labels.as_ref().and_then(|labels| labels.get(keys::COPIED_FROM));
        Self {
            namespace: csv.metadata.namespace.clone().unwrap_or_default(),
            name: csv.metadata.name.clone().unwrap_or_default(),
            copied_from: copied_from.cloned(),
            hash: CopyHash::from_csv(csv),
        }
    }

    fn is_copy_of(&self, csv: &ClusterServiceVersion) -> bool {
        self.copied_from.as_deref() == csv.metadata.namespace.as_deref()
            && Some(self.name.as_str()) == csv.metadata.name.as_deref()
    }
}

/// A copy that differs from what the cluster has.
#[derive(Debug, Clone, PartialEq)]
pub struct CopyWrite {
    /// The whole copy, with its status.
    pub copy: ClusterServiceVersion,
    /// Whether it has to be created; otherwise it exists.
    pub create: bool,
    /// Whether spec, labels or annotations differ.
    pub content: bool,
    /// Whether the status differs.
    pub status: bool,
}

/// How the copies of one CSV change.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CopyPlan {
    /// In the order of the namespaces.
    pub write: Vec<CopyWrite>,
    /// Namespaces in which the copy is deleted.
    pub delete: Vec<String>,
}

/// The copy of a CSV in a namespace.
#[must_use]
pub(crate) fn copied_csv(csv: &ClusterServiceVersion, namespace: &str) -> ClusterServiceVersion {
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let mut copy =
        ClusterServiceVersion::new(csv.metadata.name.as_deref().unwrap_or_default(), csv.spec.clone());
    copy.metadata.namespace = Some(namespace.to_owned());
    let labels = csv.metadata.labels.clone().unwrap_or_default().into_iter();
    let labels = labels.filter(|(key, _)| !key.starts_with(keys::COMPONENT));
    copy.metadata.labels = Some(labels.chain([(keys::COPIED_FROM.to_owned(), own.to_owned())]).collect());
    let annotations = csv.metadata.annotations.clone().unwrap_or_default().into_iter();
    let annotations =
        annotations.filter(|(key, _)| key != keys::TARGET_NAMESPACES && key != keys::LAST_APPLIED);
    copy.metadata.annotations = Some(annotations.collect());
    let mut status = csv.status.clone().unwrap_or_default();
    REASON.clone_into(&mut status.reason);
    status.message = format!("The operator is running in {own} but is managing this namespace");
    copy.status = Some(status);
    copy
}

/// Whether a CSV is ready to be copied: it is no copy, has a phase, and did not fail for its group.
#[must_use]
pub fn is_copied(csv: &ClusterServiceVersion) -> bool {
    let status = csv.status.as_ref();
    let failed = Reason::read(csv).is_some_and(Reason::is_of_the_group);
    !is_copy(csv) && !failed && status.is_some_and(|status| !status.phase.is_empty())
}

/// How the copies of a CSV change when its group has these targets; none is also the case of a group that is gone.
///
/// A copy is written when its hashes differ from those of the copy as it should be, and deleted when its namespace is no target any more. As
/// long as the CSV is not ready to be copied, its copies stay as they are. Another CSV of the same name is never overwritten. Targets that
/// are not among `namespaces`, those of the cluster, get no copy.
#[must_use]
pub fn plan(
    csv: &ClusterServiceVersion,
    targets: &[String],
    namespaces: &BTreeSet<String>,
    observed: &[ObservedCsv],
    settings: &CopySettings,
) -> CopyPlan {
    let own = csv.metadata.namespace.as_deref().unwrap_or_default();
    let is_target = |namespace: &str| {
        namespace != own
            && (is_global(targets) || targets.iter().any(|target| target == namespace))
            && settings.allows(targets, namespace)
    };
    let copies = observed.iter().filter(|other| other.is_copy_of(csv));
    let delete =
        copies.filter(|copy| !is_target(&copy.namespace)).map(|copy| copy.namespace.clone()).collect();
    let mut plan = CopyPlan { write: Vec::new(), delete };
    if !is_copied(csv) {
        return plan;
    }
    // copies differ in their namespace only, which does not count
    let hash = CopyHash::from_csv(&copied_csv(csv, own));
    for namespace in namespaces.iter().filter(|namespace| is_target(namespace)) {
        let present = observed.iter().find(|other| {
            other.namespace == *namespace && Some(other.name.as_str()) == csv.metadata.name.as_deref()
        });
        if present.is_some_and(|other| !other.is_copy_of(csv)) {
            continue;
        }
        let differs = |part: fn(&CopyHash) -> &str| present.is_none_or(|it| part(&it.hash) != part(&hash));
        let (content, status) = (differs(|hash| &hash.content), differs(|hash| &hash.status));
        if content || status {
            let copy = copied_csv(csv, namespace);
            plan.write.push(CopyWrite { copy, create: present.is_none(), content, status });
        }
    }
    plan
}

/// The condition `DisabledCopiedCSVs` of OLMConfig, without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopiesCondition {
    pub status: ConditionStatus,
    pub reason: &'static str,
    pub message: String,
}

/// The condition of OLMConfig for these CSVs, which belong to global groups.
#[must_use]
pub fn condition(
    csvs: &[impl Borrow<ClusterServiceVersion>],
    namespaces: &BTreeSet<String>,
    observed: &[ObservedCsv],
    settings: &CopySettings,
) -> CopiesCondition {
    let global = [String::new()];
    let plans = || {
        let csvs = csvs.iter().map(Borrow::borrow).filter(|csv| is_copied(csv));
        csvs.map(|csv| plan(csv, &global, namespaces, observed, settings))
    };
    let unexpected = plans().any(|plan| !plan.delete.is_empty());
    let missing = plans().any(|plan| plan.write.iter().any(|write| write.create));
    let (status, reason, message) = match (settings.is_disabled, unexpected, missing) {
        (true, false, _) => (
            ConditionStatus::True,
            "CopiedCSVsDisabled",
            "Copied CSVs are disabled and no unexpected copied CSVs were found for operators installed in AllNamespace mode",
        ),
        (true, true, _) => (
            ConditionStatus::False,
            "CopiedCSVsDisabled",
            "Copied CSVs are disabled and at least one unexpected copied CSV was found for an operator installed in AllNamespace mode",
        ),
        (false, _, false) => (
            ConditionStatus::False,
            "CopiedCSVsEnabled",
            "Copied CSVs are enabled and present across the cluster",
        ),
        (false, _, true) => (
            ConditionStatus::False,
            "CopiedCSVsEnabled",
            "Copied CSVs are enabled and at least one copied CSVs is missing",
        ),
    };
    CopiesCondition { status, reason, message: message.to_owned() }
}

/// Reason of the Warning event on a CSV whose copies are disabled.
pub const DISABLED_EVENT: &str = "DisabledCopiedCSVs";

/// The message of that event.
#[must_use]
pub fn disabled_message(csv: &ClusterServiceVersion) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    format!("CSV copying disabled for {}/{}", text(&csv.metadata.namespace), text(&csv.metadata.name))
}
