//! The catalogs that a namespace sees, in the order in which they are preferred, and what is installed as one more of them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::Catalog;
use crate::content::Content;
use crate::error::InputError;
use crate::namespace::{InstalledCsv, Namespace};

/// Place of a source; [`INSTALLED`] is the first.
pub(crate) type SourceIndex = usize;

/// The source of what is installed; preferred before all catalogs.
pub(crate) const INSTALLED: SourceIndex = 0;

#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) catalog: Arc<Catalog>,
}

#[derive(Debug)]
pub(crate) struct Sources<'a> {
    pub(crate) list: Vec<Source<'a>>,
    /// For each installed CSV, whether a Subscription names it.
    pub(crate) is_owned: Vec<bool>,
    /// Catalogs without content, and CSVs that stand in the way.
    pub(crate) problems: Vec<InputError>,
}

impl<'a> Sources<'a> {
    pub(crate) fn new(namespace: &'a Namespace) -> Self {
        let mut problems = Vec::new();
        let mut installed: Vec<&InstalledCsv> =
            namespace.installed.iter().filter(|csv| !csv.is_copied).collect();
        installed.sort_by(|a, b| a.name.cmp(&b.name));
        if namespace.fail_forward {
            match without_replaced(&installed) {
                Ok(left) => installed = left,
                Err(problem) => {
                    problems.push(problem);
                    installed.clear();
                }
            }
        }
        let contents = installed.iter().map(|csv| Content::from_installed(csv, package_of(namespace, csv)));
        let is_owned =
            |csv: &&InstalledCsv| namespace.subscriptions.iter().any(|it| it.installed_csv == csv.name);
        let is_owned = installed.iter().map(is_owned).collect();
        let mut list = vec![Source {
            name: "@existing",
            namespace: &namespace.name,
            catalog: Arc::new(Catalog::from_installed(contents)),
        }];
        let is_visible = |of: &str| of == namespace.name || Some(of) == namespace.global_namespace.as_deref();
        let mut catalogs: Vec<_> = namespace.catalogs.iter().filter(|it| is_visible(&it.namespace)).collect();
        catalogs.sort_by_key(|it| it.preference(&namespace.name));
        for source in catalogs {
            let catalog = source.content.clone().unwrap_or_else(|problem| {
                let (name, namespace) = (source.name.clone(), source.namespace.clone());
                problems.push(InputError::NoContent { name, namespace, problem });
                Arc::default()
            });
            list.push(Source { name: &source.name, namespace: &source.namespace, catalog });
        }
        Self { list, is_owned, problems }
    }

    /// All sources, as one of them prefers them: what is installed, itself, the others.
    pub(crate) fn preferred_by(&self, own: SourceIndex) -> impl Iterator<Item = SourceIndex> + use<> {
        let others = (1..self.list.len()).filter(move |&source| source != own);
        [INSTALLED].into_iter().chain((own != INSTALLED).then_some(own)).chain(others)
    }
}

/// The package on which the Subscriptions of a CSV agree.
fn package_of<'a>(namespace: &'a Namespace, csv: &InstalledCsv) -> Option<&'a str> {
    let mut packages = namespace
        .subscriptions
        .iter()
        .filter(|it| it.installed_csv == csv.name)
        .map(|it| it.package.as_str());
    let first = packages.next()?;
    packages.all(|package| package == first).then_some(first)
}

/// Leaves out the CSVs below one that failed. What is replaced must be in the phase for it.
fn without_replaced<'a>(installed: &[&'a InstalledCsv]) -> Result<Vec<&'a InstalledCsv>, InputError> {
    let replaced_by: HashMap<&str, &InstalledCsv> =
        installed.iter().map(|csv| (csv.replaces.as_str(), *csv)).collect();
    let mut left = Vec::new();
    for &csv in installed {
        let (mut newest, mut hops) = (csv, 0);
        while let Some(&newer) = replaced_by.get(newest.name.as_str()) {
            let phase = if newest.phase.is_empty() { "Succeeded" } else { &newest.phase };
            if phase != "Replacing" {
                let (csv, phase, by) = (newest.name.clone(), phase.to_owned(), newer.name.clone());
                return Err(InputError::NotReplacing { csv, phase, by });
            }
            if hops > installed.len() {
                return Err(InputError::ReplacesLoop { csv: newest.name.clone() });
            }
            (newest, hops) = (newer, hops + 1);
        }
        if hops == 0 || newest.phase != "Failed" {
            left.push(csv);
        }
    }
    Ok(left)
}
