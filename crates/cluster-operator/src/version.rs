//! The version of OpenShift that the cluster has. Rule: cluster-operator §5.3, §11 step 4.

use olm_core::openshift::Stream;

/// Where a version may be set for the life of the process, the first counts most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) flag: String,
    /// `OPERATOR_IMAGE_VERSION`, which OpenShift sets to the version of its release.
    pub(crate) image_version: String,
    /// `RELEASE_VERSION`, likewise.
    pub(crate) release_version: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Current {
    Known {
        /// As it was given, without spaces around it.
        version: String,
        /// Its `major.minor`.
        stream: Stream,
    },
    /// It is not, and why.
    Unknown(String),
}

impl Given {
    /// The version: the first that is set, and only if none is, the one of the ClusterVersion. One that is set and cannot be read
    /// is not passed over, as it was set on purpose.
    #[must_use]
    pub(crate) fn current(&self, cluster_version: Option<&str>) -> Current {
        let sources = [
            ("--openshift-version", Some(self.flag.as_str())),
            ("OPERATOR_IMAGE_VERSION", Some(&self.image_version)),
            ("RELEASE_VERSION", Some(&self.release_version)),
            ("status.desired.version of ClusterVersion version", cluster_version),
        ];
        let set = sources.into_iter().find_map(|(source, text)| {
            let text = text?.trim();
            (!text.is_empty()).then_some((source, text))
        });
        let Some((source, text)) = set else {
            return Current::Unknown(
                "no OpenShift version is known: set --openshift-version or OPERATOR_IMAGE_VERSION, or create the ClusterVersion \
                 version"
                    .to_owned(),
            );
        };
        match Stream::of_version(text) {
            Ok(stream) => Current::Known { version: text.to_owned(), stream },
            Err(error) => {
                Current::Unknown(format!("no OpenShift version is known: {source} is set, but {error}"))
            }
        }
    }

    /// Whether the ClusterVersion does not count.
    #[must_use]
    pub(crate) fn is_fixed(&self) -> bool {
        [&self.flag, &self.image_version, &self.release_version].iter().any(|text| !text.trim().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn version_is_the_first_that_is_set() {
        let given = |flag: &str, image: &str, release: &str| Given {
            flag: flag.to_owned(),
            image_version: image.to_owned(),
            release_version: release.to_owned(),
        };
        for (given, cluster, want) in [
            (given("4.20.1", "4.19.0", "4.18.0"), Some("4.17.0"), "4.20.1 of 4.20"),
            (given("", "4.19.0", "4.18.0"), Some("4.17.0"), "4.19.0 of 4.19"),
            (given("", " ", "4.18.0"), Some("4.17.0"), "4.18.0 of 4.18"),
            (given("", "", ""), Some(" 4.17.0-rc.2\n"), "4.17.0-rc.2 of 4.17"),
            (given("", "", ""), None, "no OpenShift version is known: set --openshift-version or"),
            (given("", "", ""), Some(""), "no OpenShift version is known: set --openshift-version or"),
            // case 46: what is set and wrong is not passed over
            (given("", "4.18", ""), Some("4.17.0"), "no OpenShift version is known: OPERATOR_IMAGE_VERSION is set, but \"4.18\""),
            (given("", "abc", ""), Some("4.17.0"), "no OpenShift version is known: OPERATOR_IMAGE_VERSION is set, but \"abc\""),
            (given("", "0.0.1-snapshot", ""), None, "0.0.1-snapshot of 0.0"),
        ] {
            let got = match given.current(cluster) {
                Current::Known { version, stream } => format!("{version} of {stream}"),
                Current::Unknown(why) => why,
            };
            assert!(got.starts_with(want), "{given:?}, {cluster:?}: {got}");
        }
        assert!(!given("", " ", "").is_fixed() && given("", "", "x").is_fixed());
    }
}
