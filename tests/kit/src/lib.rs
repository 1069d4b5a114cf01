//! A real local control plane, a real OCI registry, image builders, process runners and waits, for tests and the demo.
//!
//! Everything listens on loopback, lives in temporary folders and ends with the process that started it, also when that
//! panics or is killed (see [`Child`]). The programs come from `make tools`; without make they are built at first use.
//!
//! # A test against the apiserver
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use olm_kit::{Cluster, Wait, unique};
//! let cluster = Cluster::shared().await?;          // one for the whole run
//! let client = cluster.client().await?;            // one per test
//! let namespace = cluster.namespace("my-test").await?;
//! cluster.install_crds().await?;                   // manifests/crds, as often as you like
//! cluster.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: default}").await?;
//! # Ok(()) }
//! ```
//!
//! [`Cluster::start`] gives a test its own control plane; [`Options`] switches the audit log on
//! ([`Cluster::audit`] lists every request) or leaves the controllers out.
//!
//! # Images and registries
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use olm_kit::{BundleImage, CatalogImage, Entry, Registry};
//! let registry = Registry::shared().await?;        // TLS from Ca::shared(); Registry::start_with_auth() wants a password
//! let mut catalog = CatalogImage::new();
//! let mut package = olm_kit::Package::new("demo");
//! for version in ["1.0.0", "1.1.0"] {
//!     let image = BundleImage::new("demo", version).image();
//!     let pushed = registry.push("demo/bundle", &format!("v{version}"), &image).await?;
//!     package = package.bundle(version, &pushed.by_digest());
//! }
//! package = package.channel("stable", [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0")]);
//! catalog = catalog.package(&package);
//! let pushed = registry.push("demo/catalog", "latest", &catalog.image()).await?;
//! # let _ = pushed; Ok(()) }
//! ```
//!
//! # Our own processes
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use olm_kit::{Cluster, Program, Stack};
//! let stack = Stack::shared().await?;              // own cluster, registry, catalogd and operator-controller per test program
//! let cluster = Cluster::start().await?;           // or: by hand
//! let mut catalogd = Program::catalogd(&cluster)?.start().await?;
//! catalogd.kill9();
//! catalogd.restart().await?;
//! # let _ = stack; Ok(()) }
//! ```

mod audit;
mod child;
mod cluster;
mod control_plane;
pub mod image;
mod kubeconfig;
pub mod node;
mod pki;
mod ports;
mod process;
pub mod registry;
mod run_dir;
pub mod sample;
mod signing;
mod stack;
mod tools;
mod wait;

pub use audit::{AuditTail, Request};
pub use child::{Child, ForeignProcess, Holding, Memory, tail, wait_for_exit};
pub use cluster::Cluster;
pub use control_plane::{ControlPlane, Options};
pub use image::{BundleImage, CatalogImage, Crd, Entry, Image, Index, Layer, Package};
pub use pki::{Ca, Identity};
pub use ports::{free_port, unique};
pub use process::{CLASSIC_NAMESPACE, Process, Program, SYSTEM_NAMESPACE, built};
pub use registry::{PASSWORD, Pushed, Registry, USER};
pub use run_dir::RunDir;
pub use signing::Signer;
pub use stack::{LogsOnPanic, Stack};
pub use tools::{Tools, repository, shared_material, without_build_variables};
pub use wait::{Condition, Wait, condition, eventually, still, wait_for};

/// Chooses the TLS provider of this process, once.
pub(crate) fn install_crypto() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
