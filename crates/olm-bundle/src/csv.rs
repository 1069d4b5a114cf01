//! The typed view of a ClusterServiceVersion: what rendering reads, beside the raw object that keeps everything.
//!
//! Only members that influence output are read (bundle-rendering §3). A member of the wrong type is an error that names
//! its path; a member that Kubernetes does not declare is dropped from what will be rendered and named as a warning.

use std::collections::BTreeMap;

use olm_core::Object;
use serde_json::{Map, Value};

use crate::kube::{ShapeError, component, conform};
use crate::modes::{InstallMode, InstallModes};
use crate::reader::Reader;

/// A ClusterServiceVersion: the raw object and the facts that rendering needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Csv {
    /// The object as the bundle ships it, without the specs of its deployments ([`Self::deployments`]), and with properties of
    /// `metadata/properties.yaml` merged into its annotation `olm.properties`.
    pub raw: Object,
    pub name: String,
    pub annotations: BTreeMap<String, String>,
    pub install_modes: InstallModes,
    /// `spec.install.spec.deployments`.
    pub deployments: Vec<CsvDeployment>,
    /// `spec.install.spec.permissions`.
    pub permissions: Vec<Permission>,
    /// `spec.install.spec.clusterPermissions`.
    pub cluster_permissions: Vec<Permission>,
    /// Names in `spec.customresourcedefinitions.owned`, as listed.
    pub owned_crds: Vec<String>,
    /// How many API services the CSV owns.
    pub owned_api_services: usize,
    /// `spec.webhookdefinitions`.
    pub webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CsvDeployment {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// apps/v1 DeploymentSpec, undeclared members removed.
    pub spec: Map<String, Value>,
}

/// Rules that the operator needs for one of its service accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    /// Account as written; empty means `default`.
    pub service_account: String,
    /// Rules; `None` where the CSV has none or null (the name hash differs from that of an empty list).
    pub rules: Option<Vec<PolicyRule>>,
}

impl Permission {
    /// The account, `default` when none is named.
    pub fn account(&self) -> &str {
        if self.service_account.is_empty() { "default" } else { &self.service_account }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyRule {
    /// `verbs`; `None` where the CSV has none or null.
    pub verbs: Option<Vec<String>>,
    /// `apiGroups`.
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    /// `resourceNames`.
    pub resource_names: Vec<String>,
    /// `nonResourceURLs`.
    pub non_resource_urls: Vec<String>,
}

/// What a webhook definition is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookType {
    Validating,
    Mutating,
    Conversion,
    /// Anything else, as written.
    Other(String),
}

impl WebhookType {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Validating => "ValidatingAdmissionWebhook",
            Self::Mutating => "MutatingAdmissionWebhook",
            Self::Conversion => "ConversionWebhook",
            Self::Other(name) => name,
        }
    }

    fn from_name(name: &str) -> Self {
        match name {
            "ValidatingAdmissionWebhook" => Self::Validating,
            "MutatingAdmissionWebhook" => Self::Mutating,
            "ConversionWebhook" => Self::Conversion,
            other => Self::Other(other.to_owned()),
        }
    }
}

/// One entry of `spec.webhookdefinitions`.
#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// `generateName` as written.
    pub generate_name: String,
    pub kind: WebhookType,
    /// `deploymentName`.
    pub deployment: String,
    /// `containerPort`, where it is above 0.
    pub container_port: Option<i64>,
    /// `targetPort`: a number or a port's name.
    pub target_port: Option<Value>,
    /// `webhookPath`.
    pub path: Option<String>,
    /// `conversionCRDs`.
    pub conversion_crds: Vec<String>,
    /// `admissionReviewVersions`.
    pub admission_review_versions: Vec<String>,
    /// `rules`, undeclared members removed.
    pub rules: Vec<Value>,
    /// `failurePolicy`, `matchPolicy`, `objectSelector`, `sideEffects`, `timeoutSeconds`, where present.
    pub admission: Map<String, Value>,
    /// `reinvocationPolicy`.
    pub reinvocation_policy: Option<String>,
}

impl Webhook {
    /// Name of the configuration and of the webhook in it: `generateName` without one trailing dash.
    pub fn name(&self) -> &str {
        self.generate_name.strip_suffix('-').unwrap_or(&self.generate_name)
    }

    /// The port that the API server calls and the Service listens on.
    pub fn port(&self) -> i64 {
        self.container_port.unwrap_or(443)
    }
}

impl Csv {
    /// The object with the specs of its deployments.
    #[must_use]
    pub fn whole(&self) -> Object {
        let mut whole = self.raw.clone();
        let list = whole.0.get_mut("spec").and_then(|spec| spec.pointer_mut("/install/spec/deployments"));
        let list = list.and_then(Value::as_array_mut).into_iter().flatten();
        for (deployment, read) in list.zip(&self.deployments) {
            if let Some(members) = deployment.as_object_mut() {
                members.insert("spec".to_owned(), Value::Object(read.spec.clone()));
            }
        }
        whole
    }

    /// Reads the typed view. Undeclared members that will not be rendered are added to `warnings`.
    ///
    /// # Errors
    /// At the first member of the wrong type.
    pub fn read(mut raw: Object, warnings: &mut Vec<String>) -> Result<Self, ShapeError> {
        let specs = take_deployment_specs(&mut raw);
        let root = Reader::root(&raw.0);
        let metadata = root.object("metadata")?;
        let spec = root.object("spec")?;
        let install = spec.object("install")?.object("spec")?;
        let owned = |definitions: &'static str| -> Result<Vec<Reader<'_>>, ShapeError> {
            spec.object(definitions)?.objects("owned")
        };
        let owned_crds = owned("customresourcedefinitions")?
            .iter()
            .map(|one| one.text("name"))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            name: metadata.text("name")?,
            annotations: metadata.texts_by_name("annotations")?,
            install_modes: install_modes(&spec)?,
            deployments: install
                .objects("deployments")?
                .iter()
                .zip(specs)
                .map(|(one, spec)| deployment(one, spec, warnings))
                .collect::<Result<_, _>>()?,
            permissions: permissions(&install, "permissions")?,
            cluster_permissions: permissions(&install, "clusterPermissions")?,
            owned_crds,
            owned_api_services: owned("apiservicedefinitions")?.len(),
            webhooks: spec
                .objects("webhookdefinitions")?
                .iter()
                .map(|one| webhook(one, warnings))
                .collect::<Result<_, _>>()?,
            raw,
        })
    }
}

fn install_modes(spec: &Reader<'_>) -> Result<InstallModes, ShapeError> {
    let mut supported = InstallModes::default();
    for entry in spec.objects("installModes")? {
        let name = entry.text("type")?;
        if entry.boolean("supported")?.unwrap_or(false)
            && let Ok(mode) = name.parse::<InstallMode>()
        {
            supported.0.insert(mode);
        }
    }
    Ok(supported)
}

/// They may be most of the bundle, and are in memory once only.
fn take_deployment_specs(raw: &mut Object) -> Vec<Value> {
    let install = raw.0.get_mut("spec").and_then(|spec| spec.pointer_mut("/install/spec/deployments"));
    let deployments = install.and_then(Value::as_array_mut).into_iter().flatten();
    deployments.map(|one| one.get_mut("spec").map(Value::take).unwrap_or_default()).collect()
}

fn deployment(
    entry: &Reader<'_>,
    mut spec: Value,
    warnings: &mut Vec<String>,
) -> Result<CsvDeployment, ShapeError> {
    if spec.is_null() {
        spec = Value::Object(Map::new());
    }
    let conformed = conform(&mut spec, component::DEPLOYMENT_SPEC, &entry.at("spec"))?;
    warn(warnings, conformed.dropped.iter().map(|path| undeclared(path)));
    Ok(CsvDeployment {
        name: entry.text("name")?,
        labels: entry.texts_by_name("label")?,
        spec: match spec {
            Value::Object(members) => members,
            _ => Map::new(),
        },
    })
}

fn permissions(install: &Reader<'_>, member: &str) -> Result<Vec<Permission>, ShapeError> {
    let mut read = Vec::new();
    for entry in install.objects(member)? {
        let rules = match entry.value("rules") {
            None => None,
            Some(_) => Some(entry.objects("rules")?.iter().map(policy_rule).collect::<Result<_, _>>()?),
        };
        read.push(Permission { service_account: entry.text("serviceAccountName")?, rules });
    }
    Ok(read)
}

fn policy_rule(rule: &Reader<'_>) -> Result<PolicyRule, ShapeError> {
    Ok(PolicyRule {
        verbs: match rule.value("verbs") {
            None => None,
            Some(_) => Some(rule.texts("verbs")?),
        },
        api_groups: rule.texts("apiGroups")?,
        resources: rule.texts("resources")?,
        resource_names: rule.texts("resourceNames")?,
        non_resource_urls: rule.texts("nonResourceURLs")?,
    })
}

fn webhook(entry: &Reader<'_>, warnings: &mut Vec<String>) -> Result<Webhook, ShapeError> {
    let mut conformed = |mut value: Value, shape: &str, path: &str| -> Result<Value, ShapeError> {
        let done = conform(&mut value, shape, path)?;
        warn(warnings, done.dropped.iter().map(|path| undeclared(path)));
        Ok(value)
    };
    let mut rules = Vec::new();
    for (index, rule) in entry.values("rules")?.iter().enumerate() {
        let path = format!("{}[{index}]", entry.at("rules"));
        rules.push(conformed(rule.clone(), component::WEBHOOK_RULE, &path)?);
    }
    let mut admission = Map::new();
    for member in ["failurePolicy", "matchPolicy", "sideEffects"] {
        if let Some(text) = entry.optional_text(member)? {
            admission.insert(member.into(), text.into());
        }
    }
    if let Some(seconds) = entry.integer("timeoutSeconds")? {
        admission.insert("timeoutSeconds".into(), seconds.into());
    }
    if let Some(selector) = entry.value("objectSelector") {
        let path = entry.at("objectSelector");
        admission
            .insert("objectSelector".into(), conformed(selector.clone(), component::LABEL_SELECTOR, &path)?);
    }
    Ok(Webhook {
        generate_name: entry.text("generateName")?,
        kind: WebhookType::from_name(&entry.text("type")?),
        deployment: entry.text("deploymentName")?,
        container_port: entry.integer("containerPort")?.filter(|port| *port > 0),
        target_port: entry.port("targetPort")?,
        path: entry.optional_text("webhookPath")?,
        conversion_crds: entry.texts("conversionCRDs")?,
        admission_review_versions: entry.texts("admissionReviewVersions")?,
        rules,
        admission,
        reinvocation_policy: entry.optional_text("reinvocationPolicy")?,
    })
}

/// Warnings of one bundle; further ones are left out.
const MAX_WARNINGS: usize = 1_000;

/// Adds warnings, up to [`MAX_WARNINGS`] in all.
pub(crate) fn warn(warnings: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    let remaining = MAX_WARNINGS.saturating_sub(warnings.len());
    warnings.extend(more.into_iter().take(remaining));
}

pub(crate) fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(253)]
}

/// The warning about a member that no Kubernetes API declares.
pub(crate) fn undeclared(path: &str) -> String {
    format!("{path} is not a field that Kubernetes declares; it is left out")
}
