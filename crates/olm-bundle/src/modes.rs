//! Install modes and what an operator may watch. Rules: bundle-rendering §4 and §6.

use std::collections::BTreeSet;
use std::fmt;

olm_core::words! {
    /// How an operator may be installed, as its CSV declares it. Ordered by name, as messages print them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum InstallMode {
        AllNamespaces = "AllNamespaces",
        MultiNamespace = "MultiNamespace",
        OwnNamespace = "OwnNamespace",
        /// Watches one other namespace.
        SingleNamespace = "SingleNamespace",
    }
}

/// The modes that a bundle supports. Prints as `[AllNamespaces OwnNamespace]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstallModes(pub BTreeSet<InstallMode>);

impl InstallModes {
    pub fn supports(&self, mode: InstallMode) -> bool {
        self.0.contains(&mode)
    }
}

impl FromIterator<InstallMode> for InstallModes {
    fn from_iter<T: IntoIterator<Item = InstallMode>>(modes: T) -> Self {
        Self(modes.into_iter().collect())
    }
}

impl fmt::Display for InstallModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|mode| mode.as_str()).collect();
        write!(f, "[{}]", names.join(" "))
    }
}

/// What the operator watches: the whole cluster, or these namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    All,
    /// These namespaces, never empty.
    Namespaces(Vec<String>),
}

impl Targets {
    /// The value of the annotation `olm.targetNamespaces`.
    pub fn annotation(&self) -> String {
        match self {
            Self::All => String::new(),
            Self::Namespaces(names) => names.join(","),
        }
    }
}

/// Why the operator may not watch what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid option(s): invalid target namespaces [{}]: {reason}", .targets.join(" "))]
pub struct TargetsError {
    /// The namespaces.
    pub targets: Vec<String>,
    /// What the install modes lack.
    pub reason: String,
}

/// Decides what the operator watches. `requested` is the configured list: empty means the default, one empty text means
/// the whole cluster.
///
/// # Errors
/// When no supported install mode allows it.
pub(crate) fn targets(
    modes: &InstallModes,
    install_namespace: &str,
    requested: &[String],
) -> Result<Targets, TargetsError> {
    let all = modes.supports(InstallMode::AllNamespaces);
    let own = modes.supports(InstallMode::OwnNamespace);
    let single = modes.supports(InstallMode::SingleNamespace);
    let multi = modes.supports(InstallMode::MultiNamespace);

    let mut targets: Vec<String> = Vec::new();
    for one in requested {
        if !targets.contains(one) {
            targets.push(one.clone());
        }
    }
    if targets.is_empty() && all {
        targets.push(String::new());
    }
    let no_own = || format!("supported install modes {modes} do not support targeting own namespace");
    let no_such = |targets: &[String]| {
        format!("supported install modes {modes} do not support target namespaces [{}]", targets.join(" "))
    };
    let reason = match targets.as_slice() {
        [] if multi => "at least one target namespace must be specified".to_owned(),
        [] => "exactly one target namespace must be specified".to_owned(),
        [whole] if whole.is_empty() && all => return Ok(Targets::All),
        [whole] if whole.is_empty() => {
            format!("supported install modes {modes} do not support targeting all namespaces")
        }
        [one] if one == install_namespace && !own => no_own(),
        [one] if one != install_namespace && !single => no_such(&targets),
        [_] => return Ok(Targets::Namespaces(targets)),
        many => {
            let has_own = many.iter().any(|one| one == install_namespace);
            let has_whole = many.iter().any(String::is_empty);
            if multi && !has_whole && (own || !has_own) {
                return Ok(Targets::Namespaces(targets));
            }
            if has_own && !own { no_own() } else { no_such(many) }
        }
    };
    Err(TargetsError { targets, reason })
}

#[cfg(test)]
mod tests {
    use super::InstallMode::{
        AllNamespaces as A, MultiNamespace as M, OwnNamespace as O, SingleNamespace as S,
    };
    use super::*;

    #[test]
    fn targets_follow_the_install_modes() {
        let namespaces =
            |names: &[&str]| Ok(Targets::Namespaces(names.iter().map(|name| (*name).to_owned()).collect()));
        let refused = |text: &str| Err(format!("invalid option(s): invalid target namespaces {text}"));
        type Want = Result<Targets, String>;
        #[rustfmt::skip]
        let cases: Vec<(&[InstallMode], &[&str], Want)> = vec![
            (&[A], &[], Ok(Targets::All)),
            (&[A, O, S, M], &[], Ok(Targets::All)),
            (&[A], &[""], Ok(Targets::All)),
            (&[O], &[], refused("[]: exactly one target namespace must be specified")),
            (&[O, M], &[], refused("[]: at least one target namespace must be specified")),
            (&[O], &["i"], namespaces(&["i"])),
            (&[O], &["i", "i"], namespaces(&["i"])),
            (&[S], &["w"], namespaces(&["w"])),
            (&[S], &["i"], refused("[i]: supported install modes [SingleNamespace] do not support targeting own namespace")),
            (&[O], &["w"], refused("[w]: supported install modes [OwnNamespace] do not support target namespaces [w]")),
            (&[S, O], &[""], refused("[]: supported install modes [OwnNamespace SingleNamespace] do not support targeting all namespaces")),
            (&[A, S], &["w"], namespaces(&["w"])),
            (&[M], &["w", "x"], namespaces(&["w", "x"])),
            (&[M], &["w", "i"], refused("[w i]: supported install modes [MultiNamespace] do not support targeting own namespace")),
            (&[M, O], &["w", "i"], namespaces(&["w", "i"])),
            (&[M, O], &["w", ""],
                refused("[w ]: supported install modes [MultiNamespace OwnNamespace] do not support target namespaces [w ]")),
            (&[A, O], &["w", "x"],
                refused("[w x]: supported install modes [AllNamespaces OwnNamespace] do not support target namespaces [w x]")),
        ];
        for (modes, requested, want) in cases {
            let supported: InstallModes = modes.iter().copied().collect();
            let requested: Vec<_> = requested.iter().map(|name| (*name).to_owned()).collect();
            let got = targets(&supported, "i", &requested).map_err(|error| error.to_string());
            assert_eq!(got, want, "{supported} asked for {requested:?}");
        }
    }

    #[test]
    fn annotation_joins_with_commas() {
        assert_eq!(Targets::All.annotation(), "");
        assert_eq!(Targets::Namespaces(vec!["a".into(), "b".into()]).annotation(), "a,b");
    }
}
