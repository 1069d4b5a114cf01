//! State of each extension between passes, in one map. All of it can be lost: the next pass then reads and checks again.

use std::collections::{BTreeSet, HashMap};

use olm_api::ClusterObjectSet;
use olm_install::resolution::{BundleFacts, PassError};
use olm_resolver::Needed;
use parking_lot::Mutex;

use crate::certificates::CertificateCheck;
use crate::debounce::Debounce;
use crate::recorded::Recorded;

/// What is remembered of one extension.
#[derive(Debug, Default)]
pub struct PerExtension {
    name: String,
    /// The newest revision that was found to hold what the spec asks for.
    pub verified: Option<Verified>,
    /// The last bundle that does not fit into a revision.
    pub rejected: Option<RejectedBundle>,
    /// What the Secrets of its active revisions record of it.
    pub recorded: Option<Recorded>,
    /// What its active revisions were rendered from, by UID, as found with that.
    pub inputs: HashMap<String, String>,
    /// The last apply of settings that changed nothing.
    pub(crate) unchanged: Option<UnchangedApply>,
    /// Since when its status is held back.
    pub(crate) debounce: Debounce,
    /// The last write of its status failed, though it may have been executed.
    pub(crate) is_status_unknown: bool,
    /// The image of the bundle that was rendered last: it stays on disk while the extension is retried.
    pub image: Option<String>,
    /// What its bundle depends on and the cluster lacks (decision 25).
    pub needs: Option<Needed>,
    /// CRDs that block its upgrade as they are.
    pub crds: Vec<String>,
    /// A bundle of its package asks something of the cluster.
    pub has_constraints: bool,
    /// The result of the last pass over its certificates, once there is one or the extension waits for it.
    pub certificates: Option<CertificateCheck>,
}

/// A revision that was found to hold what the spec asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub revision_uid: Option<String>,
    /// What it was rendered from.
    pub inputs: String,
    pub bundle: BundleFacts,
    /// The account whose rights were checked.
    pub account: Option<String>,
}

/// An apply that changed nothing of a revision: it removes no annotation that another client owns.
#[derive(Debug, PartialEq)]
pub(crate) struct UnchangedApply {
    pub(crate) applied: ClusterObjectSet,
    /// The version of the revision, before and after.
    pub(crate) resource_version: Option<String>,
}

/// A bundle whose objects do not fit into a revision: too many of them, or one too large for a Secret. What a bundle renders to
/// depends on nothing but its inputs, so it is not rendered again until they change.
#[derive(Debug, Clone)]
pub struct RejectedBundle {
    bundle: BundleFacts,
    inputs: String,
    error: PassError,
}

impl PerExtension {
    /// The rejection, if this bundle with these inputs was rejected last.
    #[must_use]
    pub fn rejection(&self, bundle: &BundleFacts, inputs: &str) -> Option<PassError> {
        let rejected = self.rejected.as_ref()?;
        (rejected.bundle == *bundle && rejected.inputs == inputs).then(|| rejected.error.clone())
    }

    /// Remembers a rejection, unless the image behind the bundle's reference may become another one.
    pub fn reject(&mut self, bundle: &BundleFacts, inputs: &str, error: &PassError) {
        if bundle.reference.contains('@') {
            let (bundle, inputs, error) = (bundle.clone(), inputs.to_owned(), error.clone());
            self.rejected = Some(RejectedBundle { bundle, inputs, error });
        }
    }

    /// Whether it waits for an API of this group.
    #[must_use]
    pub(crate) fn needs_group(&self, group: &str) -> bool {
        self.needs
            .as_ref()
            .is_some_and(|needs| needs.opaque || needs.apis.iter().any(|api| &*api.group == group))
    }

    /// Whether it waits for this package. A need for an API may ask for it in an installed package of its own.
    #[must_use]
    pub fn needs_package(&self, package: &str) -> bool {
        self.needs
            .as_ref()
            .is_some_and(|needs| needs.opaque || !needs.apis.is_empty() || needs.packages.contains(package))
    }

    /// Whether it waits for a change of this CRD.
    #[must_use]
    pub(crate) fn needs_crd(&self, crd: &str) -> bool {
        self.crds.iter().any(|name| name == crd)
    }
}

/// What is remembered of all extensions, by UID.
#[derive(Debug, Default)]
pub struct States(Mutex<HashMap<String, PerExtension>>);

impl States {
    /// Reads or changes what is remembered of the extension with this name and UID.
    pub fn update<T>(&self, name: &str, uid: &str, work: impl FnOnce(&mut PerExtension) -> T) -> T {
        let mut all = self.0.lock();
        let new = || PerExtension { name: name.to_owned(), ..PerExtension::default() };
        work(all.entry(uid.to_owned()).or_insert_with(new))
    }

    /// Whether the last write of the status failed.
    #[must_use]
    pub(crate) fn is_status_unknown(&self, uid: &str) -> bool {
        self.0.lock().get(uid).is_some_and(|state| state.is_status_unknown)
    }

    /// The names of the extensions of which this is true, sorted.
    #[must_use]
    pub fn names(&self, waits: impl Fn(&PerExtension) -> bool) -> Vec<String> {
        let all = self.0.lock();
        let mut names: Vec<String> =
            all.values().filter(|state| waits(state)).map(|state| state.name.clone()).collect();
        names.sort();
        names
    }

    /// The images of the bundles that were rendered last.
    #[must_use]
    pub fn images(&self) -> BTreeSet<String> {
        self.0.lock().values().filter_map(|state| state.image.clone()).collect()
    }

    /// Evicts an extension that is gone.
    pub fn evict(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Evicts all but the extensions with these UIDs: a pass may end after its extension has gone.
    pub fn retain(&self, uids: &BTreeSet<String>) {
        self.0.lock().retain(|uid, _| uids.contains(uid));
    }
}

#[cfg(test)]
mod tests {
    use olm_install::resolution::Class;
    use olm_resolver::GvkRef;

    use super::*;

    #[test]
    fn rejection_holds_for_the_same_bundle_and_inputs() {
        let bundle = |reference: &str| BundleFacts {
            name: "a.v1".to_owned(),
            package: "a".to_owned(),
            version: "1.0.0".to_owned(),
            release: None,
            reference: reference.to_owned(),
        };
        for (reference, asked, inputs, want) in [
            ("r/a@sha256:1", "r/a@sha256:1", "i", true),
            ("r/a@sha256:1", "r/a@sha256:2", "i", false),
            ("r/a@sha256:1", "r/a@sha256:1", "j", false),
            ("r/a:tag", "r/a:tag", "i", false),
        ] {
            let mut state = PerExtension::default();
            state.reject(&bundle(reference), "i", &PassError::new(Class::NeedsChange, "too large"));
            let rejection = state.rejection(&bundle(asked), inputs);
            assert_eq!(rejection.is_some(), want, "{reference} {asked} {inputs}");
        }
    }

    #[test]
    fn states_name_the_extensions_that_wait() {
        let states = States::default();
        let api = GvkRef { group: "g.io".into(), version: "v1".into(), kind: "Foo".into() };
        let wait = |name: &str, needs: Needed| {
            states.update(name, &format!("uid-{name}"), |state| state.needs = Some(needs))
        };
        wait("a", Needed { apis: [api].into(), ..Needed::default() });
        wait("b", Needed { packages: ["blue".to_owned()].into(), ..Needed::default() });
        wait("c", Needed { opaque: true, ..Needed::default() });
        let by_group = |group: &str| states.names(|state| state.needs_group(group));
        let by_package = |package: &str| states.names(|state| state.needs_package(package));
        assert_eq!(
            (by_group("g.io"), by_group("other.io")),
            (vec!["a".into(), "c".into()], vec!["c".into()])
        );
        assert_eq!(by_package("blue"), ["a", "b", "c"]);
        assert_eq!(by_package("green"), ["a", "c"]);
        states.update("b", "uid-b", |state| state.crds = vec!["x.g.io".to_owned()]);
        assert_eq!(states.names(|state| state.needs_crd("x.g.io")), ["b"]);
        for name in ["b", "c"] {
            states.update(name, &format!("uid-{name}"), |state| state.image = Some(format!("r/{name}:v1")));
        }
        assert!(states.images().iter().eq(["r/b:v1", "r/c:v1"]));
        states.evict("uid-a");
        states.retain(&BTreeSet::from(["uid-c".to_owned()]));
        assert_eq!(states.names(|_| true), ["c"]);
        assert!(states.images().iter().eq(["r/c:v1"]));
    }
}
