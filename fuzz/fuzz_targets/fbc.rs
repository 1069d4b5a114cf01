//! A whole catalog of one file: ingest, index, validation and summaries never panic, and agree on what is there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_fbc::{Index, IngestLimits, Query, load_files_leniently, summary, validate};

fuzz_target!(|input: &[u8]| {
    let limits = IngestLimits { bytes: 4 << 20, ..IngestLimits::default() };
    let Ok((catalog, _)) = load_files_leniently([("catalog.yaml", input)], limits) else { return };
    assert_eq!(catalog.index.size(), catalog.jsonl().len() as u64);
    assert_eq!(Index::from_bytes(&catalog.index.to_bytes()).as_ref(), Ok(&catalog.index));
    for object in catalog.index.objects() {
        let query = Query { schema: object.schema, package: object.package, name: object.name };
        let found = catalog.index.find(&query).iter().any(|other| other.offset == object.offset);
        assert!(found || object.schema.is_empty());
    }
    for package in catalog.packages() {
        summary(package, catalog.package_lines(package));
    }
    validate(&catalog);
});
