//! Versions and ranges against recorded answers of the Go libraries that OLM uses. `corpus.jsonl` holds dialect, range, version,
//! answer; the ranges are the worked cases of the specification and skipRanges of published catalogs.

#![expect(clippy::panic, reason = "a test may panic")]

mod result;

use result::check_as_oracle;

#[test]
fn range_recorded_answers() {
    let mut asked = 0;
    let mut wrong = Vec::new();
    for line in include_str!("corpus.jsonl").lines() {
        let [dialect, range, version, want]: [String; 4] = serde_json::from_str(line).unwrap();
        let got = check_as_oracle(&dialect, &range, &version);
        asked += 1;
        if got != want {
            wrong.push(format!("{dialect} {range:?} {version:?}: want {want}, got {got}"));
        }
    }
    assert!(asked > 3_000, "the corpus is gone");
    assert!(wrong.is_empty(), "{} of {asked}:\n{}", wrong.len(), wrong.join("\n"));
}
