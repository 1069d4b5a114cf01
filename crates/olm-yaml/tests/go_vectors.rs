//! Streams that Go's own libraries decoded (encoding/json of Go 1.26 and k8s.io/apimachinery v0.36.3 with
//! sigs.k8s.io/yaml v1.6.0): the same documents byte for byte, the same error message.
//!
//! A line of `go.vectors` is the stream, the documents and the error, separated by tabs and percent-encoded.

#![expect(clippy::unwrap_used, reason = "a test may")]

use olm_yaml::{Document, Documents, Limits, ReadError};

fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            out.push(u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    out
}

fn check(document: &Document<'_>) -> Result<Vec<u8>, String> {
    match document.kind() {
        "object" | "null" => Ok(document.json.to_vec()),
        kind => Err(format!("json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}")),
    }
}

#[test]
fn documents_equal_those_of_go() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("go.vectors").lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [input, documents_json @ .., error] = fields.as_slice() else { panic!("{line}") };
        let input = decode(input);
        let documents_json: Vec<Vec<u8>> = documents_json.iter().map(|d| decode(d)).collect();
        let error = String::from_utf8(decode(error)).unwrap();
        let mut documents = Documents::from_bytes(&input, Limits::default());
        let mut found = Vec::new();
        let problem = loop {
            match documents.next_with(check) {
                Ok(Some(json)) => found.push(json),
                Ok(None) => break String::new(),
                Err(ReadError::Parse(error)) => break error.message,
                Err(error) => panic!("{error}"),
            }
        };
        count += 1;
        let shown = |docs: &[Vec<u8>]| {
            docs.iter().map(|d| String::from_utf8_lossy(d).into_owned()).collect::<Vec<_>>()
        };
        // what Go prints of a Go value behind these texts has no counterpart
        let same_error = problem == error
            || [": invalid map key: ", "unsupported map key of type: "]
                .iter()
                .any(|text| error.contains(text) && problem.contains(text));
        if found != documents_json || !same_error {
            wrong.push(format!(
                "{}\n   want {:?} {error:?}\n   got  {:?} {problem:?}",
                input.escape_ascii(),
                shown(&documents_json),
                shown(&found)
            ));
        }
    }
    assert!(count > 150, "only {count} vectors");
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}
