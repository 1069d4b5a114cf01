//! Ranges against answers of the Go libraries, recorded (`ranges/corpus.jsonl`: dialect, range, version, answer).
//! The same program that recorded them is asked afresh about generated ranges in `differential.rs`.

use olm_core::{LooseVersion, Range, Version};

/// What we say, in the words of the oracle.
fn answer(dialect: &str, range: &str, version: &str) -> String {
    let parsed = if dialect == "blang" { Range::blang(range) } else { Range::masterminds(range) };
    let range = match parsed {
        Ok(range) => range,
        Err(error) => return format!("range-error: {error}"),
    };
    if dialect == "masterminds" {
        return match version.parse::<LooseVersion>() {
            Ok(version) => {
                range.contains_loose(&version).expect("Masterminds ranges take loose versions").to_string()
            }
            Err(error) => format!("version-error: {error}"),
        };
    }
    match version.parse::<Version>() {
        Ok(version) => range.contains(&version).to_string(),
        Err(error) => format!("version-error: {error}"),
    }
}

#[test]
fn recorded_answers() {
    let mut asked = 0;
    let mut wrong = Vec::new();
    for line in include_str!("ranges/corpus.jsonl").lines() {
        let [dialect, range, version, want]: [String; 4] = serde_json::from_str(line).unwrap();
        let got = answer(&dialect, &range, &version);
        asked += 1;
        if got != want {
            wrong.push(format!("{dialect} {range:?} {version:?}: want {want}, got {got}"));
        }
    }
    assert!(asked > 1_000, "the corpus is gone");
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
