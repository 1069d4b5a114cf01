//! One YAML document to JSON: no panic, bounded output, and what comes out is normalised already.
#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_yaml::{Limits, normalise_json, yaml_to_json};

fuzz_target!(|input: &[u8]| {
    let limits = Limits { document_bytes: 1 << 20, alias_bytes: 1 << 18, ..Limits::default() };
    let mut json = Vec::new();
    if yaml_to_json(input, &mut json, &limits).is_ok() {
        assert!(json.len() <= 8 << 20);
        let mut again = Vec::new();
        let used = normalise_json(&json, &mut again, &limits).expect("it is JSON");
        assert_eq!((used, &again), (json.len(), &json));
    }
});
