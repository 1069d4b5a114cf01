//! The choice of the bundle to install, with its reasons.
//!
//! `resolve` takes a request, what is installed and the packages that the selected catalogs hold, and answers with one
//! bundle or a typed error, always with a `Report` of the rule that kept or dropped each bundle.
//! Nothing here knows where a catalog came from, reads a clock, or talks to anything (rules: operator-controller §4).

mod chain;
pub mod constraint;
mod dependencies;
mod deprecations;
mod environment;
mod error;
mod fallback;
mod graph;
mod installed;
mod paths;
mod report;
mod request;
mod resolve;
mod rules;
pub mod scenario;
mod shortest;
mod skipped;

pub use chain::{ChainLink, ChannelOrderError, chain};
pub use dependencies::{
    DependencyFacts, DependencyReport, InstalledPackage, Needed, Provider, Unmet, dependencies,
    dependencies_of_installed, needed, needed_by,
};
pub use deprecations::{DeprecationState, Deprecations, deprecation_source, deprecations};
pub use environment::{ClusterFacts, Environment, EnvironmentConstraints, Needs, UnmetConstraint};
pub use error::{Asked, CatalogReadError, ResolveError, Retry};
pub use fallback::{Fallback, FallbackFacts, WhyRetry, fallback};
pub use graph::{
    BundleDraft, BundleIndex, ChannelDraft, ChannelIndex, DeprecatedScope, Edge, EdgeKind, EntryView,
    EnvironmentDraft, Finding, GraphDraft, GvkRef, PackageGraph, Property, ReleaseField,
};
pub use installed::Installed;
pub use olm_fbc::ChannelEntry;
pub use paths::{
    ClassicError, ClassicRequest, ClassicStep, End, Hop, NotOffered, Path, PathQuery, RuleSet, Target,
    classic_step, path, paths,
};
pub use report::{
    Candidate, CandidateView, CatalogOutcome, CatalogReport, CatalogView, NearMiss, Report, ReportView, Step,
};
pub use request::{CatalogSource, MAJOR_UPDATES, MajorUpdates, Policy, Request, parse_range};
pub use resolve::{Held, Outcome, Resolution, UnfitBundle, printed_bundle, resolve};
pub use rules::{Decision, Ineligible, Rules, Via};
pub use shortest::reachable;
pub use skipped::Skipped;
