//! The reading verbs on a directory: every form of every verb. (Commands that the documentation shows run in
//! tests/integration/tests/docs.)
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

/// Exit code and both outputs of a command line, run beside the fixtures.
fn olm(line: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
        .args(words(line))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
        .env("XDG_CACHE_HOME", std::env::temp_dir())
        .env("KUBECONFIG", "/no/such/kubeconfig")
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The arguments of a command line with single quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn transcript(line: &str) -> String {
    let (code, out, error) = olm(line);
    let error = if error.is_empty() { error } else { format!("--- standard error\n{error}") };
    format!("$ kubectl olm {line}\n{out}{error}--- exit code {code}\n")
}

fn transcripts(lines: &[&str]) -> String {
    lines.iter().map(|line| transcript(&format!("{line} --dir catalog"))).collect::<Vec<_>>().join("\n")
}

#[test]
fn classic_resolve_prints_bundles_of_a_namespace() {
    let lines = [
        "classic resolve -n operators -f classic.yaml --content sample=catalog",
        "classic resolve -n candidates -f classic.yaml --content sample=catalog -o yaml",
        "classic resolve -n operators -f classic.yaml",
        "classic resolve -n nowhere -f classic.yaml",
        "classic resolve -n operators -f classic.yaml --content catalog",
    ];
    let printed: Vec<String> = lines.map(transcript).to_vec();
    insta::assert_snapshot!(printed.join("\n"));
}

#[test]
fn classic_resolve_explains_choices_and_conflicts() {
    let lines = [
        "classic resolve -n candidates -f classic.yaml --content sample=catalog",
        "classic resolve -n upgrading -f classic.yaml --content sample=catalog -o json",
        "classic resolve -n stuck -f classic.yaml --content sample=catalog",
        "classic resolve -n twice -f classic.yaml --content sample=catalog",
        "classic resolve -n twice -f classic.yaml --content sample=catalog -o yaml",
    ];
    let printed: Vec<String> = lines.map(transcript).to_vec();
    insta::assert_snapshot!(printed.join("\n"));
}

#[test]
fn classic_graph_marks_what_the_namespace_gets() {
    let lines = [
        "classic graph kiln-operator -n upgrading -f classic.yaml --content sample=catalog",
        "classic graph kiln-operator -n operators -f classic.yaml --content sample=catalog --channel candidate -o mermaid",
        "classic graph kiln-operator -n twice -f classic.yaml --content sample=catalog -o dot",
        "classic graph fuel-operator -n operators -f classic.yaml --content sample=catalog --source sample",
        "classic graph fuel-operator --dir catalog",
        "classic graph absent -n operators -f classic.yaml --content sample=catalog",
        "classic graph kiln-operator -n operators -f classic.yaml",
    ];
    let printed: Vec<String> = lines.map(transcript).to_vec();
    insta::assert_snapshot!(printed.join("\n"));
}

#[test]
fn classic_plan_prints_steps_in_order() {
    let content = "-f classic.yaml --content sample=catalog --bundle kiln-operator.v1.2.0=kiln-bundle";
    let lines = [
        format!("classic plan -n operators {content}"),
        format!("classic plan -n upgrading {content} -o yaml"),
        format!("classic plan -n operators {content} -o name"),
        format!("classic plan -n twice {content}"),
        "classic plan -n operators -f classic.yaml".to_owned(),
        "classic plan -n nowhere -f classic.yaml".to_owned(),
        "classic plan -n operators -f classic.yaml --content sample=catalog --bundle kiln-operator.v1.2.0=catalog".to_owned(),
        "classic plan -n stuck -f classic.yaml --content sample=catalog".to_owned(),
        // programs get a document without a plan, too
        "classic plan -n stuck -f classic.yaml --content sample=catalog -o yaml".to_owned(),
        "classic plan -n twice -f classic.yaml --content sample=catalog -o json".to_owned(),
    ];
    let printed: Vec<String> = lines.iter().map(|line| transcript(line)).collect();
    insta::assert_snapshot!(printed.join("\n"));
}

#[test]
fn classic_plan_of_an_unusable_bundle_is_an_error() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kiln-bundle");
    let bundle = tempfile::tempdir().unwrap();
    for directory in ["manifests", "metadata"] {
        std::fs::create_dir(bundle.path().join(directory)).unwrap();
        for file in std::fs::read_dir(fixture.join(directory)).unwrap() {
            let file = file.unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let copy = bundle.path().join(directory).join(file.file_name());
            std::fs::write(copy, text.replace("kiln-operator.v1.2.0", "kiln-operator.v1.2.9")).unwrap();
        }
    }
    let bundle = bundle.path().display();
    let line = format!(
        "classic plan -n operators -f classic.yaml --content sample=catalog --bundle kiln-operator.v1.2.0={bundle}"
    );
    let error = "error: bundle kiln-operator.v1.2.0: its ClusterServiceVersion is named kiln-operator.v1.2.9; publish the bundle with \
                 one name\n";
    // standard output stays empty: it would be no document
    for form in ["", " -o json", " -o name"] {
        assert_eq!(olm(&format!("{line}{form}")), (2, String::new(), error.to_owned()), "{form}");
    }
    let file = fixture.join("manifests/kiln-operator.yaml");
    let file = file.display();
    let (code, _, error) = olm(&format!(
        "classic plan -n operators -f classic.yaml --content sample=catalog --bundle kiln-operator.v1.2.0={file}"
    ));
    assert_eq!((code, error), (2, format!("error: {file}: it is a file, not a directory\n")));
}

#[test]
fn empty_variables_count_as_unset() {
    let names = [
        "AUTHFILE",
        "CACHE_DIR",
        "CATALOGD_CAS_DIR",
        "CATALOGD_URL",
        "CA_FILE",
        "CERT_DIR",
        "CONTEXT",
        "REGISTRIES_CONF",
        "REQUEST_TIMEOUT",
    ];
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
        .args(["search", "--dir", "catalog", "-o", "name"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"))
        .envs(names.map(|name| (format!("KUBECTL_OLM_{name}"), "")))
        .output()
        .unwrap();
    let without = olm("search --dir catalog -o name");
    assert_eq!(
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap()),
        (without.0, without.1)
    );
}

#[test]
fn search_prints_packages() {
    insta::assert_snapshot!(transcripts(&[
        "search",
        "search KILN -o wide",
        "search potter -o json",
        "search CERAMICS",
        "search temperature -o name",
        "search kiln -o yaml",
        "search -o name",
        "search nothing",
        "search nothing -o json",
    ]));
}

#[test]
fn show_prints_package() {
    insta::assert_snapshot!(transcripts(&[
        "show kiln-operator",
        "show kiln-operator -o wide",
        "show kiln-operator --channel candidate",
        "show kiln-operator --version 1.0.1 -o json",
        "show fuel-operator",
        "show fuel-operator -o yaml",
        "show fuel-operator -o name",
        "show kiln-operator --channel stabel",
        "show kiln-operator --version 9",
        "show kiln",
    ]));
}

#[test]
fn versions_lists_bundles() {
    insta::assert_snapshot!(transcripts(&[
        "versions kiln-operator",
        "versions kiln-operator --version '>=1.1.0' --channel stable -o wide",
        "versions kiln-operator --channel candidate -o json",
        "versions fuel-operator -o yaml",
        "versions kiln-operator -o name",
        "versions kiln-operator --version '>>1'",
        "versions kiln-operator --version 9.x",
        "versions kiln-operator --channel stabel",
    ]));
}

#[test]
fn resolve_prints_chosen_bundle() {
    insta::assert_snapshot!(transcripts(&[
        "resolve kiln-operator --version 1.x",
        "resolve fuel-operator -o json",
        "resolve fuel-operator -o yaml",
        "resolve fuel-operator -o name",
        "resolve fuel-operator -o wide",
        "resolve kiln-operator --installed 1.0.0 --channel stable",
        "resolve kiln-operator --installed kiln-operator.v1.2.0 --version 1.1.0",
        "resolve fuel-operator --installed fuel-operator.v0.8.0@0.8.0 --policy SelfCertified",
        "resolve fuel-operator --installed 0.8.0",
        "resolve kiln-operator --channel candidate",
        "resolve nothing",
    ]));
}

#[test]
fn explain_prints_decision() {
    insta::assert_snapshot!(transcripts(&[
        "explain -f extension.yaml",
        "explain -f extension.yaml --installed 1.0.0",
        "explain -f extension.yaml --installed 1.0.1 -o json",
        "explain -f extension.yaml -o name",
        "explain -f catalog/fuel.yaml",
        "explain -f kiln-bundle/metadata/annotations.yaml",
    ]));
}

#[test]
fn cluster_errors_are_reported() {
    for line in ["list", "status kiln", "explain kiln", "search"] {
        let (code, out, error) = olm(line);
        assert_eq!((code, out.as_str()), (3, ""), "{line} {error}");
        assert!(error.starts_with("error: cannot read kubeconfig /no/such/kubeconfig: no such file or directory; name a cluster with --kubeconfig"), "{line} {error}");
    }
    let (code, _, error) = olm("search --dir no-such-directory");
    let want = "error: cannot read no-such-directory: No such file or directory";
    assert_eq!((code, error.starts_with(want)), (2, true), "{error}");
    let (code, _, error) = olm("search --dir extension.yaml");
    assert_eq!((code, error.as_str()), (2, "error: extension.yaml: it is a file, not a directory\n"));
    let (code, _, error) = olm("search --image kiln");
    assert_eq!((code, error.contains("write quay.io/example/catalog:tag")), (2, true), "{error}");
}

#[test]
fn help_has_examples_and_completion_for_each_verb() {
    for verb in [
        "search", "show", "versions", "resolve", "explain", "plan", "diff", "list", "status", "graph",
        "paths",
    ] {
        let (code, out, _) = olm(&format!("{verb} --help"));
        assert!(code == 0 && out.contains("Examples:") && out.contains("Exit codes:"), "{verb}: {out}");
        let candidates = olm(&format!("__complete {verb}")).1;
        assert!(candidates.lines().any(|line| line.split('\t').next() == Some(verb)), "{verb}: {candidates}");
    }
}

#[test]
fn mirror_lists_images() {
    insta::assert_snapshot!(transcripts(&[
        "mirror list kiln-operator/stable",
        "mirror list kiln-operator fuel-operator --heads -o wide",
        "mirror list 'kiln-operator/stable@>=1.1.0' kiln-operator/candidate@2.0.0-rc.1 -o name",
        "mirror list kiln-operator --version 1.2.0 --catalog-image registry.example.com/catalog:v1 --add-image ghcr.io/a/catalogd:1 -o json",
        "mirror list kiln-operator/gone",
        "mirror list kiln-operator@9.x",
        "mirror list kiln-operator --version x.y.z",
        "mirror list kilns",
        "mirror list kiln-operator/",
    ]));
}

#[test]
fn mirror_config_is_for_oc_mirror_and_skopeo() {
    let image = "--catalog-image registry.example.com/catalog:v1";
    insta::assert_snapshot!(transcripts(&[
        &format!("mirror config kiln-operator fuel-operator --format oc-mirror {image}"),
        &format!(
            "mirror config kiln-operator/candidate --heads --format oc-mirror --add-image nginx {image}"
        ),
        &format!(
            "mirror config kiln-operator/stable@1.0.0 kiln-operator/stable@1.2.0 --format oc-mirror {image}"
        ),
        "mirror config kiln-operator --format oc-mirror",
        "mirror config kiln-operator/stable --format skopeo --add-image nginx --add-image Bad/x:",
    ]));
}
