//! The check of installed bundles as inner conditions. The judgement itself is `olm_core::openshift`'s.
//!
//! Rule: cluster-operator §5, decision 17: an unreadable value blocks too, with its reason.

use olm_core::openshift::{Bundle, Owner, Report, Stream, Unreadable, counted, judge};

use crate::inner::Inner;
use crate::observe::{Extension, RevisionFact};

/// Bytes for limits and advice behind the message that tests match on (decisions, "Messages").
const MAX_ADVICE: usize = 200;
/// The inner condition that clients know.
pub(crate) const INSTALLED: &str = "InstalledOLMOperatorsUpgradeable";
const CHECK: &str = "OLMIncompatibleOperatorController";

/// What is installed, as far as it could be observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Installed {
    /// The kinds are served.
    Observed {
        extensions: Vec<Extension>,
        revisions: Vec<RevisionFact>,
        /// Those of OLM Classic, without copies.
        csvs: Vec<Bundle>,
    },
    /// A kind is not, and which.
    NotServed(&'static str),
}

/// The answer for a cluster of this stream; nothing can be judged where the kinds are not served.
pub(crate) fn report(installed: &Installed, current: Stream) -> Option<Report> {
    let Installed::Observed { extensions, revisions, csvs } = installed else { return None };
    let readable: Vec<_> = revisions.iter().filter_map(|observed| observed.as_ref().ok()).cloned().collect();
    let names = extensions.iter().map(|it| (it.name.as_str(), it.installed.as_deref()));
    let mut bundles = counted(names, &readable);
    bundles.extend(csvs.iter().cloned());
    let mut report = judge(current, current.next(), &bundles);
    let broken = revisions.iter().filter_map(|observed| observed.as_ref().err());
    let known = broken.filter(|broken| extensions.iter().any(|it| it.name == broken.extension));
    report.add_unreadable(known.map(|broken| Unreadable {
        owner: Owner::Extension(broken.extension.clone()),
        bundle: String::new(),
        message: format!(
            "error with cluster extension {}: ClusterObjectSet {} cannot be read: {}",
            broken.extension, broken.name, broken.cause
        ),
    }));
    Some(report)
}

pub(crate) fn conditions(installed: &Installed, report: Option<&Report>) -> Vec<Inner> {
    match (installed, report) {
        (Installed::NotServed(kind), _) => {
            let error =
                format!("the cluster has no kind {kind}; install the CustomResourceDefinitions of OLM");
            let blocked =
                Inner::new(INSTALLED.to_owned(), false, "FailureGettingExtensionMetadata", error.clone());
            vec![blocked, Inner::degraded(CHECK, Some(error))]
        }
        (Installed::Observed { .. }, Some(report)) => {
            let errors = Some(report.errors()).filter(|errors| !errors.is_empty());
            let message = report.message(MAX_ADVICE).unwrap_or_default();
            let reason = report.reason().unwrap_or_default();
            vec![
                Inner::new(INSTALLED.to_owned(), report.is_open(), reason, message),
                Inner::degraded(CHECK, errors),
            ]
        }
        // no version to compare with
        (Installed::Observed { .. }, None) => vec![Inner::degraded(CHECK, None)],
    }
}
