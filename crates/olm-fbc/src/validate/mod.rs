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
mod object;
mod tree;

pub use tree::tree;

use std::collections::HashMap;

use crate::{Catalog, FileError, FilePosition, FileWarning, Finding, Subject, WarningKind, schema::PACKAGE};

/// What is wrong with a catalog: errors first, each step in catalog order.
pub fn validate(catalog: &Catalog) -> Vec<Finding> {
    let mut findings = Vec::new();
    let loaded = load::load(catalog, &mut findings);
    let model = convert::convert(&loaded, &mut findings);
    model::check(&model, &mut findings);
    lint::lint(&loaded, &mut findings);
    locate(catalog, &mut findings);
    findings.extend(catalog.warnings.iter().map(|warning| file_warning(catalog, warning)));
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
        let position = FilePosition { path: problem.path.clone(), line: problem.error.line, column: None };
        let message = problem.error.message.clone();
        let finding = Finding::error("file", Subject::default(), message).at(Some(position));
        match hint {
            Some(hint) => finding.with_hint(hint),
            None => finding,
        }
    };
    problems.iter().map(finding).collect()
}

/// Fills in where the object lies that a finding is about. What is about an object that does not exist gets its package's place.
fn locate(catalog: &Catalog, findings: &mut [Finding]) {
    if findings.iter().all(|finding| finding.position.is_some()) {
        return;
    }
    let mut objects: HashMap<(&str, &str, &str), usize> = HashMap::new();
    for (at, object) in catalog.index.objects().enumerate() {
        let package = if object.schema == PACKAGE { "" } else { object.package };
        objects.entry((object.schema, package, object.name)).or_insert(at);
    }
    for finding in findings.iter_mut().filter(|finding| finding.position.is_none()) {
        let Subject { package, schema, name } = &finding.subject;
        let own_package = if schema == PACKAGE { "" } else { package };
        let own = objects.get(&(schema.as_str(), own_package, name.as_str()));
        let at = own.or_else(|| objects.get(&(PACKAGE, "", package.as_str())));
        finding.position = at.and_then(|at| catalog.position(*at));
    }
}

fn file_warning(catalog: &Catalog, warning: &FileWarning) -> Finding {
    let rule = match warning.kind {
        WarningKind::NeverRead => "never-read",
        WarningKind::ReadAsYaml => "read-as-yaml",
        WarningKind::NoSchema => "no-schema",
        WarningKind::Empty => "empty-document",
        WarningKind::Rounded => "rounded-integer",
    };
    let object = catalog
        .object_at(&warning.path, warning.position)
        .filter(|_| matches!(warning.kind, WarningKind::Rounded | WarningKind::NoSchema));
    let subject = object.and_then(|at| catalog.index.objects().nth(at)).map(|object| Subject {
        package: object.package.to_owned(),
        schema: object.schema.to_owned(),
        name: object.name.to_owned(),
    });
    let position = FilePosition {
        path: warning.path.clone(),
        line: warning.position.line,
        column: Some(warning.position.column),
    };
    Finding::warning(rule, subject.unwrap_or_default(), warning.kind.to_string()).at(Some(position))
}

#[cfg(test)]
mod tests;
