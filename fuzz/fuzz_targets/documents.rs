//! A stream of documents, whole and in pieces: the same answer, and every document is normalised.
#![no_main]

use std::io::Read;

use libfuzzer_sys::fuzz_target;
use olm_yaml::{Documents, Limits, normalise_json};

struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn outcome(reader: impl Read) -> (Vec<Vec<u8>>, Option<String>) {
    let limits = Limits { document_bytes: 1 << 20, alias_bytes: 1 << 18, ..Limits::default() };
    let mut found = Vec::new();
    for document in Documents::new(reader, limits) {
        match document {
            Ok(json) => found.push(json),
            Err(error) => return (found, Some(error.to_string())),
        }
    }
    (found, None)
}

fuzz_target!(|input: &[u8]| {
    let Some((&size, input)) = input.split_first() else { return };
    let whole = outcome(input);
    assert_eq!(whole, outcome(Pieces(input, usize::from(size) + 1)));
    for json in whole.0 {
        let mut again = Vec::new();
        normalise_json(&json, &mut again, &Limits::default()).expect("it is JSON");
        assert_eq!(again, json);
    }
});
