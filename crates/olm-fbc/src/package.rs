//! The contents of one package, decoded: what the resolver takes.
//!
//! Lenient on purpose (decision 26): what does not decode is left out and reported, the rest stays usable.
//! Graph rules are the business of `validate`.

use std::collections::HashMap;

use crate::{
    Meta,
    decode::read,
    finding::{Finding, Subject},
    schema::{
        BUNDLE, Bundle, CHANNEL, Channel, ChannelEntry, DEPRECATIONS, Deprecations, LooseChannel, PACKAGE,
        Package,
    },
};

/// Objects of one package. The largest known package has 180.
const MAX_PACKAGE_OBJECTS: usize = 50_000;
/// Entries of the channels of one package, and names that these skip. The largest known package has about 11,000.
const MAX_PACKAGE_ENTRIES: usize = 500_000;

/// Findings of decoding one package; further ones are left out.
const MAX_FINDINGS: usize = 1_000;

/// A package is not read, because it would take too much memory.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("package {package:?} has more than the limit of {limit} {what}")]
pub struct PackageLimitError {
    package: String,
    limit: usize,
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackageContents {
    /// The `olm.package` object; the last one if there are several.
    pub package: Option<Package>,
    /// Channels in catalog order; of equal names the last one.
    pub channels: Vec<Channel>,
    /// Bundles in catalog order; of equal names the last one.
    pub bundles: Vec<Bundle>,
    /// Deprecations in catalog order.
    pub deprecations: Vec<Deprecations>,
}

impl PackageContents {
    /// Decodes the objects of package `name` among `lines` (each one JSON object, as `catalog.jsonl` has
    /// them). Objects of other packages and of unknown schemas are passed over.
    ///
    /// # Errors
    /// With more than 50,000 objects, or 500,000 entries of channels and names that these skip.
    pub fn from_lines<I>(name: &str, lines: I) -> Result<(Self, Vec<Finding>), PackageLimitError>
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut reader = Reader::default();
        let mut findings = Vec::new();
        for line in lines {
            let line = line.as_ref();
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Meta::parse(line) {
                Ok(meta) if meta.is_of(name) => {
                    reader.add(&meta, &mut findings);
                    reader.check_limits(name)?;
                }
                Ok(_) => {}
                Err(problem) => {
                    let subject = Subject { package: name.to_owned(), ..Subject::default() };
                    push(&mut findings, || Finding::error("decode", subject, problem));
                }
            }
        }
        Ok((reader.found, findings))
    }

    /// As [`Self::from_lines`], for the bytes of a `catalog.jsonl` or of a `metas` answer.
    ///
    /// # Errors
    /// As [`Self::from_lines`].
    pub fn from_jsonl(name: &str, jsonl: &[u8]) -> Result<(Self, Vec<Finding>), PackageLimitError> {
        Self::from_lines(name, jsonl.split(|&byte| byte == b'\n'))
    }

    /// The content of one object that belongs to the package; nothing if it does not decode.
    pub(crate) fn of_object(meta: &Meta) -> Self {
        let mut reader = Reader::default();
        reader.add(meta, &mut Vec::new());
        reader.found
    }
}

/// Decodes one object after the other.
#[derive(Default)]
struct Reader {
    found: PackageContents,
    objects: usize,
    entries: usize,
    channels: Positions,
    bundles: Positions,
}

/// Where the item of a name is in its list.
type Positions = HashMap<String, usize>;

impl Reader {
    fn check_limits(&self, package: &str) -> Result<(), PackageLimitError> {
        let (limit, what) = if self.objects > MAX_PACKAGE_OBJECTS {
            (MAX_PACKAGE_OBJECTS, "objects")
        } else if self.entries > MAX_PACKAGE_ENTRIES {
            (MAX_PACKAGE_ENTRIES, "entries and skipped names in its channels")
        } else {
            return Ok(());
        };
        Err(PackageLimitError { package: package.to_owned(), limit, what })
    }

    /// Adds one object that belongs to the package.
    fn add(&mut self, meta: &Meta, findings: &mut Vec<Finding>) {
        self.objects += 1;
        let (rule, problem) = match self.decode(meta, findings) {
            Ok(None) => return,
            Ok(Some((rule, problem))) => (rule, problem),
            Err(problem) => ("decode", problem),
        };
        push(findings, || Finding::error(rule, Subject::from_meta(meta), problem));
    }

    /// Decodes one object and puts it where it belongs. `Some` is the rule that it breaks beside another one.
    fn decode(
        &mut self,
        meta: &Meta,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<(&'static str, String)>, String> {
        Ok(match meta.schema.as_str() {
            PACKAGE => match Package::from_json(&meta.blob) {
                Ok(package) => (self.found.package.replace(package).is_some())
                    .then(|| ("A2", format!("duplicate package {:?}", meta.name))),
                // the package object holds nothing that resolving needs but its presence
                Err(problem) => {
                    self.found.package.get_or_insert_with(|| Package {
                        schema: PACKAGE.to_owned(),
                        name: meta.name.clone(),
                        ..Package::default()
                    });
                    return Err(problem);
                }
            },
            CHANNEL => {
                let channel = channel(meta, findings)?;
                self.entries += channel.entries.iter().map(|entry| 1 + entry.skips.len()).sum::<usize>();
                let name = channel.name.clone();
                let replaced = place(&mut self.found.channels, &mut self.channels, name, channel);
                replaced.map(|old| {
                    ("A6", format!("package {:?} has duplicate channel {:?}", meta.package, old.name))
                })
            }
            BUNDLE => {
                let bundle = Bundle::from_json(&meta.blob)?;
                let name = bundle.name.clone();
                let replaced = place(&mut self.found.bundles, &mut self.bundles, name, bundle);
                replaced.map(|old| {
                    ("A10", format!("package {:?} has duplicate bundle {:?}", meta.package, old.name))
                })
            }
            DEPRECATIONS => {
                self.found.deprecations.push(Deprecations::from_json(&meta.blob)?);
                None
            }
            _ => None,
        })
    }
}

/// Adds a finding, unless there are too many.
fn push(findings: &mut Vec<Finding>, finding: impl FnOnce() -> Finding) {
    if findings.len() < MAX_FINDINGS {
        findings.push(finding());
    }
}

/// Puts `item` in place of one of the same name, which is returned, else at the end.
fn place<T>(list: &mut Vec<T>, positions: &mut Positions, name: String, item: T) -> Option<T> {
    let at = *positions.entry(name).or_insert(list.len());
    match list.get_mut(at) {
        Some(other) => Some(std::mem::replace(other, item)),
        None => {
            list.push(item);
            None
        }
    }
}

/// Reads a channel; entries that do not decode are left out.
fn channel(meta: &Meta, findings: &mut Vec<Finding>) -> Result<Channel, String> {
    if let Ok(channel) = Channel::from_json(&meta.blob) {
        if channel.name.is_empty() {
            push(findings, || nameless_channel(meta));
        }
        return Ok(channel);
    }
    let loose: LooseChannel = read(&meta.blob).map_err(|problem| format!("parse channel: {problem}"))?;
    let mut entries = Vec::new();
    for (index, entry) in loose.entries.iter().enumerate() {
        match entry.read::<ChannelEntry>() {
            Ok(entry) => entries.push(entry),
            Err(problem) => {
                let message = format!("parse channel: entries[{index}]: {problem}");
                push(findings, || {
                    Finding::error("decode", Subject::from_meta(meta), message)
                        .with_hint("the entry is left out")
                });
            }
        }
    }
    let LooseChannel { schema, name, package, properties, .. } = loose;
    Ok(Channel { schema, name, package, entries, properties })
}

/// A channel without a name, with a hint for objects that have `channel:` where `name:` is meant.
pub(crate) fn nameless_channel(meta: &Meta) -> Finding {
    let message = format!("package {:?} contains channel with no name", meta.package);
    let finding = Finding::error("A5", Subject::from_meta(meta), message);
    let written = serde_json::from_slice::<serde_json::Value>(&meta.blob).unwrap_or_default();
    match written.get("channel").and_then(serde_json::Value::as_str) {
        Some(name) => {
            finding.with_hint(format!("the object has \"channel: {name}\"; write \"name: {name}\" instead"))
        }
        None => finding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_is_read_from_many_lines() {
        let jsonl = br#"{"name":"foo","schema":"olm.package","defaultChannel":"stable"}
{"entries":[{"name":"foo.v1"},{"name":5},{"name":"foo.v2","replaces":"foo.v1","skips":["x"],"skipRange":"<2.0.0"}],"name":"stable","package":"foo","schema":"olm.channel"}
{"channel":"beta","package":"foo","schema":"olm.channel"}
{"image":"i","name":"foo.v1","package":"foo","properties":[{"type":"olm.package","value":{"packageName":"foo","version":"1.0.0"}}],"schema":"olm.bundle"}
{"image":7,"name":"foo.v2","package":"foo","schema":"olm.bundle"}
{"image":"j","name":"foo.v1","package":"foo","schema":"olm.bundle"}
{"name":"bar","schema":"olm.package"}
{"package":"bar","schema":"olm.channel","name":"stable"}
{"package":"foo","schema":"my.thing","name":"other"}
{"entries":[{"message":"old","reference":{"schema":"olm.package"}}],"package":"foo","schema":"olm.deprecations"}
{"broken
"#;
        let (found, findings) = PackageContents::from_jsonl("foo", jsonl).unwrap();
        assert_eq!(found.package.unwrap().default_channel, "stable");
        let names: Vec<_> = found.channels.iter().map(|c| (c.name.as_str(), c.entries.len())).collect();
        assert_eq!(names, [("stable", 2), ("", 0)]);
        assert_eq!(found.channels[0].entries[1].skips, ["x"]);
        assert_eq!(found.bundles.len(), 1);
        assert_eq!(found.bundles[0].image, "j");
        assert_eq!(found.deprecations[0].entries[0].message, "old");
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let want = [
            "parse channel: entries[1]: json: cannot unmarshal number into Go struct field ChannelEntry.name of type string; the entry is left out",
            "package \"foo\" contains channel with no name; the object has \"channel: beta\"; write \"name: beta\" instead",
            "parse bundle: json: cannot unmarshal number into Go struct field Bundle.image of type string",
            "package \"foo\" has duplicate bundle \"foo.v1\"",
            "unexpected EOF",
        ];
        assert_eq!(texts, want);
    }

    #[test]
    fn versions_come_from_the_package_property() {
        let bundle = |properties: &str| {
            let json = format!(r#"{{"name":"b","properties":{properties},"schema":"olm.bundle"}}"#);
            Bundle::from_json(json.as_bytes()).unwrap().package_property()
        };
        let found = bundle(
            r#"[{"type":"x"},{"type":"olm.package","value":{"packageName":"p","release":"","version":"1.0.0"}}]"#,
        );
        let found = found.unwrap();
        assert_eq!((found.package_name.as_str(), found.release.as_deref()), ("p", Some("")));
        assert_eq!(bundle("[]").unwrap_err(), "bundle \"b\" has no property of type \"olm.package\"");
        let want = "parse property[0] of type \"olm.package\": unexpected end of JSON input";
        assert_eq!(bundle(r#"[{"type":"olm.package"}]"#).unwrap_err(), want);
        let want = "parse property[0] of type \"olm.package\": json: cannot unmarshal number into Go struct field Package.version of type string";
        assert_eq!(bundle(r#"[{"type":"olm.package","value":{"version":1.1}}]"#).unwrap_err(), want);
    }

    /// Channels of one entry each, and names that it skips.
    fn channels(count: usize, skips: usize) -> impl Iterator<Item = String> {
        let skips = vec!["\"s\""; skips].join(",");
        (0..count).map(move |at| {
            format!(
                r#"{{"schema":"olm.channel","package":"p","name":"c{at}","entries":[{{"name":"e","skips":[{skips}]}}]}}"#
            )
        })
    }

    #[test]
    fn package_objects_and_entries_are_limited() {
        let problem = |lines: &mut dyn Iterator<Item = String>| {
            PackageContents::from_lines("p", lines).err().map(|error| error.to_string())
        };
        assert_eq!(problem(&mut channels(MAX_PACKAGE_OBJECTS, 0)), None);
        let want = "package \"p\" has more than the limit of 50000 objects";
        assert_eq!(problem(&mut channels(MAX_PACKAGE_OBJECTS + 1, 0)).unwrap(), want);
        assert_eq!(problem(&mut channels(500, 999)), None);
        let want =
            "package \"p\" has more than the limit of 500000 entries and skipped names in its channels";
        assert_eq!(problem(&mut channels(500, 1_000)).unwrap(), want);
    }
}
