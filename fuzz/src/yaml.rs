//! YAML and JSON documents, alone and as a stream.

use std::io::Read;

use olm_yaml::{Documents, Limits, Normaliser, normalise_json, yaml_to_json, yaml_to_json_exact};

/// Bytes in a piece for the second reading; one that never fits the boundaries of anything.
const PIECE: usize = 7;

fn limits() -> Limits {
    Limits { document_bytes: 1 << 20, alias_bytes: 1 << 18, document_nodes: 1 << 14, ..Limits::default() }
}

/// What comes out is normalised and bounded; a stream gives the same documents whole and in pieces.
pub(crate) fn yaml(input: &[u8]) {
    let limits = limits();
    let mut json = Vec::new();
    if yaml_to_json(input, &mut json, &limits).is_ok() {
        assert!(json.len() <= 8 << 20, "{} bytes became {}", input.len(), json.len());
        normalised(&json, Normaliser::new(), &limits);
        let mut kept = Vec::new();
        // a longer text may exceed a limit
        if yaml_to_json_exact(input, &mut kept, &limits).is_ok() {
            normalised(&kept, Normaliser::exact(), &limits);
            let mut rounded = Vec::new();
            assert_eq!(normalise_json(&kept, &mut rounded, &limits).ok(), Some(kept.len()));
            assert_eq!(rounded, json, "rounded later");
        }
    }
    let whole = outcome(input);
    assert_eq!(whole, outcome(Pieces(input)));
    for json in &whole.0 {
        normalised(json, Normaliser::new(), &Limits::default());
    }
    // a number is the same number for another parser
    if let Ok(number) = serde_json::from_slice::<f64>(input) {
        let mut again = Vec::new();
        if normalise_json(input, &mut again, &limits).is_ok() {
            assert_eq!(serde_json::from_slice::<f64>(&again).ok(), Some(number), "{}", again.escape_ascii());
        }
    }
}

fn normalised(json: &[u8], mut normaliser: Normaliser, limits: &Limits) {
    let mut again = Vec::new();
    let used = normaliser.value(json, &mut again, limits);
    assert_eq!(used.map_err(|error| error.to_string()), Ok(json.len()));
    assert_eq!(again, json);
    assert!(serde_json::from_slice::<serde::de::IgnoredAny>(json).is_ok(), "another parser refuses it");
}

fn outcome(reader: impl Read) -> (Vec<Vec<u8>>, Option<String>) {
    let mut found = Vec::new();
    for document in Documents::new(reader, limits()) {
        match document {
            Ok(json) => found.push(json),
            Err(error) => return (found, Some(error.to_string())),
        }
    }
    (found, None)
}

struct Pieces<'a>(&'a [u8]);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = PIECE.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}
