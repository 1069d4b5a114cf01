//! The policy file, containers-policy.json(5): which images need which signatures.
//!
//! Read strictly: an unknown or repeated field, an unreadable key, a scope that can match nothing is an error that names
//! it. Keys and roots are loaded with the file, so that a mistake in one shows at start and not with the first image that
//! needs it. The file is read again for every check; [`Policy::fingerprint`] is equal when it has not changed.
//!
//! Additions of ours: `fulcio.subjectURI` beside `subjectEmail`, and the identity `matchDigest`. `signedBy` (GPG) is
//! recognised, and images that need it are refused.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use olm_core::{ImageRef, canonical_registry, hex};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sha2::Digest as _;

use crate::certificate::{Roots, Subject, certificates};
use crate::identity::{Identity, Raw as RawIdentity};
use crate::keys::PublicKey;

/// The name that switches checks off.
pub const ACCEPT_ANYTHING: &str = "insecureAcceptAnything";

/// Where the policy comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Every image is accepted, signed or not.
    #[default]
    AcceptAnything,
    /// A policy.json, as containers-policy.json(5) describes it.
    File(PathBuf),
}

impl FromStr for SignaturePolicy {
    type Err = std::convert::Infallible;

    /// The value of `--signature-policy`: the name [`ACCEPT_ANYTHING`], else a path.
    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Ok(if value == ACCEPT_ANYTHING { Self::AcceptAnything } else { Self::File(value.into()) })
    }
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The policy, or a key or certificate that it names, is invalid or too large.
    #[error("{0}")]
    Invalid(String),
    /// A file cannot be read.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
}

/// Opens a file that the policy names.
type Reader<'r> = &'r mut dyn FnMut(&Path) -> Result<Vec<u8>, PolicyError>;

/// Largest policy, key and certificate file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Largest number of keys in one requirement.
const MAX_KEYS: usize = 64;
/// Counts the versions of the rules by which signatures are judged; with a new one, images are verified again.
const RULES: u8 = 2;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Vec<RawRequirement>,
    #[serde(default)]
    transports: Unique<Unique<Vec<RawRequirement>>>,
}

/// A map without repeated keys.
struct Unique<V>(BTreeMap<String, V>);

impl<V> Default for Unique<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<V>(std::marker::PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Entries<V> {
            type Value = BTreeMap<String, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry::<String, V>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format!("{key:?} is there twice")));
                    }
                    map.insert(key, value);
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(Entries(std::marker::PhantomData)).map(Self)
    }
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum RawRequirement {
    #[serde(rename = "insecureAcceptAnything")]
    Accept(Nothing),
    #[serde(rename = "reject")]
    Reject(Nothing),
    #[serde(rename = "signedBy")]
    Gpg(#[expect(dead_code, reason = "only recognised")] RawGpg),
    #[serde(rename = "signedBaseLayer")]
    BaseLayer(IgnoredAny),
    #[serde(rename = "sigstoreSigned")]
    Sigstore(Box<RawSigstore>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "read only to be sure that it is well-formed")]
struct RawGpg {
    key_type: String,
    key_path: Option<PathBuf>,
    key_paths: Option<Vec<PathBuf>>,
    key_data: Option<String>,
    signed_identity: Option<RawIdentity>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawSigstore {
    key_path: Option<PathBuf>,
    key_paths: Option<Vec<PathBuf>>,
    key_data: Option<String>,
    key_datas: Option<Vec<String>>,
    fulcio: Option<RawFulcio>,
    pki: Option<RawPki>,
    rekor_public_key_path: Option<PathBuf>,
    rekor_public_key_paths: Option<Vec<PathBuf>>,
    rekor_public_key_data: Option<String>,
    rekor_public_key_datas: Option<Vec<String>>,
    signed_identity: Option<RawIdentity>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawFulcio {
    ca_path: Option<PathBuf>,
    ca_data: Option<String>,
    oidc_issuer: Option<String>,
    subject_email: Option<String>,
    #[serde(rename = "subjectURI")]
    subject_uri: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawPki {
    ca_roots_path: Option<PathBuf>,
    ca_roots_data: Option<String>,
    ca_intermediates_path: Option<PathBuf>,
    ca_intermediates_data: Option<String>,
    subject_email: Option<String>,
    subject_hostname: Option<String>,
}

/// A loaded policy.
#[derive(Debug)]
pub struct Policy {
    /// The file.
    pub(crate) origin: String,
    /// Equal when file, keys and roots have the same bytes.
    pub(crate) fingerprint: String,
    default: Vec<Requirement>,
    docker: BTreeMap<String, Vec<Requirement>>,
}

/// One thing that an image must fulfil.
#[derive(Debug)]
pub(crate) enum Requirement {
    Accept,
    Reject,
    /// The kind of a requirement that cannot be checked.
    Unsupported(&'static str),
    Sigstore(Box<Sigstore>),
}

/// A signature as cosign makes them.
#[derive(Debug)]
pub struct Sigstore {
    pub(crate) signer: Signer,
    /// Keys of transparency logs; one must have promised the entry, if there are any.
    pub(crate) rekor: Vec<PublicKey>,
    pub(crate) identity: Identity,
}

/// Who may have signed.
#[derive(Debug)]
pub(crate) enum Signer {
    /// Any of these.
    Keys(Vec<PublicKey>),
    /// Whom an authority gave a certificate. `issuer`: the identity provider that Fulcio asked; such certificates need a log.
    Certified { roots: Roots, issuer: Option<String>, subject: Subject },
}

/// The part of the policy that applies to one image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ruling<'p> {
    /// The scope that decided, with the registry as references write it.
    pub(crate) scope: Option<&'p str>,
    pub(crate) requirements: &'p [Requirement],
}

impl fmt::Display for Ruling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            None => f.write_str("the default"),
            Some("") => f.write_str("the default for docker"),
            Some(scope) => write!(f, "the scope {scope:?}"),
        }
    }
}

impl Policy {
    /// Reads the policy with all that it names. `None`: there is none, everything is accepted.
    ///
    /// # Errors
    /// What cannot be read, or is invalid.
    pub fn load(source: &SignaturePolicy) -> Result<Option<Self>, PolicyError> {
        let SignaturePolicy::File(path) = source else { return Ok(None) };
        let bytes = read_file(path)?;
        let base = path.parent().unwrap_or(Path::new("."));
        Self::parse(&bytes, &path.display().to_string(), &mut |named| read_file(&base.join(named))).map(Some)
    }

    /// `read` opens the files that the policy names.
    pub(crate) fn parse(bytes: &[u8], origin: &str, read: Reader<'_>) -> Result<Self, PolicyError> {
        let invalid = |why: String| PolicyError::Invalid(format!("invalid policy in {origin}: {why}"));
        let document: Document = serde_json::from_slice(bytes).map_err(|error| invalid(error.to_string()))?;
        let mut hash = sha2::Sha256::new();
        hash.update([RULES]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
        let mut read = |path: &Path| {
            let content = read(path)?;
            hash.update((content.len() as u64).to_be_bytes());
            hash.update(&content);
            Ok(content)
        };
        let mut built = |list: Vec<RawRequirement>, scope: &str| {
            if list.is_empty() {
                return Err(invalid(format!("no requirements for {scope}")));
            }
            list.into_iter()
                .map(|raw| Requirement::build(raw, &mut read))
                .collect::<Result<Vec<_>, String>>()
                .map_err(|why| invalid(format!("{scope}: {why}")))
        };
        let default = built(document.default, "default")?;
        let mut docker = BTreeMap::new();
        for (transport, scopes) in document.transports.0 {
            for (scope, list) in scopes.0 {
                // images come from registries only; scopes of other transports need no keys
                if transport == "docker" {
                    matchable(&scope).map_err(|why| invalid(format!("docker {scope:?}: {why}")))?;
                    let list = built(list, &format!("docker {scope:?}"))?;
                    let canonical = canonical_scope(&scope);
                    if docker.insert(canonical.clone(), list).is_some() {
                        return Err(invalid(format!("docker {scope:?} is there twice, as {canonical:?}")));
                    }
                } else if list.is_empty() {
                    return Err(invalid(format!("no requirements for {transport} {scope:?}")));
                }
            }
        }
        Ok(Self { origin: origin.to_owned(), fingerprint: hex(&hash.finalize()), default, docker })
    }

    /// The most specific scope decides, alone.
    pub(crate) fn ruling(&self, image: &ImageRef) -> Ruling<'_> {
        let decided = scopes(image).into_iter().find_map(|scope| self.docker.get_key_value(&scope));
        match decided {
            Some((scope, requirements)) => Ruling { scope: Some(scope), requirements },
            None => Ruling { scope: None, requirements: &self.default },
        }
    }
}

impl Requirement {
    fn build(raw: RawRequirement, read: Reader<'_>) -> Result<Self, String> {
        Ok(match raw {
            RawRequirement::Accept(Nothing {}) => Self::Accept,
            RawRequirement::Reject(Nothing {}) => Self::Reject,
            RawRequirement::Gpg(_) => Self::Unsupported("signedBy"),
            RawRequirement::BaseLayer(_) => Self::Unsupported("signedBaseLayer"),
            RawRequirement::Sigstore(raw) => Self::Sigstore(Box::new(Sigstore::build(*raw, read)?)),
        })
    }
}

/// Bytes with where they come from.
type Named = (String, Vec<u8>);

impl Sigstore {
    fn build(raw: RawSigstore, read: Reader<'_>) -> Result<Self, String> {
        let RawSigstore { key_path, key_paths, key_data, key_datas, fulcio, pki, signed_identity, .. } = raw;
        let keys = sources("key", key_path, key_paths, key_data, key_datas, read)?;
        let rekor = sources(
            "rekorPublicKey",
            raw.rekor_public_key_path,
            raw.rekor_public_key_paths,
            raw.rekor_public_key_data,
            raw.rekor_public_key_datas,
            read,
        )?;
        let rekor = public_keys(rekor.unwrap_or_default())?;
        let signer = match (keys, fulcio, pki) {
            (Some(keys), None, None) => Signer::Keys(public_keys(keys)?),
            (None, Some(fulcio), None) => {
                if rekor.is_empty() {
                    return Err(
                        "fulcio needs rekorPublicKeyPath or rekorPublicKeyData: its certificates live for \
                                minutes, and only the log shows when one was used"
                            .into(),
                    );
                }
                fulcio.build(read)?
            }
            (None, None, Some(pki)) => pki.build(read)?,
            _ => {
                return Err(
                    "sigstoreSigned needs exactly one of keyPath, keyPaths, keyData, keyDatas, fulcio and pki".into()
                );
            }
        };
        let identity = signed_identity.map_or(Ok(Identity::RepoDigestOrExact), Identity::try_from)?;
        Ok(Self { signer, rekor, identity })
    }
}

impl RawFulcio {
    fn build(self, read: Reader<'_>) -> Result<Signer, String> {
        let Some((name, pem)) = single_source("fulcio.ca", self.ca_path, self.ca_data, read)? else {
            return Err("fulcio needs caPath or caData".into());
        };
        let roots = Roots::new(certificates(&pem, &name)?, Vec::new(), &name)?;
        let issuer = self.oidc_issuer.filter(|issuer| !issuer.is_empty()).ok_or("fulcio needs oidcIssuer")?;
        let subject = match (self.subject_email, self.subject_uri) {
            (Some(email), None) if !email.is_empty() => Subject::Email(email),
            (None, Some(uri)) if !uri.is_empty() => Subject::Uri(uri),
            _ => return Err("fulcio needs exactly one of subjectEmail and subjectURI".into()),
        };
        Ok(Signer::Certified { roots, issuer: Some(issuer), subject })
    }
}

impl RawPki {
    fn build(self, read: Reader<'_>) -> Result<Signer, String> {
        let Some((name, pem)) = single_source("pki.caRoots", self.ca_roots_path, self.ca_roots_data, read)?
        else {
            return Err("pki needs caRootsPath or caRootsData".into());
        };
        let (path, data) = (self.ca_intermediates_path, self.ca_intermediates_data);
        let between = match single_source("pki.caIntermediates", path, data, read)? {
            Some((name, pem)) => certificates(&pem, &name)?,
            None => Vec::new(),
        };
        let roots = Roots::new(certificates(&pem, &name)?, between, &name)?;
        let subject = match (self.subject_email, self.subject_hostname) {
            (Some(email), None) if !email.is_empty() => Subject::Email(email),
            (None, Some(host)) if !host.is_empty() => Subject::Hostname(host),
            _ => return Err("pki needs exactly one of subjectEmail and subjectHostname".into()),
        };
        Ok(Signer::Certified { roots, issuer: None, subject })
    }
}

fn public_keys(sources: Vec<Named>) -> Result<Vec<PublicKey>, String> {
    if sources.len() > MAX_KEYS {
        return Err(format!("more than {MAX_KEYS} keys"));
    }
    sources.into_iter().map(|(name, pem)| PublicKey::from_pem(&pem, &name)).collect()
}

/// The contents of at most one of `fieldPath`, `fieldPaths`, `fieldData` and `fieldDatas`.
fn sources(
    field: &str,
    path: Option<PathBuf>,
    paths: Option<Vec<PathBuf>>,
    data: Option<String>,
    datas: Option<Vec<String>>,
    read: Reader<'_>,
) -> Result<Option<Vec<Named>>, String> {
    let mut given = Vec::new();
    let mut file = |path: PathBuf| {
        let content = read(&path).map_err(|error| error.to_string())?;
        Ok::<Named, String>((path.display().to_string(), content))
    };
    if let Some(path) = path {
        given.push((format!("{field}Path"), vec![file(path)?]));
    }
    if let Some(paths) = paths {
        given.push((format!("{field}Paths"), paths.into_iter().map(&mut file).collect::<Result<_, _>>()?));
    }
    if let Some(data) = data {
        let name = format!("{field}Data");
        given.push((name.clone(), vec![decoded(&name, &data)?]));
    }
    if let Some(datas) = datas {
        let name = format!("{field}Datas");
        let number = |(index, data): (usize, &String)| decoded(&format!("{name}[{index}]"), data);
        given.push((name.clone(), datas.iter().enumerate().map(number).collect::<Result<_, _>>()?));
    }
    match <[_; 1]>::try_from(given) {
        Ok([(name, list)]) if list.is_empty() => Err(format!("{name} is empty")),
        Ok([(_, list)]) => Ok(Some(list)),
        Err(none) if none.is_empty() => Ok(None),
        Err(several) => {
            let names: Vec<String> = several.into_iter().map(|(name, _)| name).collect();
            Err(format!("only one of {} is allowed", names.join(" and ")))
        }
    }
}

fn single_source(
    field: &str,
    path: Option<PathBuf>,
    data: Option<String>,
    read: Reader<'_>,
) -> Result<Option<Named>, String> {
    Ok(sources(field, path, None, data, None, read)?.and_then(|list| list.into_iter().next()))
}

fn decoded(name: &str, data: &str) -> Result<Named, String> {
    match STANDARD.decode(data) {
        Ok(bytes) => Ok((name.to_owned(), bytes)),
        Err(error) => Err(format!("{name} is no base64: {error}")),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, PolicyError> {
    let io = |source| PolicyError::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(io)?.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        let path = path.display();
        return Err(PolicyError::Invalid(format!("{path} exceeds the limit of {MAX_FILE} bytes")));
    }
    Ok(bytes)
}

/// A scope with a slip of the pen would leave images to a more general one, without a word.
fn matchable(scope: &str) -> Result<(), String> {
    let plain = scope.strip_prefix("*.").unwrap_or(scope);
    let is_wildcard = plain != scope;
    let mistakes = [
        (plain.contains('*'), "a * is only possible as *. at the beginning"),
        (is_wildcard && plain.contains(['/', ':']), "a scope with *. is a domain, without port and path"),
        (scope.contains("://"), "leave out the scheme"),
        (scope.ends_with('/'), "leave out the slash at the end"),
        (scope.contains(char::is_whitespace), "leave out the blanks"),
    ];
    match mistakes.iter().find(|(made, _)| *made) {
        Some((_, fix)) => Err(format!("this scope matches no image; {fix}")),
        None => Ok(()),
    }
}

/// The scope with the registry as references write it.
fn canonical_scope(scope: &str) -> String {
    if scope.starts_with('*') {
        return scope.to_ascii_lowercase();
    }
    let (registry, path) = scope.find('/').map_or((scope, ""), |slash| scope.split_at(slash));
    format!("{}{path}", canonical_registry(registry))
}

/// From the most specific to the least: the whole reference, repository, its parents, host, wildcards of the host,
/// the transport's own default.
fn scopes(reference: &ImageRef) -> Vec<String> {
    let mut scopes = vec![reference.to_string()];
    let mut name = reference.name();
    loop {
        scopes.push(name.clone());
        match name.rfind('/') {
            Some(slash) => name.truncate(slash),
            None => break,
        }
    }
    let host = reference.registry();
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    for (at, _) in host.match_indices('.') {
        scopes.push(format!("*{}", &host[at..]));
    }
    scopes.push(String::new());
    scopes
}

#[cfg(test)]
mod tests;
