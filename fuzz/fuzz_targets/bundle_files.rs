//! Foreign bytes as the manifests of a bundle: parsing, rendering, inspecting and linting neither panic nor hang.
//!
//! The input is the CSV; what follows a line `%%%` is `metadata/annotations.yaml`, after another one `metadata/properties.yaml`.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_bundle::{RegistryV1, RenderOptions, inspect, lint, render};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let mut parts = text.splitn(3, "\n%%%\n");
    let csv = parts.next().unwrap_or_default();
    let annotations = parts.next().unwrap_or("annotations: {operators.operatorframework.io.bundle.package.v1: p}");
    let mut files = vec![("manifests/csv.yaml", csv), ("metadata/annotations.yaml", annotations)];
    files.extend(parts.next().map(|properties| ("metadata/properties.yaml", properties)));
    if let Ok(bundle) = RegistryV1::from_files(files) {
        let options = RenderOptions::new("operators");
        assert_eq!(render(&bundle, &options), render(&bundle, &options));
        let _ = (inspect(&bundle), lint(&bundle));
    }
});
