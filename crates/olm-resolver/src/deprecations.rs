//! Values of the four deprecation conditions (rule: operator-controller §5.2, with decision 7 about where they come from).

use std::sync::Arc;

use olm_core::{BundleName, CatalogName, ChannelName};

use crate::graph::{DeprecatedScope, PackageGraph};
use crate::installed::Installed;
use crate::request::CatalogSource;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeprecationState {
    /// True, reason `Deprecated`, with the catalog's messages joined by newlines.
    Deprecated(String),
    /// False, reason `NotDeprecated`.
    NotDeprecated,
    /// Unknown, reason `Absent`: there is no installed bundle to be deprecated.
    Absent,
    /// Unknown, reason `DeprecationStatusUnknown`: no catalog data.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deprecations {
    pub package: DeprecationState,
    pub channel: DeprecationState,
    /// `BundleDeprecated`, about the installed bundle.
    pub bundle: DeprecationState,
    /// `Deprecated`.
    pub rollup: DeprecationState,
}

/// Computes the values. `contents` is `None` when no catalog that holds the package was ever read, or all are gone;
/// after a transient failure the caller keeps the values it has instead of asking.
///
/// An entry whose message is empty counts as no entry. With no channels asked for, any channel entry counts.
pub fn deprecations(
    contents: Option<&PackageGraph>,
    channels: &[ChannelName],
    installed: Option<&BundleName>,
) -> Deprecations {
    let Some(graph) = contents else {
        let bundle = if installed.is_some() { DeprecationState::Unknown } else { DeprecationState::Absent };
        let unknown = DeprecationState::Unknown;
        return Deprecations { package: unknown.clone(), channel: unknown.clone(), bundle, rollup: unknown };
    };
    let messages = |matches: &dyn Fn(&DeprecatedScope) -> bool| -> Vec<&str> {
        graph
            .deprecations()
            .filter(|(scope, message)| matches(scope) && !message.is_empty())
            .map(|(_, message)| message)
            .collect()
    };
    let package = messages(&|scope| *scope == DeprecatedScope::Package);
    let channel = messages(&|scope| match scope {
        DeprecatedScope::Channel(name) => {
            channels.is_empty() || channels.iter().any(|asked| asked.as_str() == &**name)
        }
        DeprecatedScope::Package | DeprecatedScope::Bundle(_) => false,
    });
    let bundle = messages(&|scope| match (scope, installed) {
        (DeprecatedScope::Bundle(name), Some(installed)) => installed.as_str() == &**name,
        (DeprecatedScope::Bundle(_), None) | (DeprecatedScope::Package | DeprecatedScope::Channel(_), _) => {
            false
        }
    });
    let all: Vec<&str> = [&package[..], &channel, &bundle].concat();
    Deprecations {
        package: state(&package),
        channel: state(&channel),
        bundle: if installed.is_some() { state(&bundle) } else { DeprecationState::Absent },
        rollup: state(&all),
    }
}

fn state(messages: &[&str]) -> DeprecationState {
    if messages.is_empty() {
        DeprecationState::NotDeprecated
    } else {
        DeprecationState::Deprecated(messages.join("\n"))
    }
}

/// The catalog whose deprecations count: the chosen one, else, of the readable ones that hold the package, one that
/// has the installed bundle, then the one of highest priority, then the first by name.
pub fn deprecation_source<'a>(
    sources: &'a [CatalogSource],
    chosen: Option<&CatalogName>,
    installed: Option<&Installed>,
) -> Option<&'a Arc<PackageGraph>> {
    sources
        .iter()
        .filter_map(|source| Some((source, source.content.as_ref().ok().filter(|graph| !graph.is_empty())?)))
        .min_by_key(|(source, graph)| {
            let has_installed =
                installed.is_some_and(|bundle| graph.find_bundle(bundle.name.as_str()).is_some());
            (
                Some(&source.name) != chosen,
                !has_installed,
                std::cmp::Reverse(source.priority),
                source.name.clone(),
            )
        })
        .map(|(_, graph)| graph)
}
