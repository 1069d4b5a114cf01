//! From the typed contents of a package, as `olm-fbc` reads them, to a draft.

use olm_core::go;
use olm_fbc::{Bundle, PackageContents, Reference, property, schema};

use super::{
    BundleDraft, ChannelDraft, DeprecatedScope, EnvironmentDraft, Finding, GraphDraft, GvkRef, PackageGraph,
    Property, ReleaseField,
};

impl PackageGraph {
    /// The graph of one package of one catalog. `findings` are those of decoding; they join the graph's own.
    pub fn new(contents: PackageContents, findings: Vec<olm_fbc::Finding>, release: ReleaseField) -> Self {
        let mut draft = GraphDraft::from(contents);
        draft.findings.extend(findings.into_iter().map(|finding| Finding {
            place: format!("{} {}", finding.subject.schema, go::quote(&finding.subject.name)),
            message: finding.to_string(),
        }));
        draft.build(release)
    }
}

impl From<PackageContents> for GraphDraft {
    fn from(mut contents: PackageContents) -> Self {
        let (name, default_channel) = match contents.package {
            Some(package) => (package.name, package.default_channel),
            None => {
                let of_channels = contents.channels.iter().map(|channel| &channel.package);
                let of_bundles = contents.bundles.iter().map(|bundle| &bundle.package);
                (of_channels.chain(of_bundles).next().cloned().unwrap_or_default(), String::new())
            }
        };
        let channels = contents
            .channels
            .into_iter()
            .map(|channel| ChannelDraft { name: channel.name, entries: channel.entries });
        let mut findings = Vec::new();
        if contents.deprecations.len() > 1 {
            findings.push(Finding {
                place: "olm.deprecations".to_owned(),
                message: "there are several; the last one counts".to_owned(),
            });
        }
        // several blobs overwrite each other in the reference's cache, so only the last one is visible there
        let deprecations = contents.deprecations.pop().into_iter().flat_map(|blob| blob.entries);
        Self {
            package: name,
            default_channel,
            channels: channels.collect(),
            bundles: contents.bundles.into_iter().map(bundle).collect(),
            deprecations: deprecations
                .filter_map(|entry| Some((DeprecatedScope::from_reference(&entry.reference)?, entry.message)))
                .collect(),
            findings,
        }
    }
}

impl DeprecatedScope {
    /// What an entry of `olm.deprecations` refers to; `None` for another schema.
    pub fn from_reference(reference: &Reference) -> Option<Self> {
        match reference.schema.as_str() {
            schema::PACKAGE => Some(Self::Package),
            schema::CHANNEL => Some(Self::Channel(reference.name.as_str().into())),
            schema::BUNDLE => Some(Self::Bundle(reference.name.as_str().into())),
            _ => None,
        }
    }
}

impl From<&olm_fbc::Property> for Property {
    /// Without a value it is `null`.
    fn from(property: &olm_fbc::Property) -> Self {
        let value = property.value.as_ref().map_or("null", |value| value.as_str());
        Self { kind: property.kind.as_str().into(), value: value.into() }
    }
}

fn bundle(bundle: Bundle) -> BundleDraft {
    let version = if bundle.properties_of(property::PACKAGE).next().is_none() {
        Err(format!("no package property found in bundle {}", go::quote(&bundle.name)))
    } else {
        bundle.package_property().map(|package| (package.version, package.release))
    };
    let api = |api: property::GroupVersionKind| GvkRef {
        group: api.group.into(),
        version: api.version.into(),
        kind: api.kind.into(),
    };
    let environment = bundle.environment().map(|found| EnvironmentDraft {
        lowest: found.min_kube_version,
        apis: found.native_apis.into_iter().map(api).collect(),
    });
    BundleDraft {
        environment,
        name: bundle.name,
        image: bundle.image,
        version,
        properties: bundle
            .properties
            .into_iter()
            .map(|property| (property.kind, property.value.unwrap_or_default().into()))
            .collect(),
    }
}
