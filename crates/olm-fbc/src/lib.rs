//! File-based catalogs: their objects, their order, their meaning, and findings about them.
//!
//! Pure: bytes come in, values go out. Only [`load_dir`] opens files. The crate does not know what is installed,
//! nor HTTP, nor registries. Rules: fbc §2 to §8, catalogd §6.

mod catalog;
mod decode;
mod finding;
mod index;
pub mod indexignore;
mod ingest;
mod manifest;
mod meta;
mod package;
pub mod property;
pub mod schema;
mod summary;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod validate;

pub use catalog::{CONFIGS_LABEL, Catalog, load_dir, load_dir_leniently, load_files, load_files_leniently};
pub use decode::{Base64, Json};
pub use finding::{FilePosition, Finding, Severity, Subject};
pub use index::{Index, IndexBuilder, IndexError, Located, Query};
pub use ingest::{FileError, FileWarning, Ingest, IngestError, IngestLimits, Ingested, Summary, WarningKind};
pub use manifest::Manifests;
pub use meta::{Head, Meta, head};
pub use olm_core::{CancelOnDrop, Cancellation};
pub use olm_yaml::ParseError;
pub use package::{PackageContents, PackageLimitError};
pub use property::Property;
pub use schema::{
    Bundle, Channel, ChannelEntry, DeprecationEntry, Deprecations, Icon, Package, Reference, RelatedImage,
};
pub use summary::{
    BundleSummary, ChannelSummary, IconReference, PackageSummary, ProvidedApi, Summariser, summarise, summary,
};
pub use validate::{file_findings, tree, validate};
