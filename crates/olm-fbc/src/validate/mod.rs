//! Every rule that `opm validate` checks (fbc §8), all findings in one pass, and own warnings.
//!
//! Three steps: decode what the schemas know ([`load`]), check the parts against each other ([`convert`], the
//! reference's phase A, which stops at its first error; this one does not), then the upgrade graphs
//! ([`model`], phase B). A finding is left out when it only follows from another one.

mod convert;
mod graph;
mod image;
mod lint;
mod load;
mod model;
mod tree;

pub use tree::tree;

use crate::{Catalog, FileError, FileWarning, Finding, Subject, WarningKind};

/// What is wrong with a catalog: errors first, each step in catalog order.
pub fn validate(catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    let loaded = load::load(catalog, &mut findings);
    let model = convert::convert(&loaded, &mut findings);
    model::check(&model, &mut findings);
    lint::lint(&loaded, &mut findings);
    findings.extend(catalog.warnings.iter().map(file_warning));
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Findings for files that do not decode, to be put before those of [`validate`].
pub fn file_findings(problems: &[FileError]) -> Vec<Finding> {
    let finding = |problem: &FileError| {
        let hint = match problem.path.rsplit('.').next() {
            Some("json" | "yaml" | "yml") => None,
            _ => Some("every file of a catalog is read, whatever its name; list other files in .indexignore"),
        };
        let finding = Finding::error("file", Subject::default(), problem.to_string());
        match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        }
    };
    problems.iter().map(finding).collect()
}

fn file_warning(warning: &FileWarning) -> Finding {
    let rule = match warning.kind {
        WarningKind::NeverRead => "never-read",
        WarningKind::ReadAsYaml => "read-as-yaml",
        WarningKind::NoSchema => "no-schema",
        WarningKind::Empty => "empty-document",
    };
    Finding::warning(rule, Subject::default(), warning.to_string())
}

#[cfg(test)]
mod tests;
