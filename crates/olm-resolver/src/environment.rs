//! The constraints of a bundle on the cluster, as its catalog states them: a Kubernetes version and native APIs (decision 34).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use olm_core::{KubernetesVersion, Version};

use crate::graph::GvkRef;

olm_core::words! {
    /// What a bundle leads to that the cluster does not fit: `--environment-constraints`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum EnvironmentConstraints {
        /// The next best bundle is chosen.
        #[default]
        Skip = "Skip",
        /// The best bundle is refused, and none is chosen.
        Refuse = "Refuse",
        /// Nothing, as in the reference.
        Ignore = "Ignore",
    }
}

/// What is known about the cluster; what is not known meets every constraint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterFacts {
    pub version: Option<KubernetesVersion>,
    /// Served APIs.
    pub apis: Option<BTreeSet<GvkRef>>,
}

/// The cluster that a request is for, and how much its constraints count.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub constraints: EnvironmentConstraints,
    pub cluster: Arc<ClusterFacts>,
}

/// The constraints of a bundle; bundles with the same ones share them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Needs {
    /// `minKubeVersion`
    pub lowest: Option<Version>,
    /// `nativeAPIs`, sorted.
    pub apis: Box<[GvkRef]>,
}

/// A constraint that the cluster does not meet, with the cluster's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnmetConstraint {
    Version { lowest: Version, cluster: KubernetesVersion },
    Api(GvkRef),
}

impl Needs {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The constraints that the cluster does not meet.
    pub(crate) fn unmet(&self, cluster: &ClusterFacts) -> impl Iterator<Item = UnmetConstraint> {
        let version =
            self.lowest.as_ref().zip(cluster.version).filter(|(lowest, found)| !found.is_at_least(lowest));
        let version =
            version.map(|(lowest, cluster)| UnmetConstraint::Version { lowest: lowest.clone(), cluster });
        let missing = cluster
            .apis
            .iter()
            .flat_map(move |served| self.apis.iter().filter(move |api| !served.contains(*api)));
        version.into_iter().chain(missing.cloned().map(UnmetConstraint::Api))
    }

    pub(crate) fn memory(&self) -> usize {
        let api = |api: &GvkRef| size_of_val(api) + api.group.len() + api.version.len() + api.kind.len();
        size_of_val(self) + self.apis.iter().map(api).sum::<usize>()
    }
}

/// The constraints as a text about a bundle: `it needs …, and …`.
pub(crate) fn describe(unmet: &[UnmetConstraint]) -> String {
    unmet.iter().map(ToString::to_string).collect::<Vec<_>>().join(", and ")
}

impl fmt::Display for UnmetConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { lowest, cluster } => write!(
                f,
                "it needs Kubernetes {lowest} or later (minKubeVersion), and the cluster has {cluster}"
            ),
            Self::Api(GvkRef { group, version, kind }) => {
                let slash = if group.is_empty() { "" } else { "/" };
                write!(
                    f,
                    "it needs the API {group}{slash}{version} {kind} (nativeAPIs), which the cluster does not serve"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_core::lowest_kubernetes;

    use super::*;

    fn gvk(group: &str, version: &str, kind: &str) -> GvkRef {
        GvkRef { group: group.into(), version: version.into(), kind: kind.into() }
    }

    #[test]
    fn needs_unmet_name_the_value_of_the_cluster() {
        let cluster = |version: Option<&str>, apis: Option<&[GvkRef]>| ClusterFacts {
            version: version.map(|text| text.parse().unwrap()),
            apis: apis.map(|all| all.iter().cloned().collect()),
        };
        let (pod, foo) = (gvk("", "v1", "Pod"), gvk("foo.io", "v1", "Foo"));
        let needs = |lowest: &str, apis: &[&GvkRef]| Needs {
            lowest: lowest_kubernetes(lowest).ok(),
            apis: apis.iter().copied().cloned().collect(),
        };
        let none: [&str; 0] = [];
        let version = "it needs Kubernetes 1.40.0 or later (minKubeVersion), and the cluster has 1.33.1";
        let api = "it needs the API foo.io/v1 Foo (nativeAPIs), which the cluster does not serve";
        let core = "it needs the API v1 Pod (nativeAPIs), which the cluster does not serve";
        for (needs, cluster, want) in [
            (needs("", &[]), cluster(Some("1.33.1"), Some(&[])), none.as_slice()),
            (needs("1.40", &[]), cluster(Some("1.33.1"), None), &[version]),
            (needs("1.40", &[]), cluster(Some("1.40.0"), None), &[]),
            (needs("1.40", &[&foo]), cluster(None, None), &[]),
            (needs("", &[&pod, &foo]), cluster(None, Some(std::slice::from_ref(&pod))), &[api]),
            (needs("", &[&pod]), cluster(None, Some(&[])), &[core]),
            (
                needs("1.40", &[&foo]),
                cluster(Some("1.33.1"), Some(std::slice::from_ref(&pod))),
                &[version, api],
            ),
        ] {
            let found: Vec<String> = needs.unmet(&cluster).map(|unmet| unmet.to_string()).collect();
            assert_eq!(found, want, "{needs:?} {cluster:?}");
        }
    }

    #[test]
    fn environment_constraints_are_read_as_written() {
        let error = "skip".parse::<EnvironmentConstraints>().unwrap_err();
        assert_eq!(error.to_string(), "\"skip\" is neither Skip, Refuse nor Ignore");
    }
}
