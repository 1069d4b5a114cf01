//! Extensions that wait for something which another than themselves brings: an API, an installed package, another CRD.
//!
//! What appears wakes only those that wait for it. It is a memory of this process; after a restart every extension is looked
//! at anyway. Rule: decision 25.

use std::collections::HashMap;

use olm_resolver::Needed;
use parking_lot::Mutex;

/// Who waits for what, by name of the extension.
#[derive(Debug, Default)]
pub struct Waiting {
    needs: Mutex<HashMap<String, Needed>>,
    /// CRDs that stand in an upgrade's way as they are.
    crds: Mutex<HashMap<String, Vec<String>>>,
}

impl Waiting {
    /// The extension waits for this, and for nothing else any more.
    pub fn wait(&self, extension: &str, needed: Needed) {
        self.needs.lock().insert(extension.to_owned(), needed);
    }

    /// The extension waits no longer.
    pub fn forget(&self, extension: &str) {
        self.needs.lock().remove(extension);
    }

    /// Who waits for an API of this group.
    #[must_use]
    pub fn for_group(&self, group: &str) -> Vec<String> {
        self.those(|needed| needed.opaque || needed.apis.iter().any(|api| &*api.group == group))
    }

    /// Who waits for this package.
    #[must_use]
    pub fn for_package(&self, package: &str) -> Vec<String> {
        // a need for an API may ask for it in an installed package of its own
        self.those(|needed| needed.opaque || !needed.apis.is_empty() || needed.packages.contains(package))
    }

    /// The extension waits for a change of one of these CRDs; for none any more when there are none.
    pub fn wait_for_crds(&self, extension: &str, names: Vec<String>) {
        let mut crds = self.crds.lock();
        if names.is_empty() {
            crds.remove(extension);
        } else {
            crds.insert(extension.to_owned(), names);
        }
    }

    /// Who waits for a change of this CRD.
    #[must_use]
    pub fn for_crd(&self, name: &str) -> Vec<String> {
        let crds = self.crds.lock();
        let waiting = crds.iter().filter(|(_, names)| names.iter().any(|one| one == name));
        let mut names: Vec<String> = waiting.map(|(extension, _)| extension.clone()).collect();
        names.sort();
        names
    }

    fn those(&self, wanted: impl Fn(&Needed) -> bool) -> Vec<String> {
        let all = self.needs.lock();
        let mut names: Vec<String> =
            all.iter().filter(|(_, needed)| wanted(needed)).map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use olm_resolver::GvkRef;

    #[test]
    fn only_those_who_wait_for_it_are_woken() {
        let waiting = Waiting::default();
        let api = GvkRef { group: "g.io".into(), version: "v1".into(), kind: "Foo".into() };
        waiting.wait("a", Needed { apis: [api].into(), ..Needed::default() });
        waiting.wait("b", Needed { packages: ["blue".to_owned()].into(), ..Needed::default() });
        waiting.wait("c", Needed { opaque: true, ..Needed::default() });
        assert_eq!(waiting.for_group("g.io"), ["a", "c"]);
        assert_eq!(waiting.for_group("other.io"), ["c"]);
        assert_eq!(waiting.for_package("blue"), ["a", "b", "c"]);
        assert_eq!(waiting.for_package("green"), ["a", "c"]);
        waiting.forget("a");
        waiting.wait("c", Needed::default());
        assert!(waiting.for_group("g.io").is_empty());
        waiting.wait_for_crds("a", vec!["x.g.io".to_owned(), "y.g.io".to_owned()]);
        waiting.wait_for_crds("b", vec!["y.g.io".to_owned()]);
        assert_eq!(waiting.for_crd("y.g.io"), ["a", "b"]);
        waiting.wait_for_crds("a", Vec::new());
        assert!(waiting.for_crd("x.g.io").is_empty());
    }
}
