//! One small object for each package: what a list of operators or a dependency check needs, instead of the
//! whole catalog (served by catalogd beside the reference's endpoints).

use std::collections::{BTreeMap, BTreeSet};

use olm_core::VersionRelease;
use serde::Serialize;

use crate::{
    Bundle, Channel, PackageContents,
    property::{self, CsvMetadata, Gvk},
    schema::{BUNDLE, CHANNEL, PACKAGE},
};

/// A package in brief.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageSummary {
    /// Name.
    pub name: String,
    /// Name for users, from the newest bundle of the default channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Who provides it, from the same bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The channel used when none is named.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_channel: String,
    /// Channels, by name.
    pub channels: Vec<ChannelSummary>,
    /// The highest version, of bundles that are not deprecated if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<BundleSummary>,
    /// The logo, which is not part of the summary: its type and size, and where to fetch it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<IconReference>,
    /// Why the package is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
    /// APIs that its bundles provide.
    pub provided_apis: Vec<ProvidedApi>,
}

/// A channel in brief.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelSummary {
    /// Name.
    pub name: String,
    /// Entries that no other entry replaces or skips; one in a sound channel.
    pub heads: Vec<BundleSummary>,
    /// How many entries it has.
    pub entries: usize,
    /// Why it is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
}

/// A bundle in brief.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleSummary {
    /// Name.
    pub name: String,
    /// Version as written, empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Release as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Why it is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
}

/// Where a package's logo is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IconReference {
    /// Media type, as the author says.
    pub media_type: String,
    /// Bytes of the image.
    pub size: usize,
    /// Query of the `metas` endpoint that gives the object which holds it.
    pub query: String,
}

/// An API and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProvidedApi {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Whether the newest bundle provides it.
    pub in_latest: bool,
}

/// Sums up one package from its objects, given as lines of `catalog.jsonl`. What does not decode is left out.
pub fn summary<I>(name: &str, lines: I) -> PackageSummary
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let (contents, _) = PackageContents::from_lines(name, lines);
    summarise(name, &contents)
}

/// Sums up one decoded package.
pub fn summarise(name: &str, contents: &PackageContents) -> PackageSummary {
    let deprecations = contents.deprecations.first();
    let deprecated = |schema: &str, name: &str| {
        let entries = deprecations.into_iter().flat_map(|deprecations| &deprecations.entries);
        let mut found =
            entries.filter(|entry| entry.reference.schema == schema && entry.reference.name == name);
        found.next().map(|entry| entry.message.clone())
    };
    let bundles: BTreeMap<&str, &Bundle> =
        contents.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
    let brief = |name: &str| {
        let package = bundles.get(name).and_then(|bundle| bundle.package_property().ok()).unwrap_or_default();
        BundleSummary {
            name: name.to_owned(),
            version: package.version,
            release: package.release,
            deprecation: deprecated(BUNDLE, name),
        }
    };
    let mut channels: Vec<ChannelSummary> = contents
        .channels
        .iter()
        .map(|channel| ChannelSummary {
            name: channel.name.clone(),
            heads: heads(channel).into_iter().map(brief).collect(),
            entries: channel.entries.len(),
            deprecation: deprecated(CHANNEL, &channel.name),
        })
        .collect();
    channels.sort_by(|a, b| a.name.cmp(&b.name));
    let ordered = |bundle: &&Bundle| {
        let package = bundle.package_property().ok()?;
        let version = VersionRelease::parse(&package.version, package.release.as_deref()).ok()?;
        Some((deprecated(BUNDLE, &bundle.name).is_none(), version))
    };
    let latest = contents.bundles.iter().filter(|bundle| ordered(bundle).is_some()).max_by_key(ordered);
    let package = contents.package.as_ref();
    let default_channel = package.map(|package| package.default_channel.clone()).unwrap_or_default();
    let shown = channels
        .iter()
        .find(|channel| channel.name == default_channel)
        .and_then(|channel| channel.heads.first())
        .and_then(|head| bundles.get(head.name.as_str()).copied())
        .or(latest);
    let metadata = shown.and_then(csv_metadata).unwrap_or_default();
    let icon = package.and_then(|package| package.icon.as_ref()).filter(|icon| !icon.data.0.is_empty());
    PackageSummary {
        name: name.to_owned(),
        display_name: metadata.display_name,
        provider: metadata.provider.name,
        default_channel,
        channels,
        latest: latest.map(|bundle| brief(&bundle.name)),
        icon: icon.map(|icon| IconReference {
            media_type: icon.media_type.clone(),
            size: icon.data.0.len(),
            query: format!("schema={PACKAGE}&name={}", percent_encoded(name)),
        }),
        deprecation: deprecated(PACKAGE, ""),
        provided_apis: provided_apis(&contents.bundles, latest),
    }
}

fn csv_metadata(bundle: &Bundle) -> Option<CsvMetadata> {
    let mut found = bundle.properties_of(property::CSV_METADATA);
    found.find_map(|property| property.read(0).ok())
}

fn heads(channel: &Channel) -> Vec<&str> {
    let named: BTreeSet<&str> = channel
        .entries
        .iter()
        .flat_map(|entry| entry.skips.iter().chain([&entry.replaces]).map(String::as_str))
        .collect();
    channel.entries.iter().map(|entry| entry.name.as_str()).filter(|name| !named.contains(name)).collect()
}

fn provided_apis(bundles: &[Bundle], latest: Option<&Bundle>) -> Vec<ProvidedApi> {
    let of = |bundle: &Bundle| -> Vec<Gvk> {
        bundle.properties_of(property::GVK).filter_map(|property| property.read(0).ok()).collect()
    };
    let newest = latest.map(of).unwrap_or_default();
    let mut apis: Vec<ProvidedApi> = bundles
        .iter()
        .flat_map(of)
        .map(|gvk| ProvidedApi {
            in_latest: newest.contains(&gvk),
            group: gvk.group,
            version: gvk.version,
            kind: gvk.kind,
        })
        .collect();
    apis.sort();
    apis.dedup();
    apis
}

fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IngestLimits, load_files};

    #[test]
    fn a_package_in_brief() {
        let yaml = r#"
schema: olm.package
name: foo bar
defaultChannel: stable
icon: {base64data: aGVsbG8=, mediatype: image/png}
---
schema: olm.channel
package: foo bar
name: stable
entries:
- {name: foo.v1}
- {name: foo.v2, replaces: foo.v1}
---
schema: olm.channel
package: foo bar
name: alpha
entries: [{name: foo.v3, skips: [foo.v2]}, {name: foo.v2}, {name: gone}]
---
schema: olm.bundle
package: foo bar
name: foo.v1
properties:
- {type: olm.package, value: {packageName: foo bar, version: 1.10.0}}
- {type: olm.gvk, value: {group: g, kind: Old, version: v1}}
- {type: olm.gvk, value: {group: g, kind: Foo, version: v1}}
---
schema: olm.bundle
package: foo bar
name: foo.v2
properties:
- {type: olm.package, value: {packageName: foo bar, version: 1.9.0}}
- {type: olm.gvk, value: {group: g, kind: Foo, version: v1}}
- {type: olm.csv.metadata, value: {displayName: The Foo, provider: {name: Us}}}
---
schema: olm.bundle
package: foo bar
name: foo.v3
properties: [{type: olm.package, value: {packageName: foo bar, version: 2.0.0, release: "1"}}]
---
schema: olm.bundle
package: foo bar
name: odd
properties: [{type: olm.package, value: {packageName: foo bar, version: two}}]
---
schema: olm.deprecations
package: foo bar
entries:
- {reference: {schema: olm.bundle, name: foo.v3}, message: broken}
- {reference: {schema: olm.channel, name: alpha}, message: use stable}
"#;
        let catalog = load_files([("c.yaml", yaml)], IngestLimits::default()).unwrap();
        let found = summary("foo bar", catalog.package_lines("foo bar"));
        insta::assert_snapshot!(serde_json::to_string_pretty(&found).unwrap());
    }

    #[test]
    fn nothing_known_is_fine() {
        let found = summary("x", [br#"{"schema":"olm.channel","package":"x","name":"c","entries":[]}"#]);
        assert_eq!(found.channels[0].heads, []);
        assert_eq!(found.latest, None);
    }
}
