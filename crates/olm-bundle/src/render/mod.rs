//! From a bundle and its configuration to the objects of a cluster. Rules: bundle-rendering §4 to §12.
//!
//! Gates, configuration, validators, targets and generators run in this order; the first that refuses ends it. The same
//! input gives the same objects in the same order with the same bytes. Labels, phases and revisions come later and
//! elsewhere.

mod additional;
mod admission;
mod cert_volumes;
mod certificates;
mod crds;
mod deployments;
mod distinct;
mod issue;
mod overrides;
mod rbac;
mod services;
mod unique_entries;
mod user_roles;

use olm_core::{Cancellation, Object};

use crate::config::{self, Config};
use crate::error::{RenderError, Unsupported};
use crate::modes::{InstallMode, Targets, targets};
use crate::options::RenderOptions;
use crate::registry::RegistryV1;
use crate::validate::validate_until;

pub use certificates::{CaTarget, WebhookCertificate};
pub use issue::{called_services, certificates_to_issue, mounted_secrets};
pub use overrides::override_deployment;

/// The format of the rendered objects: what is installed is rendered again when a new version has another one. Raise it when a bundle
/// renders to other objects, or when the revision that `olm-install` and `olm-rollout` make of them differs, and announce it in the
/// changelog.
pub const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The objects, in the order of the generators.
    pub objects: Vec<Object>,
    pub targets: Targets,
    /// Serving certificates that webhooks need, of any issuer.
    pub certificates: Vec<WebhookCertificate>,
    /// What was left out or looks wrong but stops nothing.
    pub warnings: Vec<String>,
}

/// Renders a bundle to the objects that installing it creates.
///
/// # Errors
/// When the bundle is not supported, the configuration is refused, or the bundle contradicts itself.
pub fn render(bundle: &RegistryV1, options: &RenderOptions) -> Result<Vec<Object>, RenderError> {
    render_with_report(bundle, options).map(|rendered| rendered.objects)
}

/// As [`render`], with what else became known.
///
/// # Errors
/// As [`render`].
pub fn render_with_report(bundle: &RegistryV1, options: &RenderOptions) -> Result<Rendered, RenderError> {
    render_owned(bundle.clone(), options, &Cancellation::default())
}

/// As [`render_with_report`], without a copy of the bundle's objects: a large bundle takes most of the process's memory. It reads
/// the cancellation before each object.
///
/// # Errors
/// As [`render`], and [`RenderError::Cancelled`].
pub fn render_owned(
    mut bundle: RegistryV1,
    options: &RenderOptions,
    cancellation: &Cancellation,
) -> Result<Rendered, RenderError> {
    gate(&bundle, options)?;
    let config = if options.gates.single_own_namespace || options.config.is_some() {
        let modes = &bundle.csv.install_modes;
        config::read_config(options.config.as_ref(), modes, &options.install_namespace, options.gates)?
    } else {
        Config::default()
    };
    let objects = most_objects(&bundle, options);
    if objects > MAX_OBJECTS {
        return Err(RenderError::Generator(format!(
            "the bundle renders to up to {objects} objects, at most {MAX_OBJECTS} are allowed; it must have fewer permissions, \
             webhooks and manifests"
        )));
    }
    let copied = copied_annotations(&bundle);
    if copied > MAX_COPIED_ANNOTATIONS {
        return Err(RenderError::Generator(format!(
            "the annotations of the CSV take {copied} bytes in the bundle's deployments together, at most \
             {MAX_COPIED_ANNOTATIONS} are allowed; it must have fewer annotations or deployments"
        )));
    }
    let findings = validate_until(&bundle, cancellation);
    if cancellation.is_cancelled() {
        return Err(RenderError::Cancelled);
    }
    if !findings.is_empty() {
        return Err(RenderError::Invalid { findings });
    }
    let requested: Vec<String> = config.watch_namespace.iter().cloned().collect();
    let targets = targets(&bundle.csv.install_modes, &options.install_namespace, &requested)?;

    let mut warnings: Vec<String> = bundle.warnings.iter().chain(&config.warnings).cloned().collect();
    let (crds, others) = (std::mem::take(&mut bundle.crds), std::mem::take(&mut bundle.others));
    let deployments = std::mem::take(&mut bundle.csv.deployments);
    let user_roles = if options.user_roles { user_roles::roles(&crds) } else { Vec::new() };
    let context = Context { bundle: &bundle, options, targets: &targets, config: &config, cancellation };
    let mut objects = distinct::Objects::new(cancellation);
    objects.add("the service accounts of its permissions", rbac::service_accounts(&context))?;
    objects.add("its permissions", rbac::permissions(&context))?;
    objects.add("its cluster permissions", rbac::cluster_permissions(&context))?;
    objects.add("its custom resource definitions", crds::crds(&context, crds)?)?;
    objects.add("the roles for users of its custom resources", user_roles)?;
    objects.add("its own manifests", additional::additional(&context, others))?;
    let services = services::services(&context, &deployments);
    objects.add("its deployments", deployments::deployments(&context, deployments, &mut warnings)?)?;
    objects.add("its validating webhooks", admission::validating(&context))?;
    objects.add("its mutating webhooks", admission::mutating(&context))?;
    objects.add("the services of its webhooks", services)?;
    objects.add("the certificates of its webhooks", certificates::objects(&context))?;

    let certificates = certificates::certificates(&context);
    Ok(Rendered { objects: objects.into_vec(), targets, certificates, warnings })
}

/// Objects of one bundle, ten times what a revision can hold: a short entry of the CSV becomes kilobytes of objects.
const MAX_OBJECTS: usize = 10_000;

/// How many objects the bundle renders to at most: an account, a role and a binding for each permission, a configuration for each
/// webhook, the roles for users of each version of a CRD.
fn most_objects(bundle: &RegistryV1, options: &RenderOptions) -> usize {
    let csv = &bundle.csv;
    let versions = || bundle.crds.iter().map(|crd| user_roles::served(crd).len()).sum::<usize>();
    let user_roles = if options.user_roles { user_roles::ROLES_OF_A_VERSION * versions() } else { 0 };
    3 * (csv.permissions.len() + csv.cluster_permissions.len())
        + csv.webhooks.len()
        + csv.deployments.len()
        + bundle.crds.len()
        + bundle.others.len()
        + user_roles
}

/// Bytes of the CSV's annotations in all deployments: each gets a copy. The apiserver accepts 256 KiB for each.
const MAX_COPIED_ANNOTATIONS: usize = 32 << 20;
/// Bytes that an annotation takes beside its texts.
const ANNOTATION_BYTES: usize = 128;

fn copied_annotations(bundle: &RegistryV1) -> usize {
    let size = |(key, value): (&String, &String)| key.len() + value.len() + ANNOTATION_BYTES;
    let annotations: usize = bundle.csv.annotations.iter().map(size).sum();
    annotations.saturating_mul(bundle.csv.deployments.len())
}

struct Context<'a> {
    bundle: &'a RegistryV1,
    options: &'a RenderOptions,
    targets: &'a Targets,
    config: &'a Config,
    cancellation: &'a Cancellation,
}

impl Context<'_> {
    fn namespace(&self) -> &str {
        &self.options.install_namespace
    }

    fn check_cancelled(&self) -> Result<(), RenderError> {
        if self.cancellation.is_cancelled() { Err(RenderError::Cancelled) } else { Ok(()) }
    }
}

/// Refuses what cannot be installed at all. Rule: bundle-rendering §4.
fn gate(bundle: &RegistryV1, options: &RenderOptions) -> Result<(), RenderError> {
    let modes = &bundle.csv.install_modes;
    let usable = [InstallMode::AllNamespaces, InstallMode::SingleNamespace, InstallMode::OwnNamespace];
    let unsupported = if bundle.csv.owned_api_services > 0 {
        Unsupported::ApiServices
    } else if !bundle.csv.webhooks.is_empty() && options.cert_provider.is_none() {
        Unsupported::Webhooks
    } else if !options.gates.single_own_namespace && !modes.supports(InstallMode::AllNamespaces) {
        Unsupported::NotAllNamespaces
    } else if !usable.iter().any(|mode| modes.supports(*mode)) {
        Unsupported::NoInstallMode
    } else {
        return Ok(());
    };
    Err(RenderError::Unsupported(unsupported))
}

/// An object made here, which is always a JSON object.
fn object(value: serde_json::Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
