//! The gate before an OpenShift update: installed bundles that declare that they do not run on the next minor version.
//!
//! An author declares that with the property `olm.maxOpenShiftVersion`. [`Stream`] is `major.minor` of a cluster or of such a limit,
//! [`limit`] reads a bundle's properties, [`counted`] selects the bundles of an extension that count, [`judge`] compares them all with
//! a cluster and words the answer. cluster-operator publishes that answer, `kubectl olm upgrade-check` prints it.
//!
//! It deliberately does not know catalogs (what could be installed instead) nor how the cluster is asked.
//!
//! Rule: cluster-operator §5 to §8, decision 17.

mod gate;
mod limit;
mod stream;

pub use gate::{
    Blocking, Bundle, Lifecycle, Owner, RECORDED_PROPERTIES, Report, Revision, Unreadable, counted, judge,
};
pub use limit::{Limit, LimitError, MAX_OPENSHIFT_VERSION, limit};
pub use stream::{Stream, StreamError};
