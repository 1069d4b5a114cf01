//! The waiver of CRD upgrade safety for one bundle: the annotation `accept-crd-change` of a ClusterExtension.
//!
//! `<bundle name>@<digest of its image>` accepts every finding of that bundle; a list behind it, `<CRD>` or `<CRD>/<check>` with
//! spaces or commas between them, only these. It is bound to the content that was looked at, and used up once that bundle is
//! installed. Rule: decision 12.

use std::str::FromStr;

use olm_api::{annotations, condition};
use olm_core::Digest;

use crate::resolution::{BundleFacts, RevisionFacts};

/// Findings that a user accepts of one bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdWaiver {
    bundle: String,
    digest: Digest,
    /// The CRDs, each with the check or all of its checks; empty means all.
    only: Vec<(String, Option<String>)>,
}

/// A value of the annotation that is no waiver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not of the form <bundle name>@sha256:<64 digits>, with <CRD> or <CRD>/<check> behind it to accept only these"
)]
pub struct WaiverError(String);

impl FromStr for CrdWaiver {
    type Err = WaiverError;

    fn from_str(text: &str) -> Result<Self, WaiverError> {
        let invalid = || WaiverError(text.to_owned());
        let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
        let (bundle, digest) = words.next().and_then(|word| word.rsplit_once('@')).ok_or_else(invalid)?;
        let digest = digest.parse().map_err(|_| invalid())?;
        if bundle.is_empty() {
            return Err(invalid());
        }
        let only = words.map(|word| match word.split_once('/') {
            Some((crd, check)) if !crd.is_empty() && !check.is_empty() => {
                Ok((crd.to_owned(), Some(check.to_owned())))
            }
            Some(_) => Err(invalid()),
            None => Ok((word.to_owned(), None)),
        });
        Ok(Self { bundle: bundle.to_owned(), digest, only: only.collect::<Result<_, _>>()? })
    }
}

impl CrdWaiver {
    /// Whether it holds for this content of this bundle, and was not used up by its installation: by the newest revision. An older one
    /// of this bundle is what a rollback goes back to.
    pub(super) fn holds<'a>(
        &self,
        bundle: &BundleFacts,
        digest: &Digest,
        revisions: impl Iterator<Item = &'a RevisionFacts>,
    ) -> bool {
        let is_used_up = revisions.max_by_key(|revision| revision.number).is_some_and(|newest| {
            newest.bundle.name == self.bundle && condition::is_true(&newest.conditions, condition::SUCCEEDED)
        });
        self.bundle == bundle.name && self.digest == *digest && !is_used_up
    }

    pub(super) fn covers(&self, crd: &str, check: &str) -> bool {
        let named = |(name, only): &(String, Option<String>)| {
            name == crd && only.as_deref().is_none_or(|only| only == check)
        };
        self.only.is_empty() || self.only.iter().any(named)
    }
}

/// The annotation that accepts the findings of this bundle, as `key=value`.
pub(super) fn annotation(bundle: &BundleFacts, digest: &Digest) -> String {
    format!("{}={}@{digest}", annotations::ACCEPT_CRD_CHANGE, bundle.name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use olm_api::{Condition, ConditionStatus};

    use super::*;

    fn digest(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    #[test]
    fn waiver_covers_what_it_names() {
        for (list, covered) in [
            ("", [true, true, true]),
            (" a.example.com", [true, true, false]),
            (" a.example.com/enum", [true, false, false]),
            (" a.example.com/type,b.example.com/enum", [false, true, true]),
            (", a.example.com/enum, b.example.com", [true, false, true]),
            (" c.example.com", [false, false, false]),
        ] {
            let waiver: CrdWaiver = format!("demo.v2@{}{list}", digest('a')).parse().unwrap();
            let findings = [("a.example.com", "enum"), ("a.example.com", "type"), ("b.example.com", "enum")];
            assert_eq!(findings.map(|(crd, check)| waiver.covers(crd, check)), covered, "{list:?}");
        }
        for text in [
            "",
            "demo.v2",
            "true",
            "demo.v2@sha256:aa",
            &format!("@{}", digest('a')),
            &format!("demo.v2@{} a.example.com/", digest('a')),
            &format!("demo.v2@{} /enum", digest('a')),
        ] {
            let error = text.parse::<CrdWaiver>().unwrap_err().to_string();
            assert!(error.contains("<bundle name>@sha256:"), "{text:?}: {error}");
        }
    }

    #[test]
    fn waiver_holds_for_one_content_until_it_is_installed() {
        let waiver: CrdWaiver = format!("demo.v2@{}", digest('a')).parse().unwrap();
        let facts = |name: &str| BundleFacts { name: name.to_owned(), ..BundleFacts::default() };
        let revision = |number, name: &str, succeeded| RevisionFacts {
            name: format!("demo-{number}"),
            number,
            bundle: facts(name),
            conditions: vec![Condition::new(
                condition::SUCCEEDED,
                if succeeded { ConditionStatus::True } else { ConditionStatus::False },
                "x",
                "",
                Some(1),
                Timestamp::UNIX_EPOCH,
            )],
        };
        for (name, content, revisions, holds) in [
            ("demo.v2", 'a', vec![], true),
            ("demo.v2", 'b', vec![], false),
            ("demo.v3", 'a', vec![], false),
            ("demo.v2", 'a', vec![revision(1, "demo.v1", true), revision(2, "demo.v2", false)], true),
            ("demo.v2", 'a', vec![revision(2, "demo.v2", true), revision(1, "demo.v1", true)], false),
            // a rollback
            ("demo.v2", 'a', vec![revision(2, "demo.v2", true), revision(3, "demo.v3", true)], true),
            ("demo.v2", 'a', vec![revision(2, "demo.v2", true), revision(3, "demo.v3", false)], true),
        ] {
            let content = digest(content).parse().unwrap();
            assert_eq!(waiver.holds(&facts(name), &content, revisions.iter()), holds, "{name} {content}");
        }
    }
}
