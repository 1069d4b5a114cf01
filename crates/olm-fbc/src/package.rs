//! The contents of one package, decoded: what the resolver takes.
//!
//! Lenient on purpose (decision 26): what does not decode is left out and reported, the rest stays usable.
//! Graph rules are the business of `validate`.

use crate::{
    Meta,
    decode::read,
    finding::{Finding, Subject},
    schema::{
        BUNDLE, Bundle, CHANNEL, Channel, ChannelEntry, DEPRECATIONS, Deprecations, LooseChannel, PACKAGE,
        Package,
    },
};

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
    pub fn from_lines<I>(name: &str, lines: I) -> (Self, Vec<Finding>)
    where
        I: IntoIterator,
        I::Item: AsRef<[u8]>,
    {
        let mut found = Self::default();
        let mut findings = Vec::new();
        for line in lines {
            let line = line.as_ref();
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match Meta::parse(line) {
                Ok(meta) if meta.is_of(name) => found.add(&meta, &mut findings),
                Ok(_) => {}
                Err(problem) => {
                    let subject = Subject { package: name.to_owned(), ..Subject::default() };
                    findings.push(Finding::error("decode", subject, problem));
                }
            }
        }
        (found, findings)
    }

    /// As [`Self::from_lines`], for the bytes of a `catalog.jsonl` or of a `metas` answer.
    pub fn from_jsonl(name: &str, jsonl: &[u8]) -> (Self, Vec<Finding>) {
        Self::from_lines(name, jsonl.split(|&byte| byte == b'\n'))
    }

    /// Adds one object that belongs to the package.
    pub fn add(&mut self, meta: &Meta, findings: &mut Vec<Finding>) {
        let (rule, problem) = match self.decode(meta, findings) {
            Ok(None) => return,
            Ok(Some((rule, problem))) => (rule, problem),
            Err(problem) => ("decode", problem),
        };
        findings.push(Finding::error(rule, Subject::from_meta(meta), problem));
    }

    /// Decodes one object and puts it where it belongs. `Some` is the rule that it breaks beside another one.
    fn decode(
        &mut self,
        meta: &Meta,
        findings: &mut Vec<Finding>,
    ) -> Result<Option<(&'static str, String)>, String> {
        Ok(match meta.schema.as_str() {
            PACKAGE => match Package::from_json(&meta.blob) {
                Ok(package) => (self.package.replace(package).is_some())
                    .then(|| ("A2", format!("duplicate package {:?}", meta.name))),
                // the package object holds nothing that resolving needs but its presence
                Err(problem) => {
                    self.package.get_or_insert_with(|| Package {
                        schema: PACKAGE.to_owned(),
                        name: meta.name.clone(),
                        ..Package::default()
                    });
                    return Err(problem);
                }
            },
            CHANNEL => {
                let replaced = place(&mut self.channels, channel(meta, findings)?, |channel| &channel.name);
                replaced.map(|old| {
                    ("A6", format!("package {:?} has duplicate channel {:?}", meta.package, old.name))
                })
            }
            BUNDLE => {
                let replaced =
                    place(&mut self.bundles, Bundle::from_json(&meta.blob)?, |bundle| &bundle.name);
                replaced.map(|old| {
                    ("A10", format!("package {:?} has duplicate bundle {:?}", meta.package, old.name))
                })
            }
            DEPRECATIONS => {
                self.deprecations.push(Deprecations::from_json(&meta.blob)?);
                None
            }
            _ => None,
        })
    }
}

/// Puts `item` in place of one of the same name, which is returned, else at the end.
fn place<T>(list: &mut Vec<T>, item: T, name: impl Fn(&T) -> &String) -> Option<T> {
    match list.iter_mut().find(|other| name(other) == name(&item)) {
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
            findings.push(nameless_channel(meta));
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
                findings.push(
                    Finding::error("decode", Subject::from_meta(meta), message)
                        .with_hint("the entry is left out"),
                );
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
            finding.with_hint(format!("the object says \"channel: {name}\"; write \"name: {name}\" instead"))
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
        let (found, findings) = PackageContents::from_jsonl("foo", jsonl);
        assert_eq!(found.package.unwrap().default_channel, "stable");
        let names: Vec<_> = found.channels.iter().map(|c| (c.name.as_str(), c.entries.len())).collect();
        assert_eq!(names, [("stable", 2), ("", 0)]);
        assert_eq!(found.channels[0].entries[1].skips, ["x"]);
        assert_eq!(found.bundles.len(), 1);
        assert_eq!(found.bundles[0].image, "j");
        assert_eq!(found.deprecations[0].entries[0].message, "old");
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "parse channel: entries[1]: json: cannot unmarshal number into Go struct field ChannelEntry.name of type string; the entry is left out",
                "package \"foo\" contains channel with no name; the object says \"channel: beta\"; write \"name: beta\" instead",
                "parse bundle: json: cannot unmarshal number into Go struct field Bundle.image of type string",
                "package \"foo\" has duplicate bundle \"foo.v1\"",
                "unexpected EOF",
            ]
        );
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
        assert_eq!(
            bundle(r#"[{"type":"olm.package"}]"#).unwrap_err(),
            "parse property[0] of type \"olm.package\": unexpected end of JSON input"
        );
        assert_eq!(
            bundle(r#"[{"type":"olm.package","value":{"version":1.1}}]"#).unwrap_err(),
            "parse property[0] of type \"olm.package\": json: cannot unmarshal number into Go struct field Package.version of type string"
        );
    }
}
