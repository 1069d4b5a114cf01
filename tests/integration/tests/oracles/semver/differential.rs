//! Fresh answers of the Go libraries about generated pairs. No disagreement is tolerated.
//!
//! `OLM_ORACLE_SEED` repeats a run, `OLM_ORACLE_PAIRS` changes the number of pairs for each dialect.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::generate::{Dice, question};
use super::{Question, check_as_oracle};
use olm_kit::Tools;

/// Pairs for each dialect unless another number is set.
const PAIRS: usize = 20_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Asks the oracle all questions.
fn ask(program: &Path, questions: &[Question]) -> Vec<String> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let answers = std::thread::scope(|scope| {
        scope.spawn(move || {
            for question in questions {
                let line =
                    serde_json::to_string(&(question.dialect, &question.range, &question.version)).unwrap();
                if writeln!(input, "{line}").is_err() {
                    return;
                }
            }
        });
        output.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect::<Vec<String>>()
    });
    assert!(child.wait().unwrap().success());
    assert_eq!(answers.len(), questions.len(), "one answer for each question");
    answers
}

#[derive(Default)]
struct Count {
    pairs: usize,
    mutated: usize,
    invalid: usize,
    valid: usize,
    contained: usize,
    crashes: usize,
}

#[test]
fn semver_agrees_with_the_libraries_on_generated_pairs() {
    let program = Tools::locate().unwrap().program("oracle-semver").unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = setting("OLM_ORACLE_SEED").unwrap_or(now.as_secs() ^ u64::from(now.subsec_nanos()));
    let pairs = setting("OLM_ORACLE_PAIRS").map_or(PAIRS, |pairs| usize::try_from(pairs).unwrap());
    println!("semver oracle: seed {seed} (repeat with OLM_ORACLE_SEED={seed})");
    let real: Vec<&str> = include_str!("real.txt").lines().collect();
    for dialect in ["masterminds", "olm", "blang"] {
        let mut dice = Dice::new(seed ^ dialect.len() as u64);
        let (questions, mutated): (Vec<Question>, Vec<bool>) =
            (0..pairs).map(|_| question(&mut dice, dialect, &real)).unzip();
        let answers = ask(&program, &questions);
        let mut count =
            Count { pairs, mutated: mutated.iter().filter(|&&yes| yes).count(), ..Count::default() };
        let mut wrong = Vec::new();
        for (asked, theirs) in questions.iter().zip(&answers) {
            let ours = check_as_oracle(asked.dialect, &asked.range, &asked.version);
            match theirs.as_str() {
                "true" | "false" => {
                    count.valid += 1;
                    count.contained += usize::from(theirs == "true");
                }
                _ => count.invalid += 1,
            }
            if ours == "range-error: Empty element between two '||' in range" {
                // the library accepts such a range and crashes when it gets to the empty group
                assert_eq!(dialect, "blang");
                count.crashes += 1;
            } else if ours != *theirs {
                wrong.push(format!("{asked:?}\n   library: {theirs}\n   we:      {ours}"));
            }
        }
        let Count { pairs, mutated, invalid, valid, contained, crashes } = count;
        println!(
            "semver oracle: {dialect}: {pairs} pairs, {mutated} mutated from real ranges, {invalid} invalid, {contained} of \
             {valid} valid contained, {crashes} that crash the library, {} disagreements",
            wrong.len()
        );
        let first: Vec<&str> = wrong.iter().take(20).map(String::as_str).collect();
        assert!(wrong.is_empty(), "seed {seed}: {} of {pairs} disagree:\n{}", wrong.len(), first.join("\n"));
        assert!(mutated * 100 >= pairs * 30, "too few mutated ranges");
        assert!((15..=40).contains(&(invalid * 100 / pairs)), "about a quarter should be invalid");
        assert!((20..=80).contains(&(contained * 100 / valid)), "both answers should be common");
        assert!(crashes * 100 < pairs, "the empty group is a corner, not a case");
    }
}
