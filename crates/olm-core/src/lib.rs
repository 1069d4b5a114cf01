//!
//! Everything here is a value with a parser and a printer. Nothing here reads a file, knows a catalog, talks to a
//! cluster or asks what time it is; foreign YAML is the business of `olm-yaml`.

pub mod go;
mod image;
mod names;
mod object;
pub mod openshift;
mod range;
mod release;
mod version;

pub use image::{Digest, DigestAlgorithm, DigestError, ImageRef, ImageRefError};
pub use names::{BundleName, CatalogName, ChannelName, EmptyName, PackageName};
pub use object::{Object, ObjectError, ObjectKey};
pub use range::{CheckError, Dialect, LooseVersion, LooseVersionError, Range, RangeError, check};
pub use release::{Release, ReleaseError, VersionRelease, VersionReleaseError};
pub use version::{Version, VersionError};
