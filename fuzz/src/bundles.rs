//! Bundles: manifests and configuration.

use olm_bundle::{
    CertProvider, Gates, InstallMode, RegistryV1, RenderOptions, config_schema, inspect, lint, read_config,
    render,
};
use serde_json::Value;

use crate::{parts, texts};

/// CSV, `metadata/annotations.yaml`, `metadata/properties.yaml`, one more manifest. Rendering the same bundle twice gives the
/// same objects, each of which has a kind and a name; inspecting and linting neither panic nor hang.
pub(crate) fn bundle(input: &[u8]) {
    let [csv, annotations, properties, other] = texts::<4>(input);
    let annotations = match annotations.is_empty() {
        true => "annotations: {operators.operatorframework.io.bundle.package.v1: p}".to_owned(),
        false => annotations,
    };
    let mut files = vec![("manifests/csv.yaml", csv), ("metadata/annotations.yaml", annotations)];
    files.extend((!properties.is_empty()).then_some(("metadata/properties.yaml", properties)));
    files.extend((!other.is_empty()).then_some(("manifests/other.yaml", other)));
    let Ok(bundle) = RegistryV1::from_files(files) else { return };
    let mut options = RenderOptions::new("operators");
    for provider in [None, Some(CertProvider::CertManager)] {
        options.cert_provider = provider;
        let rendered = render(&bundle, &options);
        match (&rendered, render(&bundle, &options)) {
            (Ok(objects), Ok(again)) => assert_eq!(*objects, again),
            (Err(one), Err(two)) => assert_eq!(one.to_string(), two.to_string()),
            _ => unreachable!("rendered once, refused once"),
        }
        for object in rendered.iter().flatten() {
            assert!(!object.kind().is_empty(), "an object without a kind was rendered");
        }
    }
    let _ = (inspect(&bundle), lint(&bundle));
}

/// Install modes and gates (one byte each), configuration. Rejected with a message, or read; the schema that is shown to users
/// is the same each time.
pub(crate) fn config(input: &[u8]) {
    let [modes, config] = parts::<2>(input);
    let (modes, gates) = (modes.first().copied().unwrap_or(15), modes.get(1).copied().unwrap_or(3));
    let Ok(config) = serde_json::from_slice::<Value>(config) else { return };
    let supported = InstallMode::ALL.into_iter().enumerate().filter(|(bit, _)| modes & (1 << bit) != 0);
    let supported = supported.map(|(_, mode)| mode).collect();
    let gates = Gates { single_own_namespace: gates & 1 != 0, deployment_config: gates & 2 != 0 };
    assert_eq!(config_schema(&supported, gates), config_schema(&supported, gates));
    match (
        read_config(Some(&config), &supported, "operators", gates),
        read_config(Some(&config), &supported, "operators", gates),
    ) {
        (Ok(one), Ok(two)) => assert_eq!(one, two),
        (Err(one), Err(two)) => {
            assert_eq!(one.to_string(), two.to_string());
            assert!(!one.to_string().is_empty());
        }
        _ => unreachable!("taken once, refused once"),
    }
}
