//! Names that must not be mixed up: package, channel, bundle, catalog.
//!
//! Catalogs in the wild use free text (spaces, upper case, a leading `--`), so the only invariant is "not empty".
//! Stricter rules belong to `olm-fbc`'s validation, which reports them instead of refusing to read.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{what} name must not be empty")]
pub struct EmptyName {
    what: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        ///
        /// Invariant: not empty. Ordered and hashed as its text.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = EmptyName;

            fn from_str(text: &str) -> Result<Self, EmptyName> {
                Self::try_from(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = EmptyName;

            fn try_from(text: String) -> Result<Self, EmptyName> {
                if text.is_empty() { Err(EmptyName { what: $what }) } else { Ok(Self(text)) }
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// Name of a package of a catalog.
    PackageName,
    "package"
);
name!(
    /// Name of a channel of a package.
    ChannelName,
    "channel"
);
name!(
    /// Name of a bundle of a package. A bundle name may occur in `replaces` and `skips` without any bundle behind it.
    BundleName,
    "bundle"
);
name!(
    /// Name of a ClusterCatalog.
    CatalogName,
    "catalog"
);

/// A bundle name as `status.install.bundle.name` can hold it, which must be a DNS subdomain: the name itself if it is one,
/// otherwise in lower case with `-` for every other character. Text of which nothing is left is `bundle`.
#[must_use]
pub fn dns_subdomain(name: &str) -> Cow<'_, str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if crate::dns::is_subdomain(name) {
        return Cow::Borrowed(name);
    }
    let lower = name.to_ascii_lowercase();
    let labels = lower.split('.').map(|label| label.replace(|c| !allowed(c), "-"));
    let labels: Vec<String> =
        labels.map(|label| label.trim_matches('-').to_owned()).filter(|label| !label.is_empty()).collect();
    Cow::Owned(if labels.is_empty() { "bundle".to_owned() } else { labels.join(".") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_rejects_only_the_empty_text() {
        for text in ["stable", "--default-channel", "A b/c", "ünïcode"] {
            assert_eq!(text.parse::<ChannelName>().unwrap().to_string(), text);
        }
        assert_eq!("".parse::<ChannelName>().unwrap_err().to_string(), "channel name must not be empty");
    }

    /// rule: operator-controller §9.1 row 29
    #[test]
    fn dns_subdomain_table() {
        for (name, want) in [
            ("argocd-operator.v0.8.0", "argocd-operator.v0.8.0"),
            ("demo.v1.0.0+2", "demo.v1.0.0-2"),
            ("Demo_Operator.v1", "demo-operator.v1"),
            ("-a.b-", "a.b"),
            ("a..b", "a.b"),
            ("ü.v1", "v1"),
            ("++", "bundle"),
        ] {
            assert_eq!(dns_subdomain(name), want, "{name}");
        }
    }

    #[test]
    fn name_serializes_as_text() {
        let name: PackageName = serde_json::from_str("\"argo\"").unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"argo\"");
        assert!(serde_json::from_str::<PackageName>("\"\"").is_err());
    }
}
