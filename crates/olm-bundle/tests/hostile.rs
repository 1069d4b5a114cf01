//! Hostile bundles, a few kilobytes when compressed, that would fill the memory of the process. A test program of its own,
//! so that its peak memory is that of these bundles.
#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "a test, also in its helpers")]

use std::sync::Mutex;
use std::time::Instant;

use olm_bundle::{CertProvider, RegistryV1, RenderOptions, render};

/// Bytes of the manifest, a little less than a bundle may have.
const BYTES: usize = (28 << 20) - 4096;
/// KiB that the process may need: a few copies of the text and half a million nodes. Without a limit on nodes it is 1.5 GiB.
const PEAK: u64 = 320 * 1024;

/// Held by the test that is measured: the peak is of the whole process.
static MEASURING: Mutex<()> = Mutex::new(());

/// Peak resident memory in KiB, where the system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn check_peak(name: &str, began: Instant) {
    let Some(peak) = peak() else {
        println!("SKIPPED: this system does not report the peak memory of a process");
        return;
    };
    println!("{name}: {:?}, {peak} KiB at the peak so far", began.elapsed());
    assert!(peak < PEAK, "{name}: {peak} KiB at the peak");
}

fn read(csv: &str, manifest: String) -> Result<RegistryV1, String> {
    let head = "{\"apiVersion\":\"operators.coreos.com/v1alpha1\",\"kind\":\"ClusterServiceVersion\",";
    let annotations = "annotations: {operators.operatorframework.io.bundle.package.v1: p}";
    let files = [
        ("metadata/annotations.yaml", annotations.to_owned()),
        ("manifests/csv.yaml", format!("{head}\"metadata\":{{\"name\":\"p.v1\"}},\"spec\":{{{csv}}}}}")),
        ("manifests/bomb.yaml", manifest),
    ];
    RegistryV1::from_files(files).map_err(|error| error.to_string())
}

/// The part, as often as it fits.
fn filled(head: &str, part: &str, tail: &str) -> String {
    format!("{head}{}{tail}", part.repeat((BYTES - head.len() - tail.len()) / part.len()))
}

#[test]
fn bundle_nodes_are_limited_before_memory_is_spent() {
    let _alone = MEASURING.lock();
    let nested = format!("{}0{}", "{\"a\":".repeat(100), "}".repeat(100));
    for (name, manifest) in [
        ("JSON objects", filled(r#"{"kind":"ConfigMap","data":["#, r#"{"a":0},"#, "0]}")),
        ("JSON objects in objects", filled(r#"{"kind":"ConfigMap","data":["#, &format!("{nested},"), "0]}")),
        ("YAML flow objects", filled("kind: ConfigMap\ndata: [", "{\"a\":0},", "0]\n")),
        ("YAML block objects", filled("kind: ConfigMap\ndata:\n", "- a: 0\n", "- 0\n")),
        ("documents", filled("kind: ConfigMap\n", "---\na: 0\n", "")),
    ] {
        let began = Instant::now();
        let text = read("", manifest).map(drop).unwrap_err();
        let limit = match name {
            "documents" => "more documents than the limit of 10000",
            _ => {
                "the bundle has more than 2000000 nodes in its files (values and keys; an object counts as ten, a list as three), counted up to \"manifests/bomb.yaml\""
            }
        };
        assert!(text.contains(limit), "{name}: {text}");
        check_peak(name, began);
    }
}

/// What is found is bounded, however long the names are that it repeats.
#[test]
fn bundle_findings_do_not_repeat_long_names() {
    let _alone = MEASURING.lock();
    let long = "x".repeat(1 << 20);
    let many = |part: &str| vec![part; 20_000].join(",");
    let distinct =
        |part: &str| (0..20_000).map(|n| part.replace('#', &n.to_string())).collect::<Vec<_>>().join(",");
    let deployment = |container: &str| {
        format!(
            r#""install":{{"spec":{{"deployments":[{{"name":"d","spec":{{"template":{{"spec":{{"containers":[{container}]}}}}}}}}]}}}}"#
        )
    };
    let modes = r#""installModes":[{"type":"AllNamespaces","supported":true}]"#;
    let webhook = |kind: &str, more: String| {
        format!(
            r#"{modes},"webhookdefinitions":[{{"type":"{kind}","generateName":"{long}","deploymentName":"d",{more}}}]"#
        )
    };
    let key = "x".repeat(4_096);
    let crd = format!(
        r#"{{"kind":"CustomResourceDefinition","metadata":{{"name":"c"}},"spec":{{"versions":[{{"name":"v1","schema":{{"openAPIV3Schema":{{"properties":{{"{key}":{{{}}}}}}}}}}}]}}}}"#,
        distinct(r##""u#":0"##)
    );
    let rules = format!(r#""rules":[{{"apiGroups":[{}]}}]"#, many(r#""*""#));
    let conversions = format!(r#""conversionCRDs":[{}]"#, distinct(r##""c#""##));
    let variables = distinct(r##"{"name":"v#"},{"name":"v#"}"##);
    let container = format!(r#"{{"name":"{long}","image":"i","env":[{variables}]}}"#);
    let config_map = || r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}"#.to_owned();
    for (name, csv, manifest) in [
        ("undeclared fields of a CRD", modes.to_owned(), crd),
        ("guarded API groups", webhook("ValidatingAdmissionWebhook", rules), config_map()),
        ("foreign CRDs", webhook("ConversionWebhook", conversions), config_map()),
        ("repeated variables", format!("{modes},{}", deployment(&container)), config_map()),
    ] {
        let began = Instant::now();
        let bundle = read(&csv, manifest).unwrap();
        let mut options = RenderOptions::new("operators");
        options.cert_provider = Some(CertProvider::CertManager);
        let _ = render(&bundle, &options);
        check_peak(name, began);
    }
}
