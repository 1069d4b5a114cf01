//! `graph` and `paths` on a small committed catalog: what is printed, and the exit codes.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// Exit code, standard output and standard error, with the catalog of this test.
fn olm(arguments: &[&str]) -> (i32, String, String) {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/bakery");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"));
    command.args(arguments);
    if !arguments.contains(&"--help") {
        command.arg("--dir").arg(catalog);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// What is printed, and the exit code.
fn transcript(arguments: &str) -> String {
    let words: Vec<&str> = arguments.split(' ').collect();
    let (code, out, error) = olm(&words);
    format!("$ kubectl olm {arguments}\n{out}{error}exit code {code}\n")
}

#[test]
fn graph_in_all_forms() {
    for form in ["tree", "mermaid", "dot", "svg", "json"] {
        let name = format!("graph_{form}");
        insta::assert_snapshot!(name, transcript(&format!("graph bakery --installed 1.0.0 -o {form}")));
    }
    insta::assert_snapshot!("graph_of_one_channel", transcript("graph bakery --channel candidate"));
}

#[test]
fn paths_in_all_forms() {
    insta::assert_snapshot!("paths_table", transcript("paths bakery --from 1.0.0 --to 3.0.0"));
    insta::assert_snapshot!(
        "paths_json",
        transcript("paths bakery --from 1.0.0 --to head --rules v1 --channel stable -o json")
    );
    insta::assert_snapshot!(
        "paths_yaml",
        transcript("paths bakery --from 1.0.0 --to head --rules classic --channel stable -o yaml")
    );
}

#[test]
fn paths_exit_codes() {
    for (arguments, want) in [
        ("--from 1.0.0 --to 1.2.0 --rules v1", 0),
        ("--from 1.0.0 --to 1.2.0 --rules classic", 0),
        ("--from 1.0.0 --to 2.0.0 --channel stable", 0),
        // a skipped entry with an edge of its own: offered by v1, not by Classic
        ("--from 1.0.0 --to 3.0.0 --channel candidate --rules v1", 0),
        ("--from 1.0.0 --to 3.0.0 --channel candidate --rules classic", 1),
        ("--from 1.0.0 --to 3.0.0 --channel candidate", 1),
        ("--from 2.0.0 --to 1.0.0 --rules v1", 1),
        ("--from 2.0.0 --to 1.0.0 --rules v1 --policy SelfCertified", 0),
        ("--from 1.0.0 --to 2.0.0 --rules v1 --version ^1", 1),
        ("--from bakery.v1.0.0 --to head", 0),
        ("--from 1.0.0 --to 9.9.9", 1),
        ("--from 1.0.0", 0),
        ("--from nonsense", 2),
        ("--from 1.0.0 --to latest", 2),
        ("--from 1.0.0 --channel nosuch", 2),
        ("--from 1.0.0 --version latest", 2),
        ("--from 1.0.0 --rules v2", 2),
        ("", 2),
        ("--from 1.0.0 --image quay.io/example/catalog:v1", 2),
    ] {
        let words: Vec<&str> = ["paths", "bakery"].into_iter().chain(arguments.split_whitespace()).collect();
        let (code, out, error) = olm(&words);
        assert_eq!(code, want, "{arguments}: {out}{error}");
        assert_eq!(code == 2, !error.is_empty(), "{arguments}: {error}");
    }
    let (code, _, error) = olm(&["paths", "bakery", "--from", "7.0.0"]);
    assert_eq!((code, error.contains("no catalog has 7.0.0; there are 1.0.0 … ")), (1, true), "{error}");
}

#[test]
#[rustfmt::skip]
fn usage_errors_name_the_input() {
    for (arguments, want) in [
        ("paths nosuch --from 1.0.0", "the catalog does not hold package \"nosuch\""),
        ("graph bakery --channel fast", "channel \"fast\" not found in package bakery; available: candidate, stable"),
        ("graph bakery --installed latest", "latest is neither a version nor the name of a bundle of package bakery"),
        ("paths bakery --from 1.0.0 --version 1.0.0,,2", "improper constraint"),
        ("paths bakery --from 1.0.0 --to 1.0", "--to: invalid version \"1.0\": No Major.Minor.Patch elements found"),
    ] {
        let (code, _, error) = olm(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!((code, error.contains(want)), (2, true), "{arguments}: {error}");
    }
}

#[test]
fn graph_suggests_similar_package() {
    let (code, out, error) = olm(&["graph", "bakry"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("did you mean bakery?"), "{error}");
}

#[test]
fn help_has_examples() {
    for verb in ["graph", "paths"] {
        let (code, out, _) = olm(&[verb, "--help"]);
        assert_eq!((code, out.contains("Examples:"), out.contains("Exit codes:")), (0, true, true), "{out}");
    }
}
