//! Registry credentials, from docker and kubernetes configuration documents.
//!
//! Documents are merged in the order given, the later wins per key; lookup takes the longest matching prefix: the whole
//! repository path, then each parent, then the host (rule: catalogd §5.2). Unlike the reference nothing is dropped on
//! merging: `username`/`password`, `identitytoken` and `registrytoken` count (catalogd §12 row 19). Credential helpers
//! (`credHelpers`, `credsStore`) run programs and are not supported.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::GeneralPurposeConfig;
use olm_core::canonical_registry;
use serde::Deserialize;

use crate::error::ImageError;

/// The credential for one registry.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// User name and password, sent to the registry or to its token service.
    Basic {
        username: String,
        /// Password or access token.
        password: String,
    },
    /// An OAuth2 refresh token, exchanged at the token service.
    Identity(String),
    /// A bearer token for the registry itself.
    Registry(String),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Basic { .. } => "Basic(..)",
            Self::Identity(_) => "Identity(..)",
            Self::Registry(_) => "Registry(..)",
        })
    }
}

/// Credentials by registry or repository prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    entries: BTreeMap<String, Credential>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    auths: Option<BTreeMap<String, Entry>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

impl Keyring {
    /// No credentials at all.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a `.dockerconfigjson` document (or a `config.json`, or an `auth.json`): an object with `auths`.
    ///
    /// An entry whose `auth` is not base64 of `user:password` is logged and passed over, so that it costs no other registry.
    ///
    /// # Errors
    /// The document is not JSON of that shape; the texts never show the content.
    pub fn add_config_json(&mut self, document: &[u8]) -> Result<(), ImageError> {
        let document: Document = serde_json::from_slice(document).map_err(|error| malformed(&error))?;
        self.add(document.auths.unwrap_or_default());
        Ok(())
    }

    /// Adds a legacy `.dockercfg` document: the map itself.
    fn add_dockercfg(&mut self, document: &[u8]) -> Result<(), ImageError> {
        let entries: BTreeMap<String, Entry> =
            serde_json::from_slice(document).map_err(|error| malformed(&error))?;
        self.add(entries);
        Ok(())
    }

    /// Adds a pull secret: as it is called in errors, with the key of its document (`.dockerconfigjson` or `.dockercfg`) and the document.
    ///
    /// # Errors
    /// As [`Keyring::add_config_json`], with the name of the secret.
    pub fn add_pull_secret(
        &mut self,
        (secret, key, document): (impl fmt::Display, &str, &[u8]),
    ) -> Result<(), ImageError> {
        let added = match key {
            ".dockercfg" => self.add_dockercfg(document),
            _ => self.add_config_json(document),
        };
        added.map_err(|cause| ImageError::Config(format!("error reading pull secret {secret}: {cause}")))
    }

    /// Of pull secrets.
    ///
    /// # Errors
    /// As [`Keyring::add_pull_secret`].
    pub fn of_pull_secrets<'a>(
        secrets: impl IntoIterator<Item = (impl fmt::Display, &'a str, &'a [u8])>,
    ) -> Result<Self, ImageError> {
        let mut keyring = Self::new();
        secrets.into_iter().try_for_each(|secret| keyring.add_pull_secret(secret))?;
        Ok(keyring)
    }

    /// Is there nothing?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn add(&mut self, entries: BTreeMap<String, Entry>) {
        for (key, entry) in entries {
            if let Some(credential) = credential(&key, entry) {
                self.entries.insert(normalise(&key), credential);
            }
        }
    }

    /// The credential for `registry/repository`, by longest prefix.
    #[must_use]
    pub fn lookup(&self, registry: &str, repository: &str) -> Option<&Credential> {
        let registry = normalise(registry);
        let mut key = format!("{registry}/{repository}");
        loop {
            if let Some(found) = self.entries.get(&key) {
                return Some(found);
            }
            key.truncate(key.rfind('/')?);
        }
    }
}

fn malformed(error: &serde_json::Error) -> ImageError {
    // serde's text may quote a value; line and column are enough
    ImageError::Config(format!(
        "malformed registry credentials at line {} column {}",
        error.line(),
        error.column()
    ))
}

fn credential(key: &str, entry: Entry) -> Option<Credential> {
    let filled = |value: Option<String>| value.filter(|text| !text.is_empty());
    if let Some(token) = filled(entry.registrytoken) {
        return Some(Credential::Registry(token));
    }
    if let Some(token) = filled(entry.identitytoken) {
        return Some(Credential::Identity(token));
    }
    if let Some(auth) = filled(entry.auth) {
        let engine = base64::engine::GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let decoded = engine.decode(auth.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let Some((username, password)) = decoded.as_deref().and_then(|text| text.split_once(':')) else {
            tracing::warn!(
                registry = key,
                "auth in registry credentials is not base64 of user:password; the entry is passed over"
            );
            return None;
        };
        return Some(Credential::Basic {
            username: username.to_owned(),
            // docker pads with NUL bytes
            password: password.trim_matches('\0').to_owned(),
        });
    }
    let (username, password) = (filled(entry.username)?, filled(entry.password)?);
    Some(Credential::Basic { username, password })
}

/// Keys may be URLs with a version path, and write the registry in several ways.
fn normalise(key: &str) -> String {
    let stripped = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://"));
    let key = match stripped {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => key.trim_end_matches('/'),
    };
    let (host, rest) = key.split_once('/').map_or((key, None), |(host, rest)| (host, Some(rest)));
    let host = canonical_registry(host);
    match rest {
        // `docker login` of old wrote index.docker.io/v1/
        None | Some("v1" | "v2") => host,
        Some(rest) => format!("{host}/{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn basic(username: &str, password: &str) -> Option<Credential> {
        Some(Credential::Basic { username: username.into(), password: password.into() })
    }

    #[test]
    fn keyring_prefers_longest_prefix() {
        let mut keys = Keyring::new();
        keys.add_config_json(
            br#"{"auths":{
                "quay.io": {"auth":"aG9zdDpo"},
                "quay.io/team": {"auth":"dGVhbTp0"},
                "quay.io/team/app": {"username":"app","password":"a:b"},
                "https://index.docker.io/v1/": {"auth":"aHViOmg="},
                "https://registry.test:5000/v2/": {"auth":"bDo="},
                "Spelt.Test:443": {"auth":"bDo="},
                "empty.test": {}
            }}"#,
        )
        .unwrap();
        for (registry, repository, want) in [
            ("quay.io", "other/x", basic("host", "h")),
            ("quay.io", "team/x", basic("team", "t")),
            ("quay.io", "teams/x", basic("host", "h")),
            ("quay.io", "team/app", basic("app", "a:b")),
            ("docker.io", "library/x", basic("hub", "h")),
            ("registry.test:5000", "x", basic("l", "")),
            ("registry.test", "x", None),
            ("spelt.test", "x", basic("l", "")),
            ("empty.test", "x", None),
        ] {
            assert_eq!(keys.lookup(registry, repository).cloned(), want, "{registry}/{repository}");
        }
    }

    #[test]
    fn keyring_later_document_overrides_per_key() {
        let mut keys = Keyring::new();
        keys.add_dockercfg(br#"{"a.test":{"auth":"MTox","email":"x"},"b.test":{"identitytoken":"I"}}"#)
            .unwrap();
        keys.add_config_json(br#"{"auths":{"a.test":{"auth":"Mjoy"},"c.test":{"registrytoken":"R"}}}"#)
            .unwrap();
        assert_eq!(keys.lookup("a.test", "x").cloned(), basic("2", "2"));
        assert_eq!(keys.lookup("b.test", "x"), Some(&Credential::Identity("I".into())));
        assert_eq!(keys.lookup("c.test", "x"), Some(&Credential::Registry("R".into())));
        keys.add_dockercfg(br#"{"a.test":{"auth":"Mzoz"}}"#).unwrap();
        assert_eq!(keys.lookup("a.test", "x").cloned(), basic("3", "3"));
    }

    #[test]
    fn keyring_of_pull_secrets_reads_both_kinds() {
        let (old, new) = (br#"{"a.test":{"auth":"MTox"}}"#, br#"{"auths":{"b.test":{"auth":"Mjoy"}}}"#);
        let keys = Keyring::of_pull_secrets([
            ("ns/old", ".dockercfg", &old[..]),
            ("ns/new", ".dockerconfigjson", &new[..]),
        ])
        .unwrap();
        assert_eq!(keys.lookup("a.test", "x").cloned(), basic("1", "1"));
        assert_eq!(keys.lookup("b.test", "x").cloned(), basic("2", "2"));
        let broken = Keyring::of_pull_secrets([("ns/broken", ".dockercfg", &b"{"[..])]).unwrap_err();
        let want = "error reading pull secret ns/broken: malformed registry credentials at line 1 column 1";
        assert_eq!(broken.to_string(), want);
    }

    #[test]
    fn keyring_passes_over_undecodable_entries() {
        let mut keys = Keyring::new();
        keys.add_config_json(
            br#"{"auths":{"a.test":{"auth":"x"},"b.test":{"auth":"dTpw"},"c.test":{"auth":"dXNlcg=="}}}"#,
        )
        .unwrap();
        for (registry, want) in [("a.test", None), ("b.test", basic("u", "p")), ("c.test", None)] {
            assert_eq!(keys.lookup(registry, "x").cloned(), want, "{registry}");
        }
    }

    #[test]
    fn keyring_errors_never_show_secrets() {
        let mut keys = Keyring::new();
        for document in [
            r#"{"auths":{"a.test":{"auth":12345}}}"#,
            r#"{"auths":{"a.test":{"password":["hunter2"]}}}"#,
            "hunter2",
        ] {
            let text = keys.add_config_json(document.as_bytes()).unwrap_err().to_string();
            assert!(!text.contains("hunter2") && !text.contains("12345"), "{text}");
        }
        keys.add_dockercfg(br#"{"b.test":{"username":"u","password":"hunter2"}}"#).unwrap();
        assert!(!format!("{keys:?}").contains("hunter2"));
    }
}
