//!
//! Everything here is a value with a parser and a printer. Nothing here reads a file, knows a catalog, talks to a
//! cluster or asks what time it is; foreign YAML is the business of `olm-yaml`.

/// The conversions that serde uses for a type whose form is a text: from one by `FromStr`, into one as given.
macro_rules! text_form {
    ($type:ty, $error:ty, $into_text:expr) => {
        impl TryFrom<String> for $type {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                $into_text(value)
            }
        }
    };
}

mod cancellation;
mod digits;
pub mod dns;
pub mod go;
mod image;
mod kubernetes;
pub mod message;
mod names;
mod object;
pub mod openshift;
mod range;
mod release;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod version;
mod words;

pub use cancellation::{CancelOnDrop, Cancellation};
pub use digits::{digits, hex};
pub use image::{Digest, DigestAlgorithm, DigestError, ImageRef, ImageRefError, canonical_registry};
pub use kubernetes::{
    KubernetesVersion, KubernetesVersionError, ResolvedTemplate, lowest_kubernetes, resolve_image_template,
};
pub use names::{BundleName, CatalogName, ChannelName, EmptyName, PackageName, dns_subdomain};
pub use object::{Object, ObjectError, ObjectKey, member_map};
pub use range::{CheckError, Dialect, LooseVersion, LooseVersionError, Range, RangeError, check};
pub use release::{Release, ReleaseError, VersionRelease, VersionReleaseError};
pub use version::{Version, VersionError};
pub use words::UnknownWord;
