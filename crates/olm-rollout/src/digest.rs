//! Has the content of a revision changed since it was first seen? Phases are compared by digest.
//!
//! Rule: revisions §5 step 3.

use olm_core::{Object, go, hex};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Name and digest of a phase, as status records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhaseDigest {
    pub name: String,
    /// `sha256:<hex>`.
    pub digest: String,
}

/// Digest of a phase's name and its resolved, unchanged objects.
pub fn phase_digest(name: &str, objects: &[Object]) -> PhaseDigest {
    let mut digester = PhaseDigester::new(name);
    objects.iter().for_each(|object| digester.add(object));
    digester.finish()
}

/// Digests a phase's name and its resolved, unchanged objects, of which only one need be in memory at a time.
#[derive(Debug)]
pub struct PhaseDigester {
    name: String,
    hash: Sha256,
    is_empty: bool,
}

impl PhaseDigester {
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(format!("{{\"name\":{},\"objects\":[", go::json_string(&Value::from(name))));
        Self { name: name.to_owned(), hash, is_empty: true }
    }

    /// Adds the next object of the phase.
    pub fn add(&mut self, object: &Object) {
        self.hash.update(if self.is_empty { "" } else { "," });
        self.hash.update(go::json_object(&object.0));
        self.is_empty = false;
    }

    #[must_use]
    pub fn finish(mut self) -> PhaseDigest {
        self.hash.update("]}");
        PhaseDigest { name: self.name, digest: format!("sha256:{}", hex(&self.hash.finalize())) }
    }
}

/// Compares the phases found with those recorded; nothing recorded is nothing to compare with.
///
/// # Errors
/// When they differ, with the text of the `Blocked` condition.
pub fn check_observed(recorded: &[PhaseDigest], found: &[PhaseDigest]) -> Result<(), String> {
    if recorded.is_empty() {
        return Ok(());
    }
    if recorded.len() != found.len() {
        let (expected, found) = (recorded.len(), found.len());
        return Err(format!("number of phases has changed (expected {expected} phases, got {found})"));
    }
    let changed: Vec<String> = found
        .iter()
        .filter_map(|now| {
            let before = recorded.iter().find(|before| before.name == now.name);
            let expected = before.map_or("", |before| before.digest.as_str());
            (expected != now.digest)
                .then(|| format!("phase {:?} (expected digest {expected}, got {})", now.name, now.digest))
        })
        .collect();
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "resolved content of {} phase(s) has changed: {}; a referenced object source may have been deleted and recreated with \
         different content",
        changed.len(),
        changed.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// rule: revisions §4.4, worked example
    #[test]
    fn digest_worked_example() {
        let config = Object::from_value(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "test-cm"}}),
        )
        .unwrap();
        let want = "sha256:8ac9863af8b99ba59314e7b44c1a7a0dcfbec529655a9bcbd57dc1ecbcc88609";
        assert_eq!(phase_digest("deploy", &[config]).digest, want);
    }

    #[test]
    fn digest_names_differences() {
        let phase = |name: &str, digest: &str| PhaseDigest { name: name.into(), digest: digest.into() };
        let recorded = [phase("a", "sha256:1"), phase("b", "sha256:2")];
        assert_eq!(check_observed(&[], &recorded), Ok(()));
        assert_eq!(check_observed(&recorded, &recorded), Ok(()));
        assert_eq!(
            check_observed(&recorded, &[phase("a", "sha256:1"), phase("b", "sha256:3")]).unwrap_err(),
            "resolved content of 1 phase(s) has changed: phase \"b\" (expected digest sha256:2, got sha256:3); a referenced object \
             source may have been deleted and recreated with different content"
        );
        assert_eq!(
            check_observed(&recorded, &[phase("a", "sha256:0"), phase("c", "sha256:3")]).unwrap_err(),
            "resolved content of 2 phase(s) has changed: phase \"a\" (expected digest sha256:1, got sha256:0); phase \"c\" (expected \
             digest , got sha256:3); a referenced object source may have been deleted and recreated with different content"
        );
        let want = "number of phases has changed (expected 2 phases, got 1)";
        assert_eq!(check_observed(&recorded, &recorded[..1]).unwrap_err(), want);
    }
}
