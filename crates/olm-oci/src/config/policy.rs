//! Which images may be used at all.
//!
//! Decision 18: either everything, said by name (`insecureAcceptAnything`), or a policy.json (containers-policy.json(5))
//! of `insecureAcceptAnything` and `reject` requirements. Signature requirements are recognised and refused as not
//! implemented: a policy that asks for a check is never answered with "yes" without one. A file that cannot be read is
//! an error. The file is read again for every pull.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use olm_core::ImageRef;
use serde::Deserialize;

use crate::error::Fault;

/// The name that switches checks off.
pub const ACCEPT_ANYTHING: &str = "insecureAcceptAnything";

/// Where the policy comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SignaturePolicy {
    /// Every image is accepted, signed or not.
    #[default]
    AcceptAnything,
    /// A policy.json.
    File(PathBuf),
}

impl FromStr for SignaturePolicy {
    type Err = std::convert::Infallible;

    /// The value of `--signature-policy`: the name [`ACCEPT_ANYTHING`], else a path.
    fn from_str(value: &str) -> Result<Self, Self::Err> {
        Ok(if value == ACCEPT_ANYTHING { Self::AcceptAnything } else { Self::File(value.into()) })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    default: Vec<Requirement>,
    #[serde(default)]
    transports: BTreeMap<String, BTreeMap<String, Vec<Requirement>>>,
}

#[derive(Debug, Clone, Deserialize)]
struct Requirement {
    #[serde(rename = "type")]
    kind: String,
}

/// A loaded policy.
#[derive(Debug)]
pub(crate) enum Policy {
    AcceptAnything,
    Rules { default: Vec<Rule>, docker: BTreeMap<String, Vec<Rule>>, origin: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rule {
    Accept,
    Reject,
    Signed(String),
}

impl Policy {
    pub(crate) fn load(source: &SignaturePolicy) -> Result<Self, Fault> {
        let SignaturePolicy::File(path) = source else { return Ok(Self::AcceptAnything) };
        let bytes = std::fs::read(path).map_err(|source| Fault::Io { path: path.clone(), source })?;
        Self::parse(&bytes, &path.display().to_string())
    }

    fn parse(bytes: &[u8], origin: &str) -> Result<Self, Fault> {
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| Fault::Config(format!("invalid policy in {origin}: {error}")))?;
        let checked = |list: Vec<Requirement>, scope: &str| -> Result<Vec<Rule>, Fault> {
            if list.is_empty() {
                return Err(Fault::Config(format!(
                    "invalid policy in {origin}: no requirements for {scope}"
                )));
            }
            list.into_iter()
                .map(|requirement| match requirement.kind.as_str() {
                    ACCEPT_ANYTHING => Ok(Rule::Accept),
                    "reject" => Ok(Rule::Reject),
                    "signedBy" | "sigstoreSigned" | "signedBaseLayer" => Ok(Rule::Signed(requirement.kind)),
                    other => Err(Fault::Config(format!(
                        "invalid policy in {origin}: unknown requirement type {other:?} for {scope}"
                    ))),
                })
                .collect()
        };
        let default = checked(document.default, "default")?;
        let mut docker = BTreeMap::new();
        for (transport, scopes) in document.transports {
            for (scope, list) in scopes {
                let list = checked(list, &format!("{transport} {scope:?}"))?;
                if transport == "docker" {
                    docker.insert(scope, list);
                }
            }
        }
        Ok(Self::Rules { default, docker, origin: origin.to_owned() })
    }

    /// May this image be used? All requirements of the most specific scope must hold.
    pub(crate) fn check(&self, reference: &ImageRef) -> Result<(), Fault> {
        let Self::Rules { default, docker, origin } = self else { return Ok(()) };
        let rules = scopes(reference).iter().find_map(|scope| docker.get(scope)).unwrap_or(default);
        for rule in rules {
            match rule {
                Rule::Accept => {}
                Rule::Reject => {
                    return Err(Fault::Config(format!(
                        "Source image rejected: Running image docker://{reference} is rejected by policy."
                    )));
                }
                Rule::Signed(kind) => {
                    return Err(Fault::Config(format!(
                        "Source image rejected: the policy {origin} asks for {kind} for docker://{reference}, \
                         and signature verification is not implemented"
                    )));
                }
            }
        }
        Ok(())
    }
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
    for (at, _) in host.match_indices('.') {
        scopes.push(format!("*{}", &host[at..]));
    }
    scopes.push(String::new());
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"{
        "default": [{"type":"reject"}],
        "transports": {
            "docker": {
                "quay.io/good": [{"type":"insecureAcceptAnything"}],
                "quay.io/good/evil": [{"type":"reject"}],
                "quay.io/good/one:v1": [{"type":"sigstoreSigned","keyPath":"/k"}],
                "*.corp.test": [{"type":"insecureAcceptAnything"}]
            },
            "docker-daemon": {"": [{"type":"insecureAcceptAnything"}]}
        }
    }"#;

    #[test]
    fn the_most_specific_scope_decides() {
        let policy = Policy::parse(POLICY.as_bytes(), "policy.json").unwrap();
        for (reference, want) in [
            ("quay.io/good/x:1", None),
            ("quay.io/goods/x:1", Some("Running image docker://quay.io/goods/x:1 is rejected by policy.")),
            ("quay.io/good/evil:1", Some("is rejected by policy")),
            ("quay.io/good/one:v1", Some("the policy policy.json asks for sigstoreSigned")),
            ("quay.io/good/one:v2", None),
            ("a.corp.test/x:1", None),
            ("corp.test/x:1", Some("is rejected by policy")),
        ] {
            let got = policy.check(&reference.parse().unwrap());
            match want {
                None => assert!(got.is_ok(), "{reference}: {got:?}"),
                Some(want) => {
                    let text = got.unwrap_err().to_string();
                    assert!(text.contains(want), "{reference}: {text}");
                }
            }
        }
    }

    #[test]
    fn an_unreadable_policy_is_never_silence() {
        let missing = SignaturePolicy::File("/nonexistent/policy.json".into());
        assert!(Policy::load(&missing).is_err());
        for (text, want) in [
            ("{}", "missing field `default`"),
            (r#"{"default":[]}"#, "no requirements for default"),
            (r#"{"default":[{"type":"acceptMaybe"}]}"#, "unknown requirement type \"acceptMaybe\""),
            (r#"{"default":[{"type":"reject"}],"transport":{}}"#, "unknown field"),
            ("reject", "invalid policy in p.json"),
        ] {
            let got = Policy::parse(text.as_bytes(), "p.json").unwrap_err().to_string();
            assert!(got.contains(want), "{text}: {got}");
        }
        assert_eq!("insecureAcceptAnything".parse(), Ok(SignaturePolicy::AcceptAnything));
    }
}
