//! `bundle`, `config` and `crd diff` on a bundle in a directory: what is printed, and the exit codes.

use std::path::Path;

use anyhow::{Context as _, Result};
use olm_kit::{BundleImage, Crd, RunDir};
use serde_json::json;

use crate::support::olm;

/// Everything that the verbs speak of.
fn bundle(version: &str, crd: Crd) -> BundleImage {
    BundleImage::new("demo", version)
        .crds([crd])
        .install_modes(&["AllNamespaces", "OwnNamespace"])
        .csv_patch(json!({"spec": {
            "relatedImages": [{"name": "manager", "image": "example.invalid/manager:v1"}, {"name": "db", "image": "example.invalid/db:v3"}],
            "customresourcedefinitions": {"required": [{"name": "certificates.cert-manager.io"}]},
        }}))
}

fn unpacked(dir: &Path, bundle: &BundleImage) -> Result<()> {
    for (path, content) in bundle.files() {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().context("no parent")?)?;
        std::fs::write(path, content)?;
    }
    Ok(())
}

fn gadget() -> Crd {
    Crd::new("Gadget", "demo.example.com")
}

#[test]
fn bundle_inspect_prints_text_and_rbac() -> Result<()> {
    let home = RunDir::new("home")?;
    let dir = home.path().join("bundle");
    unpacked(&dir, &bundle("1.0.0", gadget()).deployment("second"))?;
    let path = dir.to_str().context("path")?;
    let (code, out, error) = olm(home.path(), &["bundle", "inspect", path])?;
    assert_eq!(code, 0, "{error}");
    insta::assert_snapshot!("inspect", out);
    let (code, out, _) = olm(home.path(), &["bundle", "inspect", path, "--rbac"])?;
    assert_eq!(code, 0);
    insta::assert_snapshot!("inspect_rbac", out);

    let refused = bundle("1.0.0", gadget())
        .csv_patch(json!({"spec": {"apiservicedefinitions": {"owned": [{"name": "a"}]}}}));
    unpacked(&dir, &refused)?;
    let (code, out, _) = olm(home.path(), &["bundle", "inspect", path])?;
    assert_eq!(
        (code, out.contains("unsupported:\n  apiServiceDefintions are not supported")),
        (0, true),
        "{out}"
    );
    Ok(())
}

#[test]
fn config_prints_schema_defaults_and_validates() -> Result<()> {
    let home = RunDir::new("home")?;
    let dir = home.path().join("bundle");
    unpacked(&dir, &bundle("1.0.0", gadget()))?;
    let path = dir.to_str().context("path")?;
    let (code, out, error) = olm(home.path(), &["config", "defaults", path, "-o", "yaml"])?;
    assert_eq!(code, 0, "{error}");
    insta::assert_snapshot!("config_defaults", out);

    let (code, out, _) = olm(home.path(), &["config", "schema", path])?;
    let schema: serde_json::Value = serde_json::from_str(&out)?;
    assert_eq!((code, &schema["additionalProperties"]), (0, &json!(false)));
    let names: Vec<_> = schema["properties"].as_object().context("properties")?.keys().cloned().collect();
    assert_eq!(names, ["deploymentConfig", "watchNamespace"]);

    let file = home.path().join("inline.yaml");
    let file_name = file.to_str().context("path")?;
    let check = |text: &str| -> Result<(i32, String)> {
        std::fs::write(&file, text)?;
        let (code, out, error) =
            olm(home.path(), &["config", "validate", path, "-n", "here", "--config", file_name])?;
        Ok((code, out + &error))
    };
    let want = (0, "the configuration fits; the operator watches namespace here\n".to_owned());
    assert_eq!(check("watchNamespace: here")?, want);
    assert_eq!(check("{}")?, (0, "the configuration fits; the operator watches all namespaces\n".to_owned()));
    let (code, text) = check("{watchNamespace: other}")?;
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("'other' is not valid ownNamespaceInstallMode"), "{text}");
    let (code, text) = check("deploymentConfig: {env: [{name: A, valeu: b}]}")?;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("warning: ") && text.contains("valeu"), "{text}");
    let (code, text) = check("deploymentConfig: {resources: {limits: {cpu: abc}}}")?;
    assert_eq!(code, 1, "{text}");
    let (code, text) = check("a: [")?;
    assert_eq!((code, text.contains("inline.yaml")), (2, true), "{text}");
    Ok(())
}

#[test]
fn crd_diff_compares_all_crds_of_two_bundles() -> Result<()> {
    let home = RunDir::new("home")?;
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    unpacked(&old, &bundle("1.0.0", gadget()))?;
    unpacked(&new, &bundle("1.1.0", gadget().field("more", json!({"type": "string"}))))?;
    let (old, new) = (old.to_str().context("path")?, new.to_str().context("path")?);
    assert_eq!(olm(home.path(), &["crd", "diff", old, new])?, (0, String::new(), String::new()));
    let (code, out, _) = olm(home.path(), &["crd", "diff", new, old])?;
    assert_eq!(code, 1);
    assert!(
        out.starts_with("gadgets.demo.example.com: existingFieldRemoval: removed field : v1.^.spec.more\n"),
        "{out}"
    );

    let other = home.path().join("other");
    unpacked(&other, &bundle("1.1.0", Crd::new("Widget", "demo.example.com")))?;
    let (code, out, _) =
        olm(home.path(), &["crd", "diff", old, other.to_str().context("path")?, "-o", "json"])?;
    let rows: serde_json::Value = serde_json::from_str(&out)?;
    assert_eq!(
        (code, &rows[0]["crd"], &rows[0]["check"]),
        (1, &json!("gadgets.demo.example.com"), &json!("dropped"))
    );
    // one file against the bundle that is to replace it
    let file = format!("{old}/manifests/gadgets.demo.example.com.yaml");
    assert_eq!(olm(home.path(), &["crd", "diff", &file, new])?.0, 0);
    Ok(())
}

#[test]
fn help_has_examples_and_exit_codes() -> Result<()> {
    let home = RunDir::new("home")?;
    for verb in [
        &["bundle", "render"][..],
        &["bundle", "inspect"],
        &["bundle", "lint"],
        &["config", "schema"],
        &["config", "defaults"],
        &["config", "validate"],
        &["crd", "diff"],
    ] {
        let (code, out, _) = olm(home.path(), &[verb, &["--help"]].concat())?;
        assert!(
            code == 0 && out.contains("Exit codes: 0 ") && out.contains("kubectl olm"),
            "{verb:?}: {out}"
        );
    }
    Ok(())
}
