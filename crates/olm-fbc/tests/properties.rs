//! Properties of whole catalogs: an index that answers as a scan would, content that does not depend on how it
//! arrived, and no panic whatever the files hold.

use olm_fbc::{
    Index, Ingest, IngestLimits, Meta, Query, load_files, load_files_leniently, summary, tree, validate,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn word() -> impl Strategy<Value = String> {
    proptest::sample::select(vec!["", "a", "b", "olm.package", "olm.bundle", "olm.channel", "A", "é", "a.b"])
        .prop_map(str::to_owned)
}

fn object() -> impl Strategy<Value = Value> {
    (word(), word(), word(), any::<i16>(), 0..3_usize).prop_map(|(schema, package, name, number, fill)| {
        json!({"schema": schema, "package": package, "name": name, "v": number, "fill": "x".repeat(fill * 50)})
    })
}

/// Objects as a bundle author could have written them, and some that no author would write.
fn plausible() -> impl Strategy<Value = Value> {
    let name = || proptest::sample::select(vec!["", "p", "q", "stable", "p.v1", "p.v2", "p-v1.0.0-1"]);
    let other = prop_oneof![
        Just(Value::Null),
        Just(json!(1)),
        Just(json!("x")),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, 1, "a", {"name": "p.v1", "skips": ["", "p.v2"], "skipRange": ">=1 || || x"}])),
    ];
    let entry = (name(), name(), proptest::collection::vec(name(), 0..3), proptest::sample::select(vec!["", "<1.0.0", "||", "! 1"]))
        .prop_map(|(name, replaces, skips, range)| {
            json!({"name": name, "replaces": replaces, "skips": skips, "skipRange": range})
        });
    let property = prop_oneof![
        (name(), proptest::sample::select(vec!["1.0.0", "1.0.0+1", "v1", ""]), proptest::sample::select(vec!["", "1", "01"]))
            .prop_map(|(name, version, release)| json!({"type": "olm.package", "value": {"packageName": name, "version": version, "release": release}})),
        other.clone().prop_map(|value| json!({"type": "olm.gvk", "value": value})),
        other.clone().prop_map(|value| json!({"type": "olm.csv.metadata", "value": value})),
        other.clone().prop_map(|value| json!({"type": "olm.bundle.object", "value": {"data": value}})),
        other.clone(),
    ];
    prop_oneof![
        (name(), name(), other.clone()).prop_map(|(name, channel, icon)| json!({"schema": "olm.package", "name": name, "defaultChannel": channel, "icon": icon})),
        (name(), name(), proptest::collection::vec(entry, 0..4)).prop_map(|(name, package, entries)| json!({"schema": "olm.channel", "name": name, "package": package, "entries": entries})),
        (name(), name(), name(), proptest::collection::vec(property, 0..3)).prop_map(|(name, package, image, properties)| json!({"schema": "olm.bundle", "name": name, "package": package, "image": image, "properties": properties})),
        (name(), name(), name()).prop_map(|(package, schema, name)| json!({"schema": "olm.deprecations", "package": package, "entries": [{"reference": {"schema": schema, "name": name}}]})),
        (name(), other).prop_map(|(schema, value)| json!({"schema": schema, "package": value})),
    ]
}

fn text(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("{object}\n")).collect()
}

/// The bytes that a query wants, by reading every line.
fn scan(jsonl: &[u8], query: &Query<'_>) -> Vec<u8> {
    let fits = |filter: &str, is: &str| filter.is_empty() || filter == is;
    let mut found = Vec::new();
    for line in jsonl.split_inclusive(|&byte| byte == b'\n') {
        let Ok(meta) = Meta::parse(line) else { continue };
        let matches = fits(query.schema, &meta.schema)
            && fits(query.package, &meta.package)
            && fits(query.name, &meta.name);
        if query.is_all() || (matches && !meta.schema.is_empty()) {
            found.extend_from_slice(line);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn index_answers_as_a_scan(objects in proptest::collection::vec(object(), 0..30), schema in word(), package in word(), name in word()) {
        let Ok(catalog) = load_files([("c.json", text(&objects))], IngestLimits::default()) else { return Ok(()) };
        let stored = Index::from_bytes(&catalog.index.to_bytes());
        prop_assert_eq!(stored.as_ref(), Ok(&catalog.index));
        for query in [
            Query { schema: &schema, package: &package, name: &name },
            Query { schema: &schema, ..Query::default() },
            Query { package: &package, name: &name, ..Query::default() },
        ] {
            let sections = catalog.index.sections(&query);
            prop_assert!(sections.windows(2).all(|pair| pair[0].end < pair[1].start), "ascending and joined");
            let answer: Vec<u8> = sections.iter().flat_map(|s| &catalog.jsonl()[s.start as usize..s.end as usize]).copied().collect();
            prop_assert_eq!(answer, scan(catalog.jsonl(), &query));
        }
    }

    #[test]
    fn ingest_is_independent_of_chunks(
        files in proptest::collection::btree_map("[a-c./-]{1,5}", proptest::collection::vec(object(), 0..3), 1..8),
        swaps in proptest::collection::vec((0..8_usize, 0..8_usize), 0..8),
    ) {
        // a path is a file or a directory, not both
        let clean: std::collections::BTreeMap<String, &Vec<Value>> = files
            .iter()
            .map(|(path, objects)| (path.split('/').filter(|p| !p.is_empty() && *p != "." && *p != "..").collect::<Vec<_>>().join("/"), objects))
            .collect();
        let paths: Vec<&String> = clean.keys().filter(|path| {
            !path.is_empty() && !clean.keys().any(|other| other.starts_with(&format!("{path}/")))
        }).collect();
        let mut arrival: Vec<(&str, String)> = paths.iter().map(|path| (path.as_str(), text(clean[*path]))).collect();
        let in_walk_order = {
            let mut sorted = arrival.clone();
            sorted.sort_by(|a, b| a.0.split('/').cmp(b.0.split('/')));
            sorted.into_iter().map(|(_, text)| text).collect::<String>()
        };
        let want = load_files([("all", &in_walk_order)], IngestLimits::default()).map(|c| c.jsonl().to_vec());
        for (a, b) in swaps {
            if a < arrival.len() && b < arrival.len() {
                arrival.swap(a, b);
            }
        }
        let found = load_files(arrival.clone(), IngestLimits::default()).map(|catalog| catalog.jsonl().to_vec());
        prop_assert_eq!(found.ok(), want.ok());
        // what a lower layer had is as if it had never been
        let mut ingest = Ingest::new(Vec::new(), IngestLimits::default());
        for (path, _) in &arrival {
            let _ = ingest.file(path, &mut &b"lower: ["[..]);
        }
        ingest.next_layer();
        let _ = ingest.opaque("");
        for (path, text) in &arrival {
            let _ = ingest.file(path, &mut text.as_bytes());
        }
        prop_assert!(ingest.finish().is_ok());
    }

    #[test]
    fn validation_and_summaries_take_anything(objects in proptest::collection::vec(plausible(), 0..12), broken in 0..60_usize) {
        let mut bytes = text(&objects).into_bytes();
        if broken < 10 && !bytes.is_empty() {
            let at = bytes.len() * broken / 10;
            bytes.remove(at);
        }
        let Ok((catalog, problems)) = load_files_leniently([("c.json", &bytes)], IngestLimits::default()) else { return Ok(()) };
        let findings = validate(&catalog);
        tree(&findings);
        for package in catalog.packages() {
            let brief = summary(package, catalog.package_lines(package));
            prop_assert_eq!(brief.name, package);
        }
        if problems.is_empty() && findings.is_empty() {
            for object in catalog.index.objects() {
                prop_assert!(!object.schema.is_empty());
            }
        }
    }
}
