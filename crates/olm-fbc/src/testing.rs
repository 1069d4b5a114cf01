//! Generated catalogs for benches and load tests, shaped like the real ones: few packages, many bundles, most
//! bytes in `olm.csv.metadata` (long descriptions, examples), icons, some inline manifests. The same size and
//! seed give the same bytes.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};

/// How a generated catalog is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As `opm render` writes it: four spaces, members in the order of the schema.
    Json,
    /// As `opm render -o yaml` writes it.
    Yaml,
}

/// Hands out files until at least `bytes` are written. One file a package, `<package>/catalog.<json|yaml>`.
pub fn generate(bytes: u64, format: Format, seed: u64, mut file: impl FnMut(&str, &str)) {
    let mut random = Random(seed);
    let mut written = 0;
    let (mut number, mut objects) = (0, 0);
    while written < bytes {
        let name = format!("operator-{number:04}");
        number += 1;
        let mut text = String::new();
        for object in package(&name, &mut random) {
            write(&object, format, &mut text);
            objects += 1;
            // the first package keeps its channels and a bundle, however small the catalog
            if written + text.len() as u64 >= bytes && objects > 3 {
                break;
            }
        }
        written += text.len() as u64;
        let extension = if format == Format::Json { "json" } else { "yaml" };
        file(&format!("{name}/catalog.{extension}"), &text);
    }
}

fn write(object: &Value, format: Format, text: &mut String) {
    match format {
        Format::Json => {
            let mut json = Vec::new();
            let formatter = PrettyFormatter::with_indent(b"    ");
            let written = object.serialize(&mut Serializer::with_formatter(&mut json, formatter));
            debug_assert!(written.is_ok(), "memory takes every value");
            text.push_str(&String::from_utf8_lossy(&json));
            text.push('\n');
        }
        Format::Yaml => {
            text.push_str("---\n");
            object.yaml(0, text);
        }
    }
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn base64(&mut self, length: u64) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..length / 4 * 4).map(|_| ALPHABET[self.below(64) as usize] as char).collect()
    }

    fn prose(&mut self, length: u64) -> String {
        const WORDS: [&str; 16] = [
            "operator",
            "manages",
            "the",
            "lifecycle",
            "of",
            "clusters",
            "and",
            "upgrades",
            "\"custom\"",
            "resources",
            "– see",
            "https://example.com/docs",
            "for",
            "details.",
            "`kubectl apply`",
            "über",
        ];
        let mut text = String::new();
        while (text.len() as u64) < length {
            text.push_str(WORDS[self.below(16) as usize]);
            text.push(if self.below(12) == 0 { '\n' } else { ' ' });
        }
        text.trim_end().to_owned()
    }
}

/// JSON with members in the order they were given.
enum Value {
    Text(String),
    Bool(bool),
    List(Vec<Value>),
    Object(Vec<(&'static str, Value)>),
}

use Value::{Bool, List, Object};

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Bool(value) => serializer.serialize_bool(*value),
            List(items) => serializer.collect_seq(items),
            Object(members) => serializer.collect_map(members.iter().map(|(key, value)| (key, value))),
        }
    }
}

fn text(text: impl Into<String>) -> Value {
    Value::Text(text.into())
}

fn package(name: &str, random: &mut Random) -> Vec<Value> {
    let icon_size = 4000 + random.below(40_000);
    let mut objects = vec![Object(vec![
        ("schema", text("olm.package")),
        ("name", text(name)),
        ("defaultChannel", text("stable")),
        (
            "icon",
            Object(vec![("base64data", text(random.base64(icon_size))), ("mediatype", text("image/png"))]),
        ),
        ("description", text(random.prose(800))),
    ])];
    let bundles = 10 + random.below(40);
    for channel in ["alpha", "stable"] {
        let entries = (0..bundles).map(|minor| {
            let mut entry = vec![("name", text(format!("{name}.v1.{minor}.0")))];
            if minor > 0 {
                entry.push(("replaces", text(format!("{name}.v1.{}.0", minor - 1))));
                entry.push(("skipRange", text(format!(">=1.0.0 <1.{minor}.0"))));
            }
            Object(entry)
        });
        objects.push(Object(vec![
            ("schema", text("olm.channel")),
            ("package", text(name)),
            ("name", text(channel)),
            ("entries", List(entries.collect())),
        ]));
    }
    for minor in 0..bundles {
        objects.push(bundle(name, minor, random));
    }
    objects
}

fn bundle(name: &str, minor: u64, random: &mut Random) -> Value {
    let kinds = 1 + random.below(12);
    let gvk = |kind: u64| {
        Object(vec![
            ("group", text(format!("{name}.example.com"))),
            ("kind", text(format!("Kind{kind}"))),
            ("version", text("v1beta1")),
        ])
    };
    let mut properties: Vec<Value> =
        (0..kinds).map(|kind| Object(vec![("type", text("olm.gvk")), ("value", gvk(kind))])).collect();
    properties.push(Object(vec![
        ("type", text("olm.package")),
        ("value", Object(vec![("packageName", text(name)), ("version", text(format!("1.{minor}.0")))])),
    ]));
    if random.below(10) == 0 {
        for _ in 0..random.below(8) {
            let size = 4000 + random.below(60_000);
            properties.push(Object(vec![
                ("type", text("olm.bundle.object")),
                ("value", Object(vec![("data", text(random.base64(size)))])),
            ]));
        }
    }
    properties.push(Object(vec![("type", text("olm.csv.metadata")), ("value", csv(name, kinds, random))]));
    let digest: String = (0..64).map(|_| format!("{:x}", random.below(16))).collect();
    let image = |part: &str| text(format!("registry.example.com/{name}/{part}@sha256:{digest}"));
    let related = ["", "operator", "proxy", "agent"].map(|part| {
        Object(vec![("name", text(part)), ("image", image(if part.is_empty() { "bundle" } else { part }))])
    });
    Object(vec![
        ("schema", text("olm.bundle")),
        ("name", text(format!("{name}.v1.{minor}.0"))),
        ("package", text(name)),
        ("image", image("bundle")),
        ("properties", List(properties)),
        ("relatedImages", List(related.into())),
    ])
}

fn csv(name: &str, kinds: u64, random: &mut Random) -> Value {
    let examples_size = 500 + random.below(30_000);
    let mut examples = "[".to_owned();
    while (examples.len() as u64) < examples_size {
        let _ = write!(
            examples,
            "\n  {{\n    \"apiVersion\": \"{name}.example.com/v1beta1\",\n    \"kind\": \"Kind{}\",\n    \"spec\": {{ \"size\": {} }}\n  }},",
            random.below(kinds),
            random.below(9)
        );
    }
    examples.push_str("\n]");
    let described = (0..kinds).map(|kind| {
        Object(vec![
            ("name", text(format!("kind{kind}s.{name}.example.com"))),
            ("version", text("v1beta1")),
            ("kind", text(format!("Kind{kind}"))),
            ("displayName", text(format!("Kind {kind}"))),
            ("description", text(random.prose(300))),
        ])
    });
    let described = List(described.collect());
    let modes = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];
    let modes =
        modes.map(|mode| Object(vec![("type", text(mode)), ("supported", Bool(mode == "AllNamespaces"))]));
    let description_size = 2000 + random.below(20_000);
    Object(vec![
        (
            "annotations",
            Object(vec![
                ("alm-examples", text(examples)),
                ("capabilities", text("Seamless Upgrades")),
                ("containerImage", text(format!("registry.example.com/{name}/operator:v1"))),
                ("createdAt", text("2026-01-02T03:04:05Z")),
            ]),
        ),
        ("apiServiceDefinitions", Object(Vec::new())),
        ("crdDescriptions", Object(vec![("owned", described)])),
        ("description", text(random.prose(description_size))),
        ("displayName", text(format!("The {name} Operator"))),
        ("installModes", List(modes.into())),
        ("keywords", List(vec![text("storage"), text("yes"), text("1.10")])),
        ("maturity", text("stable")),
        ("provider", Object(vec![("name", text("Example"))])),
    ])
}

impl Value {
    fn yaml(&self, depth: usize, out: &mut String) {
        let indent = |depth: usize, out: &mut String| out.extend(std::iter::repeat_n("  ", depth));
        match self {
            Self::Text(text) if text.contains('\n') => {
                out.push_str("|-\n");
                for line in text.lines() {
                    indent(depth, out);
                    out.push_str(line);
                    out.push('\n');
                }
            }
            Self::Text(text) => {
                let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b" .-/+".contains(&b));
                let plain = plain && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text != "yes";
                if plain {
                    out.push_str(text);
                } else {
                    let _ = write!(out, "'{}'", text.replace('\'', "''"));
                }
                out.push('\n');
            }
            Bool(value) => out.push_str(if *value { "true\n" } else { "false\n" }),
            List(items) if items.is_empty() => out.push_str("[]\n"),
            Object(members) if members.is_empty() => out.push_str("{}\n"),
            List(items) => {
                out.push_str(if depth > 0 { "\n" } else { "" });
                for item in items {
                    indent(depth.saturating_sub(1), out);
                    out.push_str("- ");
                    match item {
                        Object(members) if !members.is_empty() => item.members(depth, true, out),
                        _ => item.yaml(depth, out),
                    }
                }
            }
            Object(_) => {
                out.push_str(if depth > 0 { "\n" } else { "" });
                self.members(depth, false, out);
            }
        }
    }

    fn members(&self, depth: usize, after_dash: bool, out: &mut String) {
        let Object(members) = self else { return };
        for (index, (key, value)) in members.iter().enumerate() {
            if index > 0 || !after_dash {
                out.extend(std::iter::repeat_n("  ", depth));
            }
            let _ = write!(out, "{key}: ");
            value.yaml(depth + 1, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IngestLimits, load_files};

    #[test]
    fn testing_formats_are_equal() {
        let mut catalogs = Vec::new();
        for format in [Format::Json, Format::Yaml] {
            let mut text = String::new();
            package("operator", &mut Random(7)).iter().for_each(|object| write(object, format, &mut text));
            catalogs.push(load_files([("catalog", text)], IngestLimits::default()).unwrap());
        }
        assert!(catalogs[0].index.len() > 10);
        let lines = |at: usize| String::from_utf8_lossy(catalogs[at].jsonl()).into_owned();
        for (json, yaml) in lines(0).lines().zip(lines(1).lines()) {
            assert_eq!(json, yaml);
        }
        assert_eq!(catalogs[0].jsonl(), catalogs[1].jsonl());
    }
}
