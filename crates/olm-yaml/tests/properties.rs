//! Properties: no panic, no hang, bounded output, and the same answer whatever way the bytes come.

use std::io::Read;

use olm_yaml::{Documents, Limits, Normaliser, ReadError, normalise_json, yaml_to_json, yaml_to_json_exact};
use proptest::prelude::*;

/// Bytes in pieces of given sizes.
struct Pieces<'a> {
    bytes: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.next().copied().unwrap_or(1);
        let count = size.min(buffer.len()).min(self.bytes.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

fn outcome<R: Read>(reader: R) -> (Vec<Vec<u8>>, Option<String>) {
    let limits = Limits { document_bytes: 1 << 20, ..Limits::default() };
    let mut documents = Vec::new();
    for document in Documents::new(reader, limits) {
        match document {
            Ok(json) => documents.push(json),
            Err(ReadError::Parse(error)) => return (documents, Some(error.to_string())),
            Err(error) => return (documents, Some(error.to_string())),
        }
    }
    (documents, None)
}

/// Text made of what YAML and JSON are made of.
fn soup() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => proptest::sample::select(vec![
            "---\n", "...\n", "\n", "\n  ", "\n    ", ": ", "- ", "? ", "\"", "'", "{", "}", "[", "]", ",", " #", "&a ",
            "*a", "<<: ", "<<: *a", "!!str ", "!!binary ", "!!int ", "!x ", "|\n", ">-\n", "|2+\n", "\t", "\\", "\\u0041",
            "\\ud83d", "\\/", "\u{2028}", "\u{85}", "\u{feff}", "\r\n", "yes", "~", "null", "1e400", "0x1f", "-0", "%YAML",
            "@", "`", "{\"a\":1}", "{\"b\":[1,2]}\n", "a: 1\n", "schema: x\n", "- a\n- b\n",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
        1 => "[a-z]{1,5}".prop_map(String::into_bytes),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    json_with(".{0,12}", "[\\x00-\\x7f\u{2028}\u{2029}\\\\\"]{0,12}", ".{0,6}")
}

fn json_with(
    text: &'static str,
    other: &'static str,
    key: &'static str,
) -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Into::into),
        text.prop_map(Into::into),
        other.prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            proptest::collection::btree_map(key, inner, 0..6)
                .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn documents_read_any_bytes(bytes in soup(), sizes in proptest::collection::vec(1_usize..40, 1..5)) {
        let whole = outcome(bytes.as_slice());
        let pieces = outcome(Pieces { bytes: &bytes, sizes: sizes.iter().cycle() });
        prop_assert_eq!(&whole, &pieces);
        for document in &whole.0 {
            let mut again = Vec::new();
            prop_assert_eq!(normalise_json(document, &mut again, &Limits::default()).unwrap(), document.len());
            prop_assert_eq!(&again, document, "normalised twice");
        }
    }

    #[test]
    fn json_keeps_its_meaning(value in json()) {
        let text = serde_json::to_vec_pretty(&value).unwrap();
        let mut out = Vec::new();
        prop_assert_eq!(normalise_json(&text, &mut out, &Limits::default()).unwrap(), text.len());
        let back: serde_json::Value = serde_json::from_slice(&out).unwrap();
        prop_assert!(same(&value, &back), "{} became {}", value, back);
        prop_assert!(!out.contains(&b'\n'));
    }

    #[test]
    fn json_objects_read_the_same_as_yaml(
        map in proptest::collection::btree_map("[a-z]{1,4}", json_with("[ -~]{0,12}", "[ -~é–😀\n\t]{0,12}", "[ -~]{0,6}"), 1..5),
    ) {
        let value = serde_json::Value::Object(map.into_iter().collect());
        let text = serde_json::to_string(&value).unwrap();
        let limits = Limits::default();
        for exact in [false, true] {
            let mut normaliser = if exact { Normaliser::exact() } else { Normaliser::new() };
            let convert = if exact { yaml_to_json_exact } else { yaml_to_json };
            let (mut json, mut yaml) = (Vec::new(), Vec::new());
            normaliser.value(text.as_bytes(), &mut json, &limits).unwrap();
            // the engine wants keys within 1024 characters of their colon
            if convert(text.as_bytes(), &mut yaml, &limits).is_ok() {
                prop_assert_eq!(String::from_utf8(yaml).unwrap(), String::from_utf8(json).unwrap());
            } else {
                prop_assert!(text.len() > 1000 || text.contains('\t'), "{}", text);
            }
        }
    }

    #[test]
    fn json_members_are_at_their_offsets(map in proptest::collection::btree_map(".{0,5}", json(), 0..6)) {
        let text = serde_json::to_vec(&map).unwrap();
        let mut normaliser = Normaliser::new();
        let mut out = b"before".to_vec();
        normaliser.value(&text, &mut out, &Limits::default()).unwrap();
        let found: Vec<(String, serde_json::Value)> = normaliser
            .members()
            .iter()
            .map(|member| {
                let key = String::from_utf8(member.key_text(&out).into_owned()).unwrap();
                (key, serde_json::from_slice(&out[member.value()]).unwrap())
            })
            .collect();
        prop_assert_eq!(found.len(), map.len());
        for ((key, value), (name, other)) in found.iter().zip(&map) {
            prop_assert_eq!(key, name);
            prop_assert!(same(value, other));
        }
    }
}

/// Equal up to the precision of a double.
fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Number, Object};
    match (a, b) {
        (Number(a), Number(b)) => a.as_f64() == b.as_f64(),
        (Array(a), Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Object(a), Object(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|((k, a), (l, b))| k == l && same(a, b))
        }
        _ => a == b,
    }
}

#[test]
fn yaml_aliases_are_bounded() {
    let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..12 {
        let refs = vec![format!("*a{}", level - 1); 9].join(", ");
        laughs.push_str(&format!("a{level}: &a{level} [{refs}]\n"));
    }
    let mut out = Vec::new();
    let any_nodes = Limits { document_nodes: u64::MAX, ..Limits::default() };
    for (limits, want) in [(Limits::default(), "limit of 500000 nodes"), (any_nodes, "excessive aliasing")] {
        let error = yaml_to_json(laughs.as_bytes(), &mut out, &limits).unwrap_err();
        assert!(error.message.contains(want), "{error}");
        assert!(out.is_empty());
    }
    // `["x"]` is copied for the anchor and for the alias
    for (alias_bytes, is_read) in [(10, true), (9, false)] {
        let limits = Limits { alias_bytes, ..Limits::default() };
        let read = yaml_to_json(b"a: &a [x]\nb: *a\n", &mut out, &limits);
        assert_eq!(read.is_ok(), is_read, "{alias_bytes}");
    }
}

#[test]
fn yaml_deep_nesting_is_an_error() {
    for (open, count) in [("[", 200_000), ("{a: ", 200_000), ("- ", 200_000), ("? ", 200_000)] {
        let text = open.repeat(count);
        let mut out = Vec::new();
        let error = yaml_to_json(text.as_bytes(), &mut out, &Limits::default()).unwrap_err();
        assert!(!error.message.is_empty());
    }
    let text = format!("{{\"a\":{}", "[".repeat(1_000_000));
    let (documents, error) = outcome(text.as_bytes());
    assert!(documents.is_empty() && error.is_some());
}

#[test]
fn documents_reject_the_malformed_corpus() {
    #[rustfmt::skip]
    let corpus: &[&[u8]] = &[
        b"\xff\xfe\x00", b"\xfe\xff\xd8\x00", b"{\"a\": \"\\", b"{\"a\": \"\\u", b"{\"a\": \"\\ud800\\u", b"{\"a\": -", b"{\"a\": 1e",
        b"{\"\xe2\x80", b"&", b"*", b"!", b"!<", b"!!", b"%", b"%TAG ! tag:x,2000:\n--- !x", b"- - - - -\n -\n  -", b"? ? ? ?",
        b"a: &a\nb: *a\n<<: *a", b"<<: <<: <<:", b"'", b"|", b"|9\n", b">-+\n", b"a: |\n\t", b"\x00", b"{\x00", b"---\x00", b"[[[[[[[[",
        b"{,}", b"{:}", b"[:]", b"- :\n- ?", b"\"\\xZZ\"", b"\"\\UFFFFFFFF\"", b"a:\r b:\r\r c", b"\xc2\x85a: 1\xe2\x80\xa9b: 2",
    ];
    for bytes in corpus {
        for end in 0..=bytes.len() {
            let _ = outcome(&bytes[..end]);
        }
    }
}
