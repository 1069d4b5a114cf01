//! What a file-based catalog says: its objects, their order, their meaning, and what is wrong with them.
//!
//! Pure: bytes come in, values go out. The crate does not know what is installed,
//! nor HTTP, nor registries. Rules: `fbc` §2–§8.

mod decode;
mod finding;
mod meta;
mod package;
pub mod property;
pub mod schema;
pub mod wire;

pub use decode::{Base64, Json};
pub use finding::{Finding, Severity, Subject};
pub use meta::{Head, Meta, head};
pub use package::PackageContents;
pub use property::Property;
pub use schema::{
    Bundle, Channel, ChannelEntry, DeprecationEntry, Deprecations, Icon, Package, Reference, RelatedImage,
};
