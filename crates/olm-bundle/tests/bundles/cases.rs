//! One folder a bundle, one file a way to render it: what comes out is a snapshot beside this file.
//!
//! An options file has the members `certProvider` (`CertManager`, `ServiceCa`, `BuiltIn`, `None`; default `BuiltIn`) and
//! `config` (`spec.config.inline`). The install namespace is `operators`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in its helpers")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use olm_bundle::{
    CertProvider, FORMAT, Finding, RegistryV1, RenderOptions, inspect, lint, render_with_report,
};
use olm_yaml::{Documents, Limits};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// A format, and the digest of the objects of all cases in it.
const RENDERED: (u32, &str) = (1, "70d900a6a96ed3c853a6d1b0ac7dead4be075fdf18db73780c8269a7e8a513d3");

fn options(path: &Path) -> RenderOptions {
    let bytes = std::fs::read(path).unwrap();
    let json = Documents::from_bytes(&bytes, Limits::default()).next().unwrap().unwrap();
    let given: Value = serde_json::from_slice(&json).unwrap();
    let mut options = RenderOptions::new("operators");
    options.config = given.get("config").cloned();
    options.cert_provider = match given.get("certProvider").and_then(Value::as_str) {
        None | Some("BuiltIn") => Some(CertProvider::BuiltIn),
        Some("CertManager") => Some(CertProvider::CertManager),
        Some("ServiceCa") => Some(CertProvider::ServiceCa),
        Some("None") => None,
        Some(other) => panic!("{}: unknown certProvider {other}", path.display()),
    };
    options
}

fn case(path: &Path) -> String {
    let bundle = RegistryV1::load_dir(&path.parent().unwrap().join("bundle")).unwrap();
    let options = options(path);
    let mut text = String::new();
    match render_with_report(&bundle, &options) {
        Err(error) => writeln!(text, "refused: {error}").unwrap(),
        Ok(rendered) => {
            let again = render_with_report(&bundle, &options).unwrap();
            assert_eq!(rendered, again, "rendering twice is the same");
            for object in &rendered.objects {
                writeln!(text, "{}\n{}", object.key(), serde_json::to_string_pretty(object).unwrap())
                    .unwrap();
            }
            for certificate in &rendered.certificates {
                writeln!(text, "certificate {certificate:#?}").unwrap();
            }
            for warning in &rendered.warnings {
                writeln!(text, "warning: {warning}").unwrap();
            }
        }
    }
    text
}

#[test]
fn cases() {
    insta::glob!("cases/*/*.yaml", |path| {
        let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        insta::assert_snapshot!(folder, case(path));
    });
}

fn files(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// What is installed is rendered again only when the format is raised.
#[test]
fn format_is_raised_when_rendered_objects_differ() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/cases");
    let mut paths: Vec<PathBuf> = files(&folder).iter().flat_map(|case| files(case)).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let mut digest = Sha256::new();
    for path in paths {
        let bundle = RegistryV1::load_dir(&path.parent().unwrap().join("bundle")).unwrap();
        let rendered = render_with_report(&bundle, &options(&path));
        for object in rendered.iter().flat_map(|rendered| &rendered.objects) {
            digest.update(serde_json::to_string_pretty(object).unwrap());
            digest.update("\n");
        }
    }
    let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (FORMAT, digest.as_str()),
        RENDERED,
        "the cases render to other objects: raise FORMAT in crates/olm-bundle/src/render/mod.rs, so that installed extensions get \
         theirs, and set RENDERED; if only a case is new or changed, set RENDERED alone"
    );
}

#[test]
fn cases_lint_for_authors() {
    insta::glob!("cases/*/bundle", |folder| {
        let bundle = RegistryV1::load_dir(folder).unwrap();
        let name = folder.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        let mut text = format!("{:#?}\n", inspect(&bundle));
        for Finding { level, rule, message } in lint(&bundle) {
            writeln!(text, "{level:?} {rule}: {message}").unwrap();
        }
        insta::assert_snapshot!(format!("author_{name}"), text);
    });
}
