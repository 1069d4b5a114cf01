//! Is this change of a CustomResourceDefinition safe for the objects that exist?
//!
//! [`compare`] takes the CRD in the cluster and the one that a bundle brings, and lists what would lose data or break
//! stored or served objects. Three validators, as in the reference: the CRD as a whole, each version against itself, and
//! pairs of served versions (only what the change makes worse).
//!
//! Two profiles. [`Profile::Parity`] blocks exactly what the reference blocks. [`Profile::Corrected`], the default, lets
//! through what cannot hurt: texts, wider enums and limits, new optional fields, at any depth (decision 12).
//!
//! [`ExistingObjects`] answers the question for objects at hand: do they fit the new schema?
//!
//! It does not know how a CRD got here, who applies it, or which objects exist.

mod bounds;
mod checks;
mod existing;
mod schema;
mod served;
mod structural;

pub use existing::{ExistingObjects, Fit, SchemaError, SchemaViolation};

use std::collections::HashSet;
use std::fmt;

use olm_core::{Cancellation, Object};
use serde_json::Value;

use crate::bounds::Bounds;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// What cannot lose data or break a stored or served object is allowed.
    #[default]
    Corrected,
    /// The tables of the reference, its over-strict rows included.
    Parity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    pub profile: Profile,
}

/// The comparison that made a finding. Ordered as findings are printed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comparison {
    Crd,
    /// One version against itself; `path` is like `^.spec.size`.
    Version {
        version: String,
        path: String,
    },
    /// A lower served version against a higher one.
    Served {
        /// `low -> high`.
        pair: String,
        path: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub comparison: Comparison,
    /// Name of the check, for example `type`.
    pub check: &'static str,
    /// What changed, old to new, in the reference's words.
    pub message: String,
}

impl Finding {
    #[must_use]
    pub fn danger(&self) -> &'static str {
        checks::danger(self.check)
    }

    /// What the author of the bundle can do instead.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        checks::fix(self.check)
    }

    /// Bytes of its texts.
    fn size(&self) -> usize {
        let at = match &self.comparison {
            Comparison::Crd => 0,
            Comparison::Version { version: of, path } | Comparison::Served { pair: of, path } => {
                of.len() + path.len()
            }
        };
        at + self.message.len()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.comparison {
            Comparison::Crd => write!(f, "{}: {}", self.check, self.message),
            Comparison::Version { version, path } => {
                write!(f, "{version}: {path}: {}: {}", self.check, self.message)
            }
            Comparison::Served { pair, path } => {
                write!(f, "{pair}: {path}: {}: {}", self.check, self.message)
            }
        }
    }
}

/// Compares the CRD in the cluster (`old`, with its status) with the one that shall replace it.
///
/// Findings are sorted by comparison, path and check; the change is safe if the list is empty. There is one that reports it if a schema or
/// the findings are larger than the limits. Cost: linear in the number of schema nodes, times the pairs of served versions.
#[must_use]
pub fn compare(old: &Object, new: &Object, policy: Policy) -> Vec<Finding> {
    compare_until(old, new, policy, &Cancellation::default())
}

/// As [`compare`]. Once it is cancelled, findings are missing.
#[must_use]
pub fn compare_until(
    old: &Object,
    new: &Object,
    policy: Policy,
    cancellation: &Cancellation,
) -> Vec<Finding> {
    let bounds = Bounds::new(policy.profile, cancellation);
    let mut findings = checks::crd::compare(old, new, &bounds);
    for (version, old_schema) in versions(old).take_while(|_| !bounds.is_over()) {
        let Some((_, new_schema)) = versions(new).find(|(name, _)| *name == version) else { continue };
        match (old_schema, new_schema) {
            (Some(old_schema), Some(new_schema)) => {
                let comparison = |path: String| Comparison::Version { version: version.to_owned(), path };
                findings.extend(checks::compare(old_schema, new_schema, &bounds, comparison));
            }
            (_, None) => findings.push(no_schema(version)),
            (None, Some(_)) => {}
        }
    }
    if policy.profile == Profile::Corrected {
        drop_consequences(&mut findings);
    }
    findings.extend(served::compare(old, new, &bounds));
    if let Some(problem) = bounds.problem() {
        let message = format!("the schemas were not compared: {problem}");
        return vec![Finding { comparison: Comparison::Crd, check: "unhandled", message }];
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Of a field that is removed, takes out what follows from that: that it has no type, no default and so on any more.
fn drop_consequences(findings: &mut Vec<Finding>) {
    let removed: HashSet<String> = findings
        .iter()
        .filter(|finding| finding.check == checks::crd::REMOVED)
        .map(|finding| finding.message.clone())
        .collect();
    if removed.is_empty() {
        return;
    }
    findings.retain(|finding| match &finding.comparison {
        Comparison::Version { version, path } => !removed.contains(&checks::crd::removed(version, path)),
        Comparison::Crd | Comparison::Served { .. } => true,
    });
}

/// The beginning of the message about one CRD, in the reference's words; the findings follow, one a line. `olm-install` makes the whole
/// message.
#[must_use]
pub fn message_prefix(crd: &str) -> String {
    format!("validating upgrade for CRD {crd:?}: ")
}

fn no_schema(version: &str) -> Finding {
    let message = format!("version {version} has no schema");
    Finding {
        comparison: Comparison::Version { version: version.to_owned(), path: "^".to_owned() },
        check: "schema",
        message,
    }
}

fn spec_member<'a>(crd: &'a Object, member: &str) -> Option<&'a Value> {
    crd.0.get("spec").and_then(|spec| spec.get(member))
}

/// Whether a webhook converts between the versions.
fn has_conversion_webhook(crd: &Object) -> bool {
    let strategy = spec_member(crd, "conversion").and_then(|conversion| conversion.get("strategy"));
    strategy.and_then(Value::as_str) == Some("Webhook")
}

fn version_list(crd: &Object) -> impl Iterator<Item = &Value> {
    spec_member(crd, "versions").and_then(Value::as_array).into_iter().flatten()
}

/// Names of the served versions of a CRD.
fn served_versions(crd: &Object) -> impl Iterator<Item = &str> {
    let served = |version: &&Value| version.get("served").and_then(Value::as_bool) == Some(true);
    version_list(crd).filter(served).filter_map(|version| version.get("name")?.as_str())
}

/// Versions of a CRD in their order, each with its schema.
fn versions(crd: &Object) -> impl Iterator<Item = (&str, Option<&Value>)> {
    version_list(crd).filter_map(|version| {
        let name = version.get("name")?.as_str()?;
        Some((name, version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"))))
    })
}
