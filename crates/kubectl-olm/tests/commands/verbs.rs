//! Every verb as a user runs it: what is printed, and the exit code.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Exit code, standard output and standard error.
fn olm(arguments: &[&str], input: &str) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // a verb that reads nothing may have ended already
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn write(root: &Path, name: &str, text: &str) -> PathBuf {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn semver_check_prints_result() {
    let two = |dialect: &str, range: &str, version: &str| {
        let (code, out, _) = olm(&["semver", "check", "--dialect", dialect, range, version], "");
        (code, out)
    };
    assert_eq!(two("masterminds", "^1.2", "1.9.0"), (0, "true\n".to_owned()));
    assert_eq!(two("masterminds", "^1.2", "2.0.0"), (1, "false\n".to_owned()));
    assert_eq!(two("blang", ">=1.0.0 <2.0.0", "2.0.0-alpha"), (0, "true\n".to_owned()));
    assert_eq!(two("masterminds", "^1.2", "v1.2"), (0, "true\n".to_owned()), "as the library reads it");
    assert_eq!(
        two("blang", ">=1.0.0", "1.2"),
        (2, "version-error: No Major.Minor.Patch elements found\n".to_owned())
    );
    let (code, out, error) = olm(&["semver", "check", "--dialect", "masterminds", "1.0 !1.2.1", "1.0.0"], "");
    assert_eq!((code, out.as_str()), (2, "range-error: improper constraint: \"1.0 !1.2.1\"\n"));
    assert_eq!(
        error, "improper constraint: \"1.0 !1.2.1\"\n  1.0 !1.2.1\n      ^\n  write != instead of !\n",
        "the invalid word is marked, with the fix"
    );

    let lines = "1.x\t1.5.0\n1.x\t2.0.0\nnonsense!\t1.0.0\n1.x\tv\n";
    let (code, out, _) = olm(&["semver", "check", "--dialect", "masterminds"], lines);
    let out: Vec<&str> = out.lines().map(|line| line.split(':').next().unwrap_or_default()).collect();
    assert_eq!((code, out), (0, vec!["true", "false", "range-error", "version-error"]));
    let (code, _, error) = olm(&["semver", "check", "--dialect", "blang"], "no tab\n");
    assert_eq!((code, error.contains("line 1 of standard input has no tab")), (2, true));
}

#[test]
fn catalog_validate_prints_findings() {
    let root = tempfile::tempdir().unwrap();
    let package = "schema: olm.package\nname: demo\ndefaultChannel: stable\n---\n";
    let channel = "schema: olm.channel\npackage: demo\nname: stable\nentries: [{name: demo.v1.0.0}]\n---\n";
    let bundle = "schema: olm.bundle\npackage: demo\nname: demo.v1.0.0\nimage: example.com/demo:v1\n\
                  properties: [{type: olm.package, value: {packageName: demo, version: 1.0.0}}]\n";
    write(root.path(), "catalog.yaml", &format!("{package}{channel}{bundle}"));
    let path = root.path().to_str().unwrap();
    let (code, out, _) = olm(&["catalog", "validate", path], "");
    assert_eq!((code, out.lines().last()), (0, Some("0 errors, 0 warnings")), "{out}");

    write(
        root.path(),
        "catalog.yaml",
        &format!("{package}{}{bundle}", channel.replace("demo.v1.0.0", "demo.v9.9.9")),
    );
    let (code, out, _) = olm(&["catalog", "validate", path], "");
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("demo.v9.9.9"), "{out}");
    let (code, out, _) = olm(&["catalog", "validate", path, "-o", "json"], "");
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, rows[0]["severity"].as_str()), (1, Some("error")));
    let (code, out, _) = olm(&["catalog", "validate", path, "-o", "table"], "");
    let lines: Vec<&str> = out.lines().collect();
    assert!(code == 1 && lines[0].starts_with("SEVERITY   RULE") && lines[1].starts_with("error"), "{out}");
    assert!(
        lines.last().unwrap().contains(" error")
            && lines.last().unwrap().contains(" warning")
            && lines.len() == rows.as_array().unwrap().len() + 2
    );
    let (code, out, _) = olm(&["catalog", "validate", path, "-o", "yaml"], "");
    assert!(code == 1 && out.starts_with("- severity: error\n  rule: "), "{out}");

    let (code, _, error) = olm(&["catalog", "validate", "/no/such/directory"], "");
    assert_eq!((code, error.contains("/no/such/directory")), (2, true), "{error}");
    let file = root.path().join("catalog.yaml");
    let (code, _, error) = olm(&["catalog", "validate", file.to_str().unwrap()], "");
    assert_eq!(
        (code, error.trim_end().ends_with("catalog.yaml: it is a file, not a directory")),
        (2, true),
        "{error}"
    );
}

const CSV: &str = "apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata: {name: demo.v1.0.0}
spec:
  version: 1.0.0
  installModes: [{type: AllNamespaces, supported: true}]
  install:
    spec:
      deployments:
      - name: demo
        spec:
          selector: {matchLabels: {app: demo}}
          template:
            metadata: {labels: {app: demo}}
            spec: {serviceAccountName: demo, containers: [{name: main, image: 'example.com/demo:v1'}]}
      clusterPermissions:
      - serviceAccountName: demo
        rules: [{apiGroups: [''], resources: [pods], verbs: [get, list]}]
";

#[test]
fn bundle_verbs_print_results() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "manifests/csv.yaml", CSV);
    let package = "annotations: {operators.operatorframework.io.bundle.package.v1: demo}";
    write(root.path(), "metadata/annotations.yaml", package);
    let path = root.path().to_str().unwrap();

    let (code, out, error) = olm(&["bundle", "render", path, "--namespace", "demo-system"], "");
    assert_eq!(code, 0, "{error}");
    let kinds: Vec<String> = out
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(kinds, ["ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment"]);

    let (code, out, _) = olm(&["bundle", "inspect", path], "");
    assert_eq!(code, 0);
    for part in [
        "package: demo",
        "install modes: ",
        "example.com/demo:v1 (runs demo/main; not in relatedImages)",
        "demo may ",
    ] {
        assert!(out.contains(part), "{part} in {out}");
    }

    assert_eq!(olm(&["bundle", "lint", path], "").0, 0);
    let broken = CSV.replace("name: demo\n        spec:", "name: Not_A_Name\n        spec:");
    write(root.path(), "manifests/csv.yaml", &broken);
    let (code, out, _) = olm(&["bundle", "lint", path], "");
    assert_eq!((code, out.contains("error: ") && out.contains("Not_A_Name")), (1, true), "{out}");
    let (code, _, error) = olm(&["bundle", "render", path, "-n", "demo-system"], "");
    assert_eq!((code, error.contains("Not_A_Name")), (2, true), "{error}");

    let file = format!("{path}/manifests/csv.yaml");
    let (code, _, error) = olm(&["bundle", "lint", &file], "");
    assert_eq!((code, error), (2, format!("error: {file}: it is a file, not a directory\n")));
    let annotations = write(root.path(), "metadata/annotations.yaml", "annotations: [");
    let (code, _, error) = olm(&["bundle", "lint", path, "-o", "json"], "");
    let want = format!("error: {}: error converting YAML to JSON: ", annotations.display());
    assert_eq!((code, error.starts_with(&want)), (2, true), "the file is named: {error}");
    let missing = format!("{path}/no-such-directory");
    let (code, _, error) = olm(&["bundle", "lint", &missing], "");
    let want = format!("error: cannot read {missing}: No such file or directory");
    assert_eq!((code, error.starts_with(&want)), (2, true), "the path is named: {error}");
}

#[test]
fn crd_diff_reports_dangerous_changes() {
    let root = tempfile::tempdir().unwrap();
    let crd = |properties: &str| {
        format!(
            "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: a.example.com}}\n\
             spec: {{scope: Namespaced, versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: \
             {{type: object, properties: {properties}}}}}}}]}}\n"
        )
    };
    let old = write(root.path(), "old.yaml", &crd("{a: {type: string}}"));
    let wider = write(root.path(), "wider.yaml", &crd("{a: {type: string, title: t}, b: {type: string}}"));
    let broken = write(root.path(), "broken.yaml", &crd("{a: {type: integer}}"));
    let (old, wider, broken) = (old.to_str().unwrap(), wider.to_str().unwrap(), broken.to_str().unwrap());
    assert_eq!(olm(&["crd", "diff", old, wider], ""), (0, String::new(), String::new()));
    assert_eq!(olm(&["crd", "diff", old, wider, "--parity"], "").0, 1);
    let (code, out, _) = olm(&["crd", "diff", old, broken], "");
    assert_eq!(code, 1);
    assert!(out.starts_with("v1: ^.a: type: type changed : \"string\" -> \"integer\"\n  "), "{out}");
    let other = write(root.path(), "other.yaml", "kind: Pod\n");
    let (code, _, error) = olm(&["crd", "diff", old, other.to_str().unwrap()], "");
    assert_eq!((code, error.contains("not CustomResourceDefinition")), (2, true), "{error}");

    // files of several CRDs: each is compared with that of its name
    let second = |properties: &str| crd(properties).replace("a.example.com", "b.example.com");
    let both = |name: &str, second: &str| {
        let text = format!("{}---\nkind: Namespace\n---\n{second}", crd("{a: {type: string}}"));
        write(root.path(), name, &text).to_str().unwrap().to_owned()
    };
    let before = both("before.yaml", &second("{a: {type: string}}"));
    let after = both("after.yaml", &second("{a: {type: integer}}"));
    assert_eq!(olm(&["crd", "diff", &before, &before], ""), (0, String::new(), String::new()));
    let (code, out, error) = olm(&["crd", "diff", &before, &after], "");
    assert_eq!(code, 1, "{error}");
    assert!(out.starts_with("b.example.com: v1: ^.a: type: type changed : \"string\" -> "), "{out}");
    let (code, out, _) = olm(&["crd", "diff", &before, old], "");
    assert_eq!((code, out.contains("b.example.com: dropped: ")), (1, true), "{out}");
    let twice = both("twice.yaml", &crd("{}"));
    let (code, _, error) = olm(&["crd", "diff", &before, &twice], "");
    assert_eq!((code, error.contains("\"a.example.com\" is in it twice")), (2, true), "{error}");
}

#[test]
fn simulate_answers_the_shipped_scenarios() {
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../olm-resolver/tests/scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(scenarios).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "scn") {
            let (code, out, error) = olm(&["simulate", path.to_str().unwrap()], "");
            assert_eq!(code, 0, "{}: {out}{error}", path.display());
            count += 1;
        }
    }
    assert!(count >= 10, "{count} scenarios");
    let (code, _, error) = olm(&["simulate", "/no/such/file"], "");
    assert_eq!((code, error.contains("/no/such/file")), (2, true));
    let root = tempfile::tempdir().unwrap();
    let text = "title t\npackage p\ncatalog main from missing\nboth installed none => stay\n";
    let file = write(root.path(), "a.scn", text);
    let (code, _, error) = olm(&["simulate", file.to_str().unwrap()], "");
    assert_eq!((code, error.contains("No such file or directory")), (2, true), "the cause is named: {error}");
    let want = "error: standard input: line 1: there is no package line; write package NAME\n";
    assert_eq!(olm(&["simulate", "-"], ""), (2, String::new(), want.to_owned()));
    let (code, _, error) = olm(&["simulate", "-"], &"x".repeat(1_000_000));
    assert_eq!((code, error.len() < 10_000), (2, true), "{}", error.len());
}

#[test]
fn completion_and_help_succeed() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = olm(&["completion", shell], "");
        assert_eq!((code, out.contains("kubectl-olm")), (0, true), "{shell}");
    }
    assert_eq!(olm(&["--help"], "").0, 0);
    assert_eq!(olm(&["no-such-verb"], "").0, 2);
    let (code, out, error) = olm(&[], "");
    assert_eq!((code, out.is_empty(), error.as_str()), (0, false, ""), "without a verb: help");
    let (code, _, error) = olm(&["report", "-o", "r.zip"], "");
    assert_eq!(
        (code, error.contains("name a file that ends with .tar.gz, or a folder")),
        (2, true),
        "{error}"
    );
}

/// Threat: docs/threat-model.md. What standard output gets is tested in `terminal.rs`: here it is no terminal.
#[test]
fn errors_replace_control_characters() {
    let (code, _, err) = olm(&["catalog", "validate", "no\u{1b}[2Jsuch\u{202e}file"], "");
    assert_eq!(code, 2, "{err:?}");
    assert!(err.contains("no\u{fffd}[2Jsuch\u{fffd}file") && !err.contains('\u{1b}'), "{err:?}");
}

#[test]
fn full_output_device_gives_message_and_code() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
        .arg("version")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error, "error: cannot write the result: no space left on device\n");
}

#[test]
fn report_names_the_file_that_cannot_be_written() {
    let words = ["report", "--kubeconfig", "/no/such/file", "-o", "/no/such/folder/report.tar.gz"];
    let (code, out, error) = olm(&words, "");
    let want = "error: cannot write /no/such/folder/report.tar.gz: No such file or directory";
    assert_eq!((code, out.as_str()), (2, ""), "{error}");
    assert!(error.lines().any(|line| line.starts_with(want)), "{error}");
}

#[test]
fn full_error_device_keeps_output_and_code() {
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/catalog");
    for (arguments, want) in [
        (&["catalog", "validate", "/no/such/directory"][..], (2, "")),
        // with a notice
        (
            &["resolve", "kiln-operator", "--version", "1.x", "--dir", catalog, "-o", "name"],
            (0, "kiln-operator.v1.2.0\n"),
        ),
    ] {
        let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else { return };
        let output = Command::new(env!("CARGO_BIN_EXE_kubectl-olm"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(full)
            .spawn()
            .and_then(std::process::Child::wait_with_output)
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), out.as_str()), (Some(want.0), want.1), "{arguments:?}");
    }
}

#[test]
fn version_is_that_of_the_plugin() {
    let (code, out, error) = olm(&["version", "-o", "json"], "");
    let version: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, version["version"].as_str(), error.as_str()), (0, Some(env!("CARGO_PKG_VERSION")), ""));
}

/// A dry run sends nothing, so it needs no cluster.
#[test]
fn install_dry_run_prints_the_manifest() {
    let root = tempfile::tempdir().unwrap();
    let file = write(
        root.path(),
        "x.yaml",
        "apiVersion: olm.operatorframework.io/v1\nkind: ClusterExtension\nmetadata: {name: x, labels: {team: a}}\n\
         spec: {namespace: x, source: {sourceType: Catalog, catalog: {packageName: p, version: 1.x}}, config: {configType: Inline, inline: {a: 1}}}\n",
    );
    let file = file.to_str().unwrap();
    let words = [
        "install",
        "-f",
        file,
        "-n",
        "other",
        "--version",
        "2.x",
        "--set",
        "b.c=2",
        "--dry-run",
        "-o",
        "json",
    ];
    let (code, out, error) = olm(&words, "");
    assert_eq!(code, 0, "{error}");
    let manifest: serde_json::Value = serde_json::from_str(&out).unwrap();
    let want = serde_json::json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "x", "labels": {"team": "a"}},
        "spec": {"namespace": "other", "config": {"configType": "Inline", "inline": {"a": 1, "b": {"c": 2}}},
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "p", "version": "2.x", "upgradeConstraintPolicy": "CatalogProvided"}}},
    });
    assert_eq!(manifest, want);
    // from standard input, with the same flags; it can be read once
    let text = std::fs::read_to_string(file).unwrap();
    let (code, out, error) = olm(&[&["install", "-f", "-"][..], &words[3..]].concat(), &text);
    assert_eq!((code, serde_json::from_str(&out).ok()), (0, Some(want)), "{error}");
    let (code, _, error) = olm(&["install", "-f", "-", "--config", "@-", "--dry-run"], &text);
    assert_eq!((code, error.contains("standard input: there is no document")), (2, true), "{error}");
    let two = write(root.path(), "two.yaml", "kind: ClusterExtension\n---\nkind: Namespace\n");
    let config = format!("@{}", two.display());
    for words in [
        &["install", "-f", &config[1..], "--dry-run"][..],
        &["install", "p", "-n", "x", "--config", config.as_str(), "--dry-run"],
    ] {
        let (code, out, error) = olm(words, "");
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        assert!(error.contains("there are 2 documents in it; give a file with one"), "{error}");
    }
    let (code, out, _) = olm(&["install", "p", "-n", "x", "--catalog", "mine", "--dry-run"], "");
    assert_eq!((code, out.as_str()), (0, "clusterextension/p created (package p, any version) (dry run)\n"));
    let words = ["install", "p", "-n", "x", "--dry-run", "-o", "name", "--kubeconfig", "/no/such/file"];
    let (code, out, error) = olm(&words, "");
    assert_eq!((code, out.as_str()), (0, "clusterextension.olm.operatorframework.io/p\n"), "{error}");
    assert!(error.starts_with("note: no plan was made: cannot read kubeconfig /no/such/file"), "{error}");
    let (code, _, error) = olm(&["install", "p"], "");
    assert_eq!((code, error.contains("--namespace is missing")), (2, true), "{error}");
    let (code, _, error) = olm(&["upgrade", "p"], "");
    assert_eq!(
        (code, error.contains("there is nothing to change: give --version RANGE")),
        (2, true),
        "{error}"
    );
}
