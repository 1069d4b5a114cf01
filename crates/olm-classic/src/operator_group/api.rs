//! The APIs that operators provide, and their written forms.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use olm_api::classic::ClusterServiceVersion;

/// A kind of an API in one version. Written as `Kind.version.group`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Api {
    pub kind: String,
    pub version: String,
    /// Empty for the core group.
    pub group: String,
}

/// A text that is no API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no API; write it as Kind.version.group")]
pub struct ApiError(String);

impl Api {
    /// The part of aggregation labels that stands for the API: FNV-1a of 64 bits over its text, in hexadecimal without padding.
    #[must_use]
    pub fn hash(&self) -> String {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let text = self.to_string();
        let hash = text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        format!("{hash:x}")
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.kind, self.version, self.group)
    }
}

impl FromStr for Api {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        let mut parts = text.splitn(3, '.');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(kind), Some(version), Some(group)) if !kind.is_empty() && !version.is_empty() => {
                Ok(Self { kind: kind.to_owned(), version: version.to_owned(), group: group.to_owned() })
            }
            _ => Err(ApiError(text.to_owned())),
        }
    }
}

/// Several APIs. Prints as the annotation `olm.providedAPIs`: sorted by text, with commas between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiSet(pub BTreeSet<Api>);

impl ApiSet {
    /// Reads the annotation. Entries that are no APIs are left out and returned as errors, in order.
    #[must_use]
    pub fn parse(annotation: &str) -> (Self, Vec<ApiError>) {
        let (mut apis, mut errors) = (BTreeSet::new(), Vec::new());
        for entry in annotation.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.parse() {
                Ok(api) => {
                    apis.insert(api);
                }
                Err(error) => errors.push(error),
            }
        }
        (Self(apis), errors)
    }

    #[must_use]
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.0.is_disjoint(&other.0)
    }

    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).cloned().collect())
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    /// The APIs that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }
}

impl fmt::Display for ApiSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: BTreeSet<String> = self.0.iter().map(Api::to_string).collect();
        f.write_str(&texts.into_iter().collect::<Vec<_>>().join(","))
    }
}

/// The APIs that the CSV owns: those of its CustomResourceDefinitions, whose names are `PLURAL.GROUP`, and of its APIServices.
#[must_use]
pub fn provided(csv: &ClusterServiceVersion) -> ApiSet {
    let crds = csv.spec.custom_resource_definitions.iter().flat_map(|crds| &crds.owned).map(|crd| Api {
        kind: crd.kind.clone(),
        version: crd.version.clone(),
        group: crd.name.split_once('.').map_or("", |(_, group)| group).to_owned(),
    });
    let services = csv.spec.api_service_definitions.iter().flat_map(|services| &services.owned);
    let services = services.map(|service| Api {
        kind: service.kind.clone(),
        version: service.version.clone(),
        group: service.group.clone(),
    });
    ApiSet(crds.chain(services).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_hash_is_the_recorded_one() {
        for (api, hash) in [
            ("Widget.v1.og-ok-global.lab.test", "67c93c3ae5c97fc0"),
            ("Widget.v1.og-conflict.lab.test", "f9da6fff038c288e"),
        ] {
            assert_eq!(api.parse::<Api>().unwrap().hash(), hash, "{api}");
        }
    }

    #[test]
    fn api_set_reads_and_prints_the_annotation() {
        for (text, print, errors) in [
            ("", "", 0),
            ("B.v1.x.io,A.v1.y.io", "A.v1.y.io,B.v1.x.io", 0),
            (" A.v1.y.io ,A.v1.y.io,", "A.v1.y.io", 0),
            ("Pod.v1.", "Pod.v1.", 0),
            ("A.v1.y.io,nonsense,.v1.x.io,Kind..x", "A.v1.y.io", 3),
        ] {
            let (set, wrong) = ApiSet::parse(text);
            assert_eq!((set.to_string().as_str(), wrong.len()), (print, errors), "{text}");
        }
        let error = "nonsense".parse::<Api>().unwrap_err().to_string();
        assert_eq!(error, "\"nonsense\" is no API; write it as Kind.version.group");
    }
}
