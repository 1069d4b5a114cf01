//! Every real bundle of the shared sample renders, or is refused by a rule; what comes out is held in one snapshot.
//!
//! The sample is not part of the repository: without it the test is skipped.
#![expect(clippy::unwrap_used, reason = "a test, also in its helpers")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use olm_bundle::{CertProvider, Level, RegistryV1, RenderOptions, lint, render_with_report};
use serde_json::json;

use crate::lab;

fn bundles(shared: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for package in std::fs::read_dir(shared).unwrap() {
        for version in std::fs::read_dir(package.unwrap().path()).unwrap() {
            let version = version.unwrap().path();
            found.push((version.strip_prefix(shared).unwrap().display().to_string(), version));
        }
    }
    found.sort();
    found
}

fn options(bundle: &RegistryV1, provider: CertProvider) -> RenderOptions {
    let mut options = RenderOptions::new("operators");
    options.cert_provider = Some(provider);
    if !bundle.csv.install_modes.supports(olm_bundle::InstallMode::AllNamespaces) {
        options.config = Some(json!({"watchNamespace": "operators"}));
    }
    options
}

#[test]
fn real_bundles_render() {
    let Some(shared) = lab::shared("data/bundles") else { return };
    let mut report = String::new();
    let found = bundles(&shared);
    assert_eq!(found.len(), 20, "the sample is whole");
    for (name, folder) in found {
        let bundle = RegistryV1::load_dir(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        writeln!(report, "{name}: package {}, csv {}", bundle.package_name, bundle.csv.name).unwrap();
        let mut findings: BTreeMap<(Level, &str), usize> = BTreeMap::new();
        for finding in lint(&bundle) {
            *findings.entry((finding.level, finding.rule)).or_default() += 1;
        }
        writeln!(report, "  findings: {findings:?}").unwrap();
        match render_with_report(&bundle, &options(&bundle, CertProvider::CertManager)) {
            Err(error) => writeln!(report, "  refused: {error}").unwrap(),
            Ok(rendered) => {
                let again =
                    render_with_report(&bundle, &options(&bundle, CertProvider::CertManager)).unwrap();
                let bytes = |objects: &[olm_core::Object]| -> Vec<_> {
                    objects.iter().map(|it| olm_core::go::json_string(&it.to_value())).collect()
                };
                assert_eq!(bytes(&rendered.objects), bytes(&again.objects), "{name}: the same bytes");
                let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
                for object in &rendered.objects {
                    *kinds.entry(object.kind()).or_default() += 1;
                }
                let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
                writeln!(report, "  {} objects: {}", rendered.objects.len(), kinds.join(", ")).unwrap();
                for object in &rendered.objects {
                    writeln!(report, "    {}", object.key()).unwrap();
                }
                for warning in &rendered.warnings {
                    writeln!(report, "  warning: {warning}").unwrap();
                }
            }
        }
    }
    insta::assert_snapshot!(report);
}
