//! registry+v1 bundles: files in, Kubernetes objects out.
//!
//! [`RegistryV1`] reads the files of a bundle, [`render`] makes the objects that installing it creates. Everything here
//! is a function of its arguments: no cluster, no registry, no clock. The one function that opens files is
//! [`RegistryV1::load_dir`].
//!
//! ```
//! use olm_bundle::{RegistryV1, RenderOptions, render};
//!
//! let csv = "
//! apiVersion: operators.coreos.com/v1alpha1
//! kind: ClusterServiceVersion
//! metadata: {name: demo.v1.0.0}
//! spec:
//!   installModes: [{type: AllNamespaces, supported: true}]
//!   install:
//!     spec:
//!       clusterPermissions:
//!       - serviceAccountName: demo
//!         rules: [{apiGroups: [''], resources: [pods], verbs: [list]}]
//! ";
//! let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
//! let files = [("manifests/csv.yaml", csv), ("metadata/annotations.yaml", annotations)];
//! let bundle = RegistryV1::from_files(files).unwrap();
//! let objects = render(&bundle, &RenderOptions::new("demo-system")).unwrap();
//! let kinds: Vec<_> = objects.iter().map(|object| object.kind()).collect();
//! assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding"]);
//! ```

mod config;
mod csv;
mod documents;
mod error;
#[cfg(test)]
mod fixture;
mod inspect;
mod kinds;
mod kube;
mod lint;
mod modes;
mod names;
mod options;
mod properties;
mod reader;
mod registry;
mod render;
mod v1beta1;
mod validate;

pub use config::{
    Config, ConfigError, DEPLOYMENT_FIELDS, DeploymentConfig, DeploymentField, FieldTarget, config_schema,
    read_config,
};
pub use csv::{Csv, CsvDeployment, Permission, PolicyRule, Webhook, WebhookType};
pub use documents::BundleLimits;
pub use error::{RenderError, Unsupported};
pub use inspect::{ImageUse, Inspection, PermissionUse, inspect};
pub use kinds::{SUPPORTED_KINDS, Scope, SupportedKind};
pub use kube::ShapeError;
pub use lint::{Finding, Level, lint};
pub use modes::{InstallMode, InstallModes, Targets, TargetsError};
pub use options::{CertProvider, Gates, RenderOptions};
pub use properties::{PROPERTIES_ANNOTATION, PropertiesError};
pub use registry::{ParseError, RegistryV1};
pub use render::{
    CaTarget, FORMAT, Rendered, WebhookCertificate, called_services, certificates_to_issue, mounted_secrets,
    override_deployment, render, render_owned, render_with_report,
};
pub use validate::validate;
