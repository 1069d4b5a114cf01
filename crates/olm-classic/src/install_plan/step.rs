//! Steps: which kinds a plan may make, what an object that exists means, and who owns what is made.
//!
//! Rule: classic-apis §5.3.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_api::classic::cluster_service_version::CustomResourceDefinitions;
use olm_api::classic::install_plan::Step;
use olm_api::classic::{ClusterServiceVersion, InstallPlan};
use olm_core::{Object, go, member_map};
use serde_json::{Map, Value};

use crate::csv::chain::successors;
use crate::operator_group::keys::COPIED_FROM;
use crate::ownership::extension_conflict;

olm_core::words! {
    /// How far a step is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum StepStatus {
        /// It was not tried.
        Unknown = "Unknown",
        NotPresent = "NotPresent",
        /// The object was there.
        Present = "Present",
        Created = "Created",
        NotCreated = "NotCreated",
        /// The definition was created and its API is not served yet.
        WaitingForApi = "WaitingForApi",
        /// No plan makes objects of this kind.
        UnsupportedResource = "UnsupportedResource",
    }
}

impl StepStatus {
    /// A word that is no status counts as `Unknown`: the step is tried again.
    pub fn parse(text: &str) -> Self {
        text.parse().unwrap_or(Self::Unknown)
    }

    pub fn is_done(self) -> bool {
        match self {
            Self::Present | Self::Created => true,
            Self::Unknown
            | Self::NotPresent
            | Self::NotCreated
            | Self::WaitingForApi
            | Self::UnsupportedResource => false,
        }
    }
}

/// How objects of a kind are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handling {
    /// Created; one that exists stays as it is.
    ClusterServiceVersion,
    /// Created and waited for, or compared with the one that exists; always with the rights of the controller.
    CustomResourceDefinition,
    /// Created with the annotation `olm.generated-by`; one that exists stays as it is, and also serves if a user made it for the package
    /// under another name.
    Subscription,
    /// Copied from the namespace of the controller.
    PullSecret,
    /// Created or updated; owned by the ClusterServiceVersion.
    Owned,
    /// Created or updated; owned only as the manifest has it, so that accounts and roles of a bundle stay.
    AsWritten,
    /// Created or updated, with the label `olm.owner`.
    ClusterRights,
    /// Created or updated; owned by the ClusterServiceVersion in a namespace, else with all owner labels.
    Generic,
}

/// A kind that a plan makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepKind {
    /// As steps name it; `BundleSecret` is a Secret that a bundle contains.
    pub kind: &'static str,
    /// API group, empty for the core group.
    pub group: &'static str,
    pub is_namespaced: bool,
    pub handling: Handling,
}

impl StepKind {
    /// Puts an object of the kind into the namespace of its plan. One of the whole cluster has none, whatever its manifest names: the
    /// apiserver ignores it there.
    pub fn place(&self, object: &mut Object, namespace: &str) {
        if self.is_namespaced {
            object.set_namespace(namespace);
        } else {
            object.metadata_mut().remove("namespace");
        }
    }
}

const fn kind(kind: &'static str, group: &'static str, is_namespaced: bool, handling: Handling) -> StepKind {
    StepKind { kind, group, is_namespaced, handling }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const OLM: &str = olm_api::classic::GROUP;

/// All kinds that plans make.
pub const KINDS: [StepKind; 23] = [
    kind("ClusterServiceVersion", OLM, true, Handling::ClusterServiceVersion),
    kind("CustomResourceDefinition", "apiextensions.k8s.io", false, Handling::CustomResourceDefinition),
    kind("Subscription", OLM, true, Handling::Subscription),
    kind("Secret", "", true, Handling::PullSecret),
    kind("BundleSecret", "", true, Handling::Owned),
    kind("ConfigMap", "", true, Handling::Owned),
    kind("Service", "", true, Handling::Owned),
    kind("ServiceAccount", "", true, Handling::AsWritten),
    kind("Role", RBAC, true, Handling::AsWritten),
    kind("RoleBinding", RBAC, true, Handling::AsWritten),
    kind("ClusterRole", RBAC, false, Handling::ClusterRights),
    kind("ClusterRoleBinding", RBAC, false, Handling::ClusterRights),
    kind("PrometheusRule", "monitoring.coreos.com", true, Handling::Generic),
    kind("ServiceMonitor", "monitoring.coreos.com", true, Handling::Generic),
    kind("PodDisruptionBudget", "policy", true, Handling::Generic),
    kind("PriorityClass", "scheduling.k8s.io", false, Handling::Generic),
    kind("VerticalPodAutoscaler", "autoscaling.k8s.io", true, Handling::Generic),
    kind("NetworkPolicy", "networking.k8s.io", true, Handling::Generic),
    kind("ConsoleYAMLSample", "console.openshift.io", false, Handling::Generic),
    kind("ConsoleQuickStart", "console.openshift.io", false, Handling::Generic),
    kind("ConsoleCLIDownload", "console.openshift.io", false, Handling::Generic),
    kind("ConsoleLink", "console.openshift.io", false, Handling::Generic),
    kind("ConsolePlugin", "console.openshift.io", false, Handling::Generic),
];

/// `None`: no plan makes objects of this kind.
pub fn step_kind(group: &str, kind: &str) -> Option<&'static StepKind> {
    KINDS.iter().find(|it| it.kind == kind && it.group == group)
}

/// Why a step cannot be carried out. All but `Api` need another plan, or another object in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    #[error("the InstallPlan contains invalid data")]
    Unsupported {
        /// `<Kind> <name>`
        object: String,
    },
    #[error("manifest of step {step} ({object}): {problem}; delete the InstallPlan, a new one is made")]
    Manifest { step: usize, object: String, problem: String },
    #[error(
        "pre-existing CRD owners found for owned CRD(s) of dependent CSV {csv}: {owners}; delete these \
         ClusterServiceVersions, or add {csv} to spec.clusterServiceVersionNames"
    )]
    OwnedByOthers { csv: String, owners: String },
    #[error(
        "ClusterServiceVersion {csv}, which owns {object}, is not there; delete the InstallPlan, a new one is made"
    )]
    NoOwner { csv: String, object: String },
    #[error(
        "ClusterServiceVersion {csv} is a copy of the one in namespace {original}, whose OperatorGroup selects this namespace, too; delete \
         the Subscription, or let that OperatorGroup select other namespaces"
    )]
    Copied { csv: String, original: String },
    #[error("error creating csv {csv}: {message}")]
    CreateCsv { csv: String, message: String, is_forbidden: bool },
    /// Also when the object was to be created.
    #[error("error updating {kind}: {name}: {message}")]
    Api { kind: String, name: String, message: String, is_forbidden: bool },
    /// The cluster does not serve the kind of the object.
    #[error(
        "api-server resource not found installing {kind} {name}: GroupVersionKind {group}/{version}, Kind={kind} not found on the \
         cluster. This API may have been deprecated and removed, see \
         https://kubernetes.io/docs/reference/using-api/deprecation-guide/ for more information."
    )]
    NoApi { group: String, version: String, kind: String, name: String },
    #[error("{0}")]
    Crd(#[from] super::crd::CrdUpdateError),
    /// An extension of OLM v1 has the object.
    #[error("{0}")]
    OfExtension(String),
}

impl StepError {
    /// What the apiserver answered for the object of a step.
    pub fn from_api(step: &Step, message: &str, is_forbidden: bool) -> Self {
        let (name, message) = (step.resource.name.clone(), message.to_owned());
        match step.resource.kind.as_str() {
            "ClusterServiceVersion" => Self::CreateCsv { csv: name, message, is_forbidden },
            "BundleSecret" => Self::Api { kind: "secret".to_owned(), name, message, is_forbidden },
            kind => Self::Api { kind: kind.to_lowercase(), name, message, is_forbidden },
        }
    }

    /// The ClusterServiceVersion for which a step is does not exist.
    pub fn no_owner(step: &Step) -> Self {
        let object = format!("{} {}", step.resource.kind, step.resource.name);
        Self::NoOwner { csv: step.resolving.clone(), object }
    }

    /// The kind of a step's object is not served.
    pub fn no_api(object: &Object) -> Self {
        let [group, version, kind, name] =
            [object.group(), object.version(), object.kind(), object.name()].map(str::to_owned);
        Self::NoApi { group, version, kind, name }
    }

    /// Rights may come at any time, so the plan does not fail for them.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::CreateCsv { is_forbidden: true, .. } | Self::Api { is_forbidden: true, .. })
    }

    /// Another attempt at the same plan ends in the same error.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Unsupported { .. } | Self::Manifest { .. } => true,
            Self::OwnedByOthers { .. }
            | Self::NoOwner { .. }
            | Self::Copied { .. }
            | Self::CreateCsv { .. }
            | Self::Api { .. }
            | Self::NoApi { .. }
            | Self::Crd(_)
            | Self::OfExtension(_) => false,
        }
    }
}

/// What is done for one step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepAction {
    /// Nothing: it was done before.
    Done(StepStatus),
    /// The object is there and stays as it is.
    Keep,
    Create(Object),
    /// Put in the place of the one that exists.
    Update(Object),
    /// The definition exists: [`super::update_crd`] decides.
    CompareCrd(Object),
    /// The definition does not serve its API yet.
    AwaitApi,
    /// A pull secret is copied into the namespace of the plan.
    CopySecret {
        name: String,
        /// The namespace of the catalog that the bundle comes from, which is that of the plan or the global one.
        from: String,
    },
}

impl StepAction {
    /// The status of the step after the action succeeded.
    pub fn status(&self) -> StepStatus {
        match self {
            Self::Done(status) => *status,
            Self::Keep | Self::Update(_) | Self::CompareCrd(_) => StepStatus::Present,
            Self::Create(object) if object.kind() == "CustomResourceDefinition" => StepStatus::WaitingForApi,
            Self::Create(_) | Self::CopySecret { .. } => StepStatus::Created,
            Self::AwaitApi => StepStatus::WaitingForApi,
        }
    }
}

/// The cluster as one step sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepObserved<'a> {
    /// The object of the step, if it exists.
    pub existing: Option<&'a Object>,
    /// UID of the ClusterServiceVersion for which the step is; it owns the object.
    pub owner_uid: Option<&'a str>,
    /// The ClusterServiceVersions of the namespace.
    pub csvs: &'a [Arc<ClusterServiceVersion>],
    /// The packages that Subscriptions of the namespace name, for a step that makes one.
    pub subscribed: &'a [String],
    /// Its catalogs are available everywhere.
    pub global_namespace: &'a str,
}

/// What to do for the step at this place of the plan; `manifest` is its object, see [`super::step_object`].
///
/// # Errors
/// When no attempt is to be made.
pub fn decide_step(
    plan: &InstallPlan,
    index: usize,
    manifest: &Object,
    observed: StepObserved<'_>,
) -> Result<StepAction, StepError> {
    let unreadable = |problem: &str| StepError::Manifest {
        step: index,
        object: format!("{} {}", manifest.kind(), manifest.name()),
        problem: problem.to_owned(),
    };
    let steps = plan.status.as_ref().map(|status| status.plan.as_slice()).unwrap_or_default();
    let step = steps.get(index).ok_or_else(|| unreadable("the plan has no such step"))?;
    let Some(kind) = step_kind(&step.resource.group, &step.resource.kind) else {
        let object = format!("{} {}", step.resource.kind, step.resource.name);
        return Err(StepError::Unsupported { object });
    };
    let status = StepStatus::parse(&step.status);
    if status.is_done() {
        return Ok(StepAction::Done(status));
    }
    if manifest.name() != step.resource.name {
        return Err(unreadable("it names another object than the step"));
    }
    if let Some(conflict) = observed.existing.and_then(extension_conflict) {
        return Err(StepError::OfExtension(conflict));
    }
    let csv = step.resolving.as_str();
    // the plan of a newer one has written what belongs to it; this one, which is still tried again, must not put its version back
    let is_of_successor = |existing: &Object| successors(csv, observed.csvs).any(|it| is_of(existing, it));
    if status != StepStatus::WaitingForApi && observed.existing.is_some_and(is_of_successor) {
        return Ok(StepAction::Keep);
    }
    let mut made = manifest.clone();
    made.set_label("olm.managed", "true");
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    kind.place(&mut made, namespace);
    match kind.handling {
        Handling::ClusterServiceVersion => {
            reject_other_owners(plan, manifest, observed.csvs)?;
            // nothing would run here, and the copy goes with its original
            if let Some(original) = observed.existing.and_then(|it| it.labels().get(COPIED_FROM).copied()) {
                return Err(StepError::Copied { csv: csv.to_owned(), original: original.to_owned() });
            }
            Ok(keep_or_create(made, observed.existing))
        }
        Handling::Subscription => {
            made.set_annotation("olm.generated-by", plan.metadata.name.as_deref().unwrap_or_default());
            // two Subscriptions to a package cannot be resolved, and the user may have subscribed since the plan was made
            let package = manifest.0.get("spec").and_then(|spec| spec["name"].as_str());
            let is_subscribed = observed.subscribed.iter().any(|other| Some(other.as_str()) == package);
            Ok(if is_subscribed { StepAction::Keep } else { keep_or_create(made, observed.existing) })
        }
        Handling::PullSecret if observed.existing.is_some() => Ok(StepAction::Keep),
        Handling::PullSecret => {
            let global = observed.global_namespace;
            let from = Some(step.resource.source_namespace.as_str()).filter(|from| !from.is_empty());
            let from = from.unwrap_or(global);
            // the controller may read every Secret, who writes the plan may not
            if from != namespace && from != global {
                return Err(unreadable(&format!("namespace {namespace} may not use catalogs of {from}")));
            }
            Ok(StepAction::CopySecret { name: step.resource.name.clone(), from: from.to_owned() })
        }
        Handling::CustomResourceDefinition => Ok(match observed.existing {
            Some(existing) if status == StepStatus::WaitingForApi => {
                if is_served(existing) {
                    StepAction::Done(StepStatus::Created)
                } else {
                    StepAction::AwaitApi
                }
            }
            Some(_) => StepAction::CompareCrd(made),
            None => {
                super::crd::mark_installed_alongside(&mut made, namespace, csv);
                StepAction::Create(made)
            }
        }),
        Handling::Owned => {
            add_owner(&mut made, csv, owner_uid(observed, step)?);
            Ok(update_or_create(made, observed.existing))
        }
        Handling::AsWritten => {
            if has_owner(&made, csv) {
                add_owner(&mut made, csv, owner_uid(observed, step)?);
            }
            Ok(update_or_create(made, observed.existing))
        }
        Handling::ClusterRights => {
            made.set_label("olm.owner", csv);
            Ok(update_or_create(made, observed.existing))
        }
        Handling::Generic if kind.is_namespaced => {
            add_owner(&mut made, csv, owner_uid(observed, step)?);
            Ok(update_or_create(made, observed.existing))
        }
        Handling::Generic => {
            for (key, value) in owner_labels(csv, namespace) {
                made.set_label(&key, value.as_str().unwrap_or_default());
            }
            Ok(update_or_create(made, observed.existing))
        }
    }
}

fn owner_uid<'a>(observed: StepObserved<'a>, step: &Step) -> Result<&'a str, StepError> {
    observed.owner_uid.ok_or_else(|| StepError::no_owner(step))
}

fn keep_or_create(made: Object, existing: Option<&Object>) -> StepAction {
    if existing.is_some() { StepAction::Keep } else { StepAction::Create(made) }
}

/// An update keeps labels, annotations and owners of others, and the secrets of an account.
fn update_or_create(mut made: Object, existing: Option<&Object>) -> StepAction {
    let Some(existing) = existing else { return StepAction::Create(made) };
    for member in ["labels", "annotations"] {
        let old = existing.metadata().and_then(|metadata| metadata.get(member)).and_then(Value::as_object);
        let members = member_map(made.metadata_mut(), member);
        for (key, value) in old.into_iter().flatten() {
            members.entry(key.clone()).or_insert_with(|| value.clone());
        }
        if members.is_empty() {
            made.metadata_mut().remove(member);
        }
    }
    let mut owners = references(&made);
    let ours = owners.clone();
    let is_ours =
        |owner: &Value| ours.iter().any(|own| own["name"] == owner["name"] && own["kind"] == owner["kind"]);
    owners.extend(references(existing).into_iter().filter(|owner| !is_ours(owner)));
    if !owners.is_empty() {
        made.metadata_mut().insert("ownerReferences".into(), Value::Array(owners));
    }
    if made.kind() == "ServiceAccount" {
        for member in ["secrets", "imagePullSecrets"] {
            if let Some(value) = existing.0.get(member) {
                made.0.entry(member).or_insert_with(|| value.clone());
            }
        }
    }
    if let Some(version) = existing.metadata().and_then(|metadata| metadata.get("resourceVersion")) {
        made.metadata_mut().insert("resourceVersion".into(), version.clone());
    }
    StepAction::Update(made)
}

/// A ClusterServiceVersion that came as a dependency must not take over definitions of others.
fn reject_other_owners(
    plan: &InstallPlan,
    manifest: &Object,
    csvs: &[Arc<ClusterServiceVersion>],
) -> Result<(), StepError> {
    let csv = manifest.name();
    if plan.spec.cluster_service_version_names.iter().any(|name| name == csv) {
        return Ok(());
    }
    let owned = manifest.0.get("spec").and_then(|spec| spec.get("customresourcedefinitions"));
    let owned: CustomResourceDefinitions =
        owned.and_then(|it| serde_json::from_value(it.clone()).ok()).unwrap_or_default();
    let owned: BTreeSet<&str> = owned.owned.iter().map(|crd| crd.name.as_str()).collect();
    let owns_one = |other: &&Arc<ClusterServiceVersion>| {
        let crds = other.spec.custom_resource_definitions.as_ref();
        crds.is_some_and(|crds| crds.owned.iter().any(|crd| owned.contains(crd.name.as_str())))
    };
    let names = csvs.iter().filter(owns_one).filter_map(|other| other.metadata.name.as_deref());
    let mut owners: Vec<&str> = names.filter(|name| *name != csv).collect();
    owners.sort_unstable();
    if owners.is_empty() {
        return Ok(());
    }
    Err(StepError::OwnedByOthers { csv: csv.to_owned(), owners: owners.join(", ") })
}

/// Whether a CustomResourceDefinition is Established and its names are accepted.
fn is_served(crd: &Object) -> bool {
    let conditions = crd.0.get("status").and_then(|status| status.get("conditions"));
    let is_true = |type_: &str| {
        let mut all = conditions.and_then(Value::as_array).into_iter().flatten();
        all.any(|condition| condition["type"] == type_ && condition["status"] == "True")
    };
    is_true("Established") && is_true("NamesAccepted")
}

/// Labels that name the ClusterServiceVersion which owns an object of the whole cluster.
pub(super) fn owner_labels(csv: &str, namespace: &str) -> Map<String, Value> {
    let labels =
        [("olm.owner", csv), ("olm.owner.namespace", namespace), ("olm.owner.kind", "ClusterServiceVersion")];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

/// Whether an object of the whole cluster has all labels that name its ClusterServiceVersion, with which it is deleted; a role that a bundle
/// shares with others has only one of them.
pub fn has_owner_labels(object: &Object, csv: &str, namespace: &str) -> bool {
    let found = object.labels();
    owner_labels(csv, namespace).iter().all(|(key, value)| found.get(key.as_str()).copied() == value.as_str())
}

/// Neither a controller nor blocking.
pub(super) fn owner_reference(csv: &str, uid: &str) -> Value {
    crate::operator_group::owner_reference(
        &format!("{OLM}/v1alpha1"),
        "ClusterServiceVersion",
        csv,
        uid,
        false,
    )
}

fn references(object: &Object) -> Vec<Value> {
    let list = object.metadata().and_then(|metadata| metadata.get("ownerReferences"));
    list.and_then(Value::as_array).cloned().unwrap_or_default()
}

fn has_owner(object: &Object, csv: &str) -> bool {
    references(object).iter().any(|owner| owner["kind"] == "ClusterServiceVersion" && owner["name"] == csv)
}

/// Whether an object belongs to a ClusterServiceVersion. A definition has no owner: it belongs to each that names it.
fn is_of(object: &Object, csv: &ClusterServiceVersion) -> bool {
    let Some(name) = csv.metadata.name.as_deref() else { return false };
    let names = |it: &CustomResourceDefinitions| it.owned.iter().any(|crd| crd.name == object.name());
    match object.kind() {
        "CustomResourceDefinition" => csv.spec.custom_resource_definitions.as_ref().is_some_and(names),
        _ => has_owner(object, name) || object.labels().get("olm.owner").copied() == Some(name),
    }
}

fn add_owner(object: &mut Object, csv: &str, uid: &str) {
    let mut owners = references(object);
    owners.retain(|owner| !(owner["kind"] == "ClusterServiceVersion" && owner["name"] == csv));
    owners.push(owner_reference(csv, uid));
    object.metadata_mut().insert("ownerReferences".into(), Value::Array(owners));
}

/// The message of an event `AppliedWithWarnings` for warnings of the apiserver, with the field path of the step.
pub fn warning_event(index: usize, step: &Step, warnings: &[String]) -> (String, String) {
    let texts: Vec<String> = warnings.iter().map(|text| go::quote(text)).collect();
    let message = format!("{} {}: {}", step.resource.kind, step.resource.name, texts.join(", "));
    (format!("status.plan[{index}]"), message)
}
