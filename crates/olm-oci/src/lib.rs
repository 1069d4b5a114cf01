//! Images: from a reference to verified files, and a store that keeps what was made of them.
//!
//! [`Puller`] sends requests to registries, [`Image`] returns files (streamed, unpacked or in memory), [`Store`] stores
//! results on disk by digest. The crate does not interpret the files: no catalogs, no bundles, no cluster. Foreign input is
//! hostile: every path, size, link and digest is checked while it streams, and [`Limits`] bound what it may cost.
//!
//! Rules: catalogd §5 (pulling), §4.6 (error texts), decisions 15 and 18.

mod access;
#[doc(hidden)]
pub mod bench;
mod blob;
mod config;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod http;
mod image;
mod layer;
mod limits;
mod manifest;
mod puller;
mod signature;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use config::{
    CertificateDirs, Config, Credential, Credentials, Keyring, Platform, Proxies, RegistriesFiles, Retries,
    SharedKeyring, Timeouts,
};
pub use error::{Error, ImageError, Retry};
pub use image::Image;
pub use layer::{Infallible, Selection, VisitError, Visitor};
pub use limits::Limits;
pub use manifest::Descriptor;
pub use olm_signature::SignaturePolicy;
pub use puller::{FoundManifest, Puller, parse_reference};
pub use signature::Verified;
pub use store::{Lease, Store, StoreError};
