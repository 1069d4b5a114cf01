//! Every file of `tests/scenarios`: the worked examples of the update-graph specification and of our decisions.

use std::fmt::Write;
use std::path::Path;

use olm_resolver::scenario::{Scenario, run};

#[test]
fn scenarios_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut asked, mut wrong) = (0, String::new());
    for file in &files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let scenario = Scenario::parse(&std::fs::read_to_string(file).unwrap())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let answers = run(&scenario, &|_, from| Err(format!("no loader for {from}"))).unwrap();
        for answer in answers {
            asked += 1;
            let judged = answer.question.contains("=>");
            if !(answer.as_expected && judged) {
                writeln!(wrong, "{name}:{}: {}\n    got {}", answer.line, answer.question, answer.got)
                    .unwrap();
            }
        }
    }
    assert!(files.len() >= 50 && asked >= 250, "{} files, {asked} questions", files.len());
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn scenario_wrong_expectation_is_reported() {
    let text = "package p\nchannel c\n  1.0.0\nv1 => 2.0.0\nv1 => stay\nv1 => error\nv1 => 1.0.0@other\nv1 => 1.0.0@main\nv1\n";
    let answers = run(&Scenario::parse(text).unwrap(), &|_, _| Err(String::new())).unwrap();
    let judged: Vec<bool> = answers.iter().map(|answer| answer.as_expected).collect();
    assert_eq!(judged, [false, false, false, false, true, true]);
    assert_eq!(answers[5].got, "1.0.0@main");
}

#[test]
fn scenario_errors_name_line_and_fix() {
    for (text, want) in [
        ("", "line 1: there is no package line; write package NAME"),
        ("package p\n  1.0.0", "line 2: an indented line is an entry and needs a channel line above it"),
        ("package p\nchannel a\n  1.0.0 replaces", "line 3: a value must follow replaces"),
        ("package p\nv1 installed 1.0.0 => stay now", "line 2: \"now\" is too much after the answer"),
        ("package p\ntitle \"x", "line 2: a quote is not closed"),
        ("catalog a priority x", "line 1: priority \"x\" is no 32-bit number"),
        ("package p\ncatalog a\ncatalog a", "line 3: catalog \"a\" is there twice"),
        (
            "nonsense",
            "line 1: unknown statement \"nonsense\": use title, package, catalog, channel, bundle, deprecated, majorUpdates, v1, classic, both, walk or paths",
        ),
    ] {
        assert_eq!(Scenario::parse(text).unwrap_err().to_string(), want, "{text:?}");
    }
}
