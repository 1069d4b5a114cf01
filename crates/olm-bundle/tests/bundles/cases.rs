//! One folder a bundle, one file a way to render it: what comes out is a snapshot beside this file.
//!
//! An options file has the members `certProvider` (`CertManager`, `ServiceCa`, `BuiltIn`, `None`; default `BuiltIn`) and
//! `config` (`spec.config.inline`). The install namespace is `operators`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test, also in its helpers")]

use std::fmt::Write as _;
use std::path::Path;

use olm_bundle::{CertProvider, Finding, RegistryV1, RenderOptions, inspect, lint, render_with_report};
use olm_yaml::{Documents, Limits};
use serde_json::Value;

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
