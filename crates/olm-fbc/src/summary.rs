//! One small object for each package: what a list of operators or a dependency check needs, instead of the
//! whole catalog. catalogd serves one a line at `/api/v1/packages`, beside the reference's endpoints.
//!
//! A package is summed up object by object, so that memory does not grow with it. What does not decode is left
//! out; nothing is judged here. The JSON form is [`PackageSummary`]'s, written and read by the same types.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::VersionRelease;
use serde::{Deserialize, Serialize};

use crate::{
    Bundle, Deprecations, Meta, Package, PackageContents,
    property::{self, CsvTitle, Gvk},
    schema::{BUNDLE, CHANNEL, PACKAGE},
};

/// Characters of a description.
const MAX_EXCERPT: usize = 500;
/// Keywords of a package.
const MAX_KEYWORDS: usize = 20;
/// About how many bytes of memory an item takes beside its words.
const ITEM: usize = 100;

/// A package in brief.
///
/// ```
/// # let json = r#"
/// {
///   "name": "foo",
///   "displayName": "The Foo",
///   "provider": "Example",
///   "excerpt": "Makes foos.",
///   "keywords": ["foo", "bar"],
///   "defaultChannel": "stable",
///   "channels": [
///     {"name": "stable", "heads": [{"name": "foo.v2", "version": "2.0.0"}], "entries": 2},
///     {"name": "alpha", "heads": [{"name": "foo.v3", "version": "3.0.0", "release": "1", "deprecation": "broken"}],
///      "entries": 1, "deprecation": "use stable"}
///   ],
///   "latest": {"name": "foo.v2", "version": "2.0.0"},
///   "icon": {"mediaType": "image/png", "size": 5, "query": "schema=olm.package&name=foo"},
///   "deprecation": "use bar",
///   "providedApis": [{"group": "foo.io", "version": "v1", "kind": "Foo", "inLatest": true}]
/// }
/// # "#;
/// # let read: olm_fbc::PackageSummary = serde_json::from_str(json).unwrap();
/// # assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::from_str::<serde_json::Value>(json).unwrap());
/// ```
///
/// `name`, `channels` and `providedApis` are always there; the other members only when they are known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PackageSummary {
    pub name: String,
    /// Name for users, from the newest bundle of the default channel.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Who provides it, from the same bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The begin of the description, on one line, from the same bundle, else the package's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
    /// Words to find it by, from the same bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keywords: Vec<String>,
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
    /// APIs that its bundles provide, each once, sorted.
    pub provided_apis: Vec<ProvidedApi>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelSummary {
    pub name: String,
    /// Entries that no other entry replaces or skips, highest version first; one in a sound channel.
    pub heads: Vec<BundleSummary>,
    pub entries: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BundleSummary {
    pub name: String,
    /// Version as written, empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Release as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IconReference {
    /// Media type, as the author declares it.
    pub media_type: String,
    pub size: usize,
    /// Query of the `metas` endpoint that gives the object which holds it.
    pub query: String,
}

/// An API that some bundle of the package provides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProvidedApi {
    pub group: String,
    pub version: String,
    pub kind: String,
    /// Whether the bundle named by [`PackageSummary::latest`] provides it.
    pub in_latest: bool,
}

/// Sums up one package from its objects, given as lines of `catalog.jsonl`. What does not decode is left out.
pub fn summary<I>(name: &str, lines: I) -> PackageSummary
where
    I: IntoIterator,
    I::Item: AsRef<[u8]>,
{
    let mut summariser = Summariser::new(name);
    for line in lines {
        if let Ok(meta) = Meta::parse(line.as_ref()) {
            summariser.add(&meta);
        }
    }
    summariser.finish()
}

pub fn summarise(name: &str, contents: &PackageContents) -> PackageSummary {
    let mut summariser = Summariser::new(name);
    summariser.absorb(contents);
    summariser.finish()
}

/// Sums up one package while its objects pass by; keeps a few words of each.
#[derive(Debug)]
pub struct Summariser {
    name: String,
    default_channel: String,
    description: String,
    icon: Option<IconReference>,
    channels: BTreeMap<String, ChannelFacts>,
    bundles: BTreeMap<String, BundleFacts>,
    /// The last object of its kind; no other counts, as in the resolver.
    deprecations: Option<Deprecations>,
    /// See [`Self::held`].
    held: usize,
}

#[derive(Debug)]
struct ChannelFacts {
    heads: Vec<String>,
    entries: usize,
}

#[derive(Debug)]
struct BundleFacts {
    version: String,
    release: Option<String>,
    order: Option<VersionRelease>,
    apis: Vec<Gvk>,
    title: Option<CsvTitle>,
}

impl Summariser {
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            default_channel: String::new(),
            description: String::new(),
            icon: None,
            channels: BTreeMap::new(),
            bundles: BTreeMap::new(),
            deprecations: None,
            held: 0,
        }
    }

    /// Takes in one object. Those of other packages and of unknown schemas are passed over.
    pub fn add(&mut self, meta: &Meta) {
        if meta.is_of(&self.name) {
            self.absorb(&PackageContents::of_object(meta));
        }
    }

    fn absorb(&mut self, contents: &PackageContents) {
        if let Some(package) = &contents.package {
            self.default_channel.clone_from(&package.default_channel);
            self.description = excerpt(&package.description);
            self.icon = self.icon_of(package);
        }
        for channel in &contents.channels {
            let heads: Vec<String> = channel.heads().into_iter().map(str::to_owned).collect();
            self.held +=
                ITEM + channel.name.len() + heads.iter().map(|head| ITEM + head.len()).sum::<usize>();
            let facts = ChannelFacts { heads, entries: channel.entries.len() };
            self.channels.insert(channel.name.clone(), facts);
        }
        for bundle in &contents.bundles {
            let facts = facts(bundle);
            self.held += ITEM + bundle.name.len() + facts.held();
            self.bundles.insert(bundle.name.clone(), facts);
        }
        if let Some(last) = contents.deprecations.last() {
            self.deprecations = Some(last.clone());
        }
    }

    fn icon_of(&self, package: &Package) -> Option<IconReference> {
        let icon = package.icon.as_ref().filter(|icon| !icon.data.0.is_empty())?;
        Some(IconReference {
            media_type: icon.media_type.clone(),
            size: icon.data.0.len(),
            query: format!("schema={PACKAGE}&name={}", percent_encoded(&self.name)),
        })
    }

    /// About how many bytes of memory the channels and bundles take that have been taken in.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }

    /// About how many bytes of memory the summary will take. It repeats words: a bundle at the head of many channels is in each of them,
    /// with the message of its deprecation.
    #[must_use]
    pub fn size(&self) -> usize {
        let messages = messages(self.deprecations.as_ref());
        let message = |schema: &str, name: &str| messages.get(&(schema, name)).map_or(0, |text| text.len());
        let heads = self.channels.values().flat_map(|facts| &facts.heads).map(|name| {
            let version = self.bundles.get(name).map_or(0, BundleFacts::version_bytes);
            ITEM + name.len() + version + message(BUNDLE, name)
        });
        let channels = self.channels.keys().map(|name| ITEM + name.len() + message(CHANNEL, name));
        self.held + heads.sum::<usize>() + channels.sum::<usize>()
    }

    /// The summary of what has been taken in.
    #[must_use]
    pub fn finish(self) -> PackageSummary {
        let messages = messages(self.deprecations.as_ref());
        let deprecated =
            |schema: &str, name: &str| messages.get(&(schema, name)).map(|text| (*text).to_owned());
        let brief = |name: &str| {
            let facts = self.bundles.get(name);
            BundleSummary {
                name: name.to_owned(),
                version: facts.map(|facts| facts.version.clone()).unwrap_or_default(),
                release: facts.and_then(|facts| facts.release.clone()),
                deprecation: deprecated(BUNDLE, name),
            }
        };
        let order = |name: &str| self.bundles.get(name).and_then(|facts| facts.order.as_ref());
        let channels: Vec<ChannelSummary> = self
            .channels
            .iter()
            .map(|(name, facts)| {
                let mut heads: Vec<&str> = facts.heads.iter().map(String::as_str).collect();
                heads.sort_by(|a, b| order(b).cmp(&order(a)));
                ChannelSummary {
                    name: name.clone(),
                    heads: heads.into_iter().map(brief).collect(),
                    entries: facts.entries,
                    deprecation: deprecated(CHANNEL, name),
                }
            })
            .collect();
        let known = self.bundles.iter().filter(|(_, facts)| facts.order.is_some());
        let latest = known
            .max_by_key(|(name, facts)| (!messages.contains_key(&(BUNDLE, name.as_str())), &facts.order));
        let shown = channels
            .iter()
            .find(|channel| channel.name == self.default_channel)
            .and_then(|channel| self.bundles.get(&channel.heads.first()?.name))
            .or(latest.map(|(_, facts)| facts));
        let title = shown.and_then(|facts| facts.title.clone()).unwrap_or_default();
        PackageSummary {
            display_name: title.display_name,
            provider: title.provider.name,
            excerpt: if title.description.is_empty() { self.description.clone() } else { title.description },
            keywords: title.keywords,
            latest: latest.map(|(name, _)| brief(name)),
            deprecation: deprecated(PACKAGE, ""),
            provided_apis: self.provided_apis(latest.map(|(_, facts)| facts)),
            channels,
            name: self.name,
            default_channel: self.default_channel,
            icon: self.icon,
        }
    }

    fn provided_apis(&self, latest: Option<&BundleFacts>) -> Vec<ProvidedApi> {
        let newest: BTreeSet<[&str; 3]> =
            latest.into_iter().flat_map(|facts| &facts.apis).map(words).collect();
        let every = self.bundles.values().flat_map(|facts| &facts.apis);
        let every: BTreeSet<ProvidedApi> = every
            .map(|api| ProvidedApi {
                in_latest: newest.contains(&words(api)),
                group: api.group.clone(),
                version: api.version.clone(),
                kind: api.kind.clone(),
            })
            .collect();
        every.into_iter().collect()
    }
}

impl BundleFacts {
    fn version_bytes(&self) -> usize {
        self.version.len() + self.release.as_ref().map_or(0, String::len)
    }

    /// Bytes of memory, about.
    fn held(&self) -> usize {
        let apis = self.apis.iter().flat_map(words).map(|word| ITEM + word.len());
        let title = self.title.as_ref().map_or(0, |title| {
            let keywords = title.keywords.iter().map(|word| ITEM + word.len());
            let name = title.display_name.len() + title.provider.name.len();
            ITEM + name + title.description.len() + keywords.sum::<usize>()
        });
        self.version_bytes() + apis.sum::<usize>() + title
    }
}

fn words(api: &Gvk) -> [&str; 3] {
    [&api.group, &api.version, &api.kind]
}

/// Messages by the schema and name of what they deprecate; the first one counts.
fn messages(deprecations: Option<&Deprecations>) -> BTreeMap<(&str, &str), &str> {
    let mut messages = BTreeMap::new();
    for entry in deprecations.into_iter().flat_map(|found| &found.entries) {
        let schema = entry.reference.schema.as_str();
        let name = if schema == PACKAGE { "" } else { entry.reference.name.as_str() };
        messages.entry((schema, name)).or_insert(entry.message.as_str());
    }
    messages
}

fn facts(bundle: &Bundle) -> BundleFacts {
    let package = bundle.package_property().unwrap_or_default();
    BundleFacts {
        order: VersionRelease::parse(&package.version, package.release.as_deref()).ok(),
        version: package.version,
        release: package.release,
        apis: bundle.properties_of(property::GVK).filter_map(|property| property.read(0).ok()).collect(),
        title: bundle.properties_of(property::CSV_METADATA).find_map(title),
    }
}

fn title(property: &property::Property) -> Option<CsvTitle> {
    let mut title: CsvTitle = property.read(0).ok()?;
    title.description = excerpt(&title.description);
    title.keywords.truncate(MAX_KEYWORDS);
    Some(title)
}

/// The begin of a description on one line.
fn excerpt(description: &str) -> String {
    let mut text = String::new();
    for word in description.split_whitespace() {
        if text.chars().count() >= MAX_EXCERPT {
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
    }
    text.chars().take(MAX_EXCERPT).collect()
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
    fn summary_describes_a_package() {
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
- {type: olm.csv.metadata, value: {displayName: The Foo, provider: {name: Example}, description: Makes foos., keywords: [dns, storage]}}
---
schema: olm.bundle
package: foo bar
name: foo.v3
properties: [{type: olm.package, value: {packageName: foo bar, version: 2.0.0, release: "1"}}]
---
schema: olm.bundle
package: foo bar
name: unversioned
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
    fn summary_takes_the_last_of_several_deprecations() {
        let blob = |message: &str| {
            format!(
                r#"{{"schema":"olm.deprecations","package":"x","entries":[{{"reference":{{"schema":"olm.package"}},"message":"{message}"}}]}}"#
            )
        };
        assert_eq!(summary("x", [blob("one"), blob("two")]).deprecation.as_deref(), Some("two"));
    }

    #[test]
    fn summary_excerpt_is_one_bounded_line() {
        for (description, want) in [
            ("", String::new()),
            ("# A\n\n  b\tc ", "# A b c".to_owned()),
            (&"ü ".repeat(900), "ü ".repeat(250)),
            (&"x".repeat(900), "x".repeat(500)),
        ] {
            assert_eq!(excerpt(description).trim_end(), want.trim_end(), "{description}");
        }
    }

    #[test]
    fn summary_size_counts_what_channels_repeat() {
        let mut summariser = Summariser::new("x");
        let mut add = |line: String| {
            summariser.add(&Meta::parse(line.as_bytes()).unwrap());
            (summariser.held(), summariser.size())
        };
        let (long, api) = ("m".repeat(10_000), r#"{"type":"olm.gvk","value":{"group":"g"}}"#);
        let (bundle, _) = add(format!(
            r#"{{"schema":"olm.bundle","package":"x","name":"b","properties":[{api},{{"type":"olm.csv.metadata","value":{{"displayName":"{long}"}}}}]}}"#
        ));
        assert!((10_000..11_000).contains(&bundle), "{bundle}");
        let with_message = add(format!(
            r#"{{"schema":"olm.deprecations","package":"x","entries":[{{"reference":{{"schema":"olm.bundle","name":"b"}},"message":"{long}"}}]}}"#
        ));
        assert_eq!(with_message, (bundle, bundle), "no channel shows it");
        let (mut held, mut size) = (0, 0);
        for n in 0..100 {
            let name = format!("c{n}");
            (held, size) = add(format!(
                r#"{{"schema":"olm.channel","package":"x","name":"{name}","entries":[{{"name":"b"}}]}}"#
            ));
        }
        assert!(held < bundle + 100 * 300, "{held}");
        let written = serde_json::to_vec(&summariser.finish()).unwrap().len();
        assert!(written > 1_000_000 && (written..written + 100_000).contains(&size), "{written} {size}");
    }

    #[test]
    fn summary_of_an_empty_package() {
        let found = summary("x", [br#"{"schema":"olm.channel","package":"x","name":"c","entries":[]}"#]);
        assert_eq!(found.channels[0].heads, []);
        assert_eq!(found.latest, None);
    }
}
