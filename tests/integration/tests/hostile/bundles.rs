//! Hostile packages and bundles, and those at the edge of what is accepted. Each is the package `hostile` of a catalog.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use olm_kit::{BundleImage, Crd, Entry, Package};
use serde_json::{Map, Value, json};
use tar::EntryType;

use crate::catalogs;
use crate::content::{Layer, entry, header, zstd};
use crate::shape::{Expect, Shape};
use crate::support::{Pushed, Registry};

pub(crate) const PACKAGE: &str = "hostile";
const VERSION: &str = "1.0.0";
const MIB: usize = 1 << 20;
/// A little less than what a bundle may have.
const BUNDLE_BYTES: usize = 28 * MIB - 64 * 1024;

fn package() -> Package {
    Package::new(PACKAGE).channel("stable", [Entry::new(VERSION)])
}

fn described() -> BundleImage {
    BundleImage::new(PACKAGE, VERSION)
}

/// A catalog of this text; its reference.
fn catalog(registry: &Registry, text: &str) -> Result<String> {
    let layer = Layer::new().file("configs/catalog.yaml", text.as_bytes()).end();
    Ok(catalogs::push(registry, [layer]))
}

/// A catalog whose package has the bundle of these layers.
fn bundle_layers(registry: &Registry, layers: impl IntoIterator<Item = Vec<u8>>) -> Result<String> {
    let digest = registry.push("bundle", Some("1"), &Pushed::new(layers));
    let image = format!("{}/bundle@{digest}", registry.address);
    catalog(registry, &package().bundle(VERSION, &image).text())
}

/// The files of a bundle, and further entries.
fn files(bundle: &BundleImage) -> Layer {
    let files = bundle.files();
    files.iter().fold(Layer::new(), |layer, (path, content)| layer.file(path, content))
}

pub(crate) fn bundle(registry: &Registry, bundle: &BundleImage) -> Result<String> {
    bundle_layers(registry, [files(bundle).end()])
}

/// The default bundle with a further manifest: `head`, then `part` as often as it fits into `bytes`, then `tail`.
fn manifest(registry: &Registry, bytes: usize, head: &str, part: &str, tail: &str) -> Result<String> {
    let block = part.repeat((64 * 1024 / part.len()).max(1));
    let times = (bytes - head.len() - tail.len()) / block.len();
    let size = head.len() + times * block.len() + tail.len();
    let layer = files(&described())
        .raw(&header("manifests/bomb.yaml", EntryType::Regular, "", size as u64))
        .raw(head.as_bytes())
        .repeated(block.as_bytes(), times)
        .raw(tail.as_bytes())
        .raw(&vec![0; size.next_multiple_of(512) - size]);
    bundle_layers(registry, [layer.end()])
}

/// A ConfigMap whose data is no data, as a manifest.
const HEAD: &str = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bomb"},"data":["#;

/// A CRD of `count` fields, each `field`.
pub(crate) fn crd_of(count: usize, field: &Value) -> Crd {
    (0..count)
        .fold(Crd::new("Widget", "hostile.kit.test"), |crd, at| crd.field(&format!("f{at}"), field.clone()))
}

/// A CRD that is in the cluster, with one object.
pub(crate) fn present() -> Crd {
    Crd::new("Gadget", "hostile.kit.test")
}

fn nested(depth: usize, leaf: Value) -> Value {
    (0..depth).fold(leaf, |inner, _| json!({"type": "object", "properties": {"a": inner}}))
}

/// A catalog whose bundle has further properties, and the default bundle.
fn properties(registry: &Registry, properties: Vec<Value>) -> Result<String> {
    let digest = registry.push("bundle", Some("1"), &Pushed::new([files(&described()).end()]));
    let image = format!("{}/bundle@{digest}", registry.address);
    catalog(registry, &package().bundle_with(VERSION, &image, properties).text())
}

const NODES: &str = "2000000 nodes in its files";

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "bundle: 6 MB of small objects", short: true, expect: Expect::Refused(NODES),
        make: |registry| manifest(registry, 6_000_000, HEAD, "{\"a\":0},", "0]}") },
    Shape { name: "bundle: 28 MiB of small objects", short: false, expect: Expect::Refused(NODES),
        make: |registry| manifest(registry, BUNDLE_BYTES, HEAD, "{\"a\":0},", "0]}") },
    Shape { name: "bundle: small objects just below the limit", short: true, expect: Expect::Refused("data"),
        make: |registry| manifest(registry, 8 * 160_000, HEAD, "{\"a\":0},", "0]}") },
    Shape { name: "bundle: 28 MiB of block sequences", short: false, expect: Expect::Refused(NODES),
        make: |registry| manifest(registry, BUNDLE_BYTES, "kind: ConfigMap\ndata:\n", "- a: 0\n", "- 0\n") },
    Shape { name: "bundle: 28 MiB of one text", short: false, expect: Expect::Refused("packing objects into Secrets"),
        make: |registry| {
            let head = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"bomb"},"data":{"a":""#;
            manifest(registry, BUNDLE_BYTES, head, "v", "\"}}")
        } },
    Shape { name: "bundle: 29 MiB", short: true, expect: Expect::Refused("exceeds the limit of 29360128 bytes"),
        make: |registry| manifest(registry, 29 * MIB, "kind: ConfigMap\n#", "v", "\n") },
    Shape { name: "bundle: 10,001 documents", short: false, expect: Expect::Refused("error parsing objects"),
        make: |registry| manifest(registry, 7 * 10_300, "kind: ConfigMap\n", "---\na: 0\n", "") },
    Shape { name: "bundle: 12,000 files", short: true, expect: Expect::Refused("entries exceeds the limit"),
        make: |registry| {
            let one = |at: usize| entry(&format!("manifests/{at}.yaml"), EntryType::Regular, "", b"a: 0");
            let many: Vec<u8> = (0..12_000).flat_map(one).collect();
            bundle_layers(registry, [files(&described()).raw(&many).end()])
        } },
    Shape { name: "bundle: 9,000 ConfigMaps", short: false, expect: Expect::Refused("must have fewer objects"),
        make: |registry| {
            let one = |at: usize| {
                let map =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{at}")}});
                entry(&format!("manifests/{at}.yaml"), EntryType::Regular, "", map.to_string().as_bytes())
            };
            let many: Vec<u8> = (0..9_000).flat_map(one).collect();
            bundle_layers(registry, [files(&described()).raw(&many).end()])
        } },
    Shape { name: "bundle: aliases that expand to 10^9 nodes", short: true, expect: Expect::Refused(NODES),
        make: |registry| {
            let mut text = "kind: ConfigMap\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
            for at in 1..10 {
                let before = format!("*a{},", at - 1).repeat(10);
                let _ = writeln!(text, "a{at}: &a{at} [{before}]");
            }
            bundle(registry, &described().file("manifests/bomb.yaml", &text))
        } },
    Shape { name: "bundle: 1,000,000 levels", short: false, expect: Expect::Refused("error parsing manifests/bomb.yaml: json: offset"),
        make: |registry| { bundle(registry, &described().file("manifests/bomb.yaml", &format!("{{\"kind\":{}", "[".repeat(1_000_000)))) } },
    Shape { name: "bundle: five layers with zstd windows of 128 MiB", short: true, expect: Expect::Refused("a zstd window of more than"),
        make: |registry| {
            let layer = |at: usize| {
                let path = format!("manifests/{at}.yaml");
                zstd(&[entry(&path, EntryType::Regular, "", b"a: 0"), vec![0; 1024]].concat(), 27)
            };
            bundle_layers(registry, (0..5).map(layer).collect::<Result<Vec<_>>>()?)
        } },
    Shape { name: "bundle: 1 GiB outside of its directories", short: false, expect: Expect::Served,
        make: |registry| {
            let layer = files(&described()).noise(6 * MIB).blocks("usr/bin/operator", &vec![0; MIB], 1_024);
            bundle_layers(registry, [layer.end()])
        } },
    Shape { name: "annotations.yaml: 2,500,000 nodes", short: false, expect: Expect::Refused(NODES),
        make: |registry| {
            let text = format!("annotations: {{a: [{}0]}}\n", "0,".repeat(2_500_000));
            bundle(registry, &described().file("metadata/annotations.yaml", &text))
        } },
    Shape { name: "bundle: one large object and 9,000 of its name", short: true, expect: Expect::Refused("creating resource"),
        make: |registry| {
            let name = |more: &str| {
                format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m"}}{more}}}"#)
            };
            let pad = (0..100_000).fold(String::new(), |mut text, at| {
                let _ = write!(text, ",\"k{at}\":0");
                text
            });
            let one = |at: usize| {
                entry(&format!("manifests/{at}.yaml"), EntryType::Regular, "", name("").as_bytes())
            };
            let many: Vec<u8> = (0..9_000).flat_map(one).collect();
            let large = files(&described()).file("manifests/.large.json", name(&pad).as_bytes());
            bundle_layers(registry, [large.raw(&many).end()])
        } },
    Shape {
        name: "csv: variables of a container just below the limit",
        // the apiserver takes minutes of processor time to refuse it
        short: false,
        expect: Expect::Refused("creating resource"),
        make: |registry| {
            let variables: Vec<Value> = (0..150_000).map(|at| json!({"name": format!("v{at}")})).collect();
            let container = json!({"name": "c", "image": "x.invalid/y", "env": variables});
            let deployment = json!({"name": "hostile-ctrl", "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}}});
            bundle(
                registry,
                &described().csv_patch(json!({"spec": {"install": {"spec": {"deployments": [deployment]}}}})),
            )
        },
    },
    Shape { name: "csv: permission rules just below the limit", short: false, expect: Expect::Refused("creating resource"),
        make: |registry| {
            let rules = json!({"serviceAccountName": "hostile-sa", "rules": vec![json!({"verbs": ["get"]}); 110_000]});
            bundle(registry, &described().cluster_permissions([rules]))
        } },
    Shape { name: "csv: 30,000 permission rules", short: false, expect: Expect::Served,
        make: |registry| {
            let rule = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
            let rules = json!({"serviceAccountName": "hostile-sa", "rules": vec![rule; 30_000]});
            bundle(registry, &described().cluster_permissions([rules]))
        } },
    Shape { name: "csv: an annotation of 1 MiB in 2,000 deployments", short: true,
        expect: Expect::Refused("the annotations of the CSV take"),
        make: |registry| {
            let deployment = |at: usize| {
                json!({"name": format!("hostile-{at}"), "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x.invalid/y"}]}}}})
            };
            let deployments: Vec<Value> = (0..2_000).map(deployment).collect();
            bundle(
                registry,
                &described().csv_patch(json!({"metadata": {"annotations": {"a": "v".repeat(MIB)}},
                    "spec": {"install": {"spec": {"deployments": deployments}}}})),
            )
        } },
    Shape { name: "csv: 30,000 accounts", short: false, expect: Expect::Refused("at most 10000 are allowed"),
        make: |registry| {
            let account = |at: usize| json!({"serviceAccountName": format!("a{at}"), "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
            bundle(registry, &described().cluster_permissions((0..30_000).map(account)))
        } },
    Shape { name: "csv: 10,000 webhooks", short: false, expect: Expect::Refused("at most 10000 are allowed"),
        make: |registry| {
            let webhook = |at: usize| {
                json!({"type": "ValidatingAdmissionWebhook", "generateName": format!("w{at}.kit.test"), "deploymentName": "hostile-ctrl",
                    "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore", "webhookPath": "/x",
                    "rules": [{"apiGroups": ["hostile.kit.test"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}]})
            };
            let bundled = (0..10_000).fold(described(), |bundle, at| bundle.webhook(webhook(at)));
            bundle(registry, &bundled)
        } },
    Shape { name: "csv: a name of 8 MiB", short: false, expect: Expect::Served,
        make: |registry| bundle(registry, &described().name(&"n".repeat(8 * MIB))) },
    Shape { name: "crd: 60,000 fields", short: true, expect: Expect::Refused("request is too large"),
        make: |registry| bundle(registry, &described().crds([crd_of(60_000, &json!({"type": "string"}))])) },
    Shape { name: "crd: a field 30 levels deep, 1,000 times", short: false, expect: Expect::Served,
        make: |registry| { bundle(registry, &described().crds([crd_of(1_000, &nested(30, json!({"type": "string"})))])) } },
    Shape { name: "crd: 2,000 patterns of large repetitions", short: false, expect: Expect::Refused("validating: apiextensions.k8s.io/v1"),
        make: |registry| {
            let field = json!({"type": "string", "pattern": "^((a{0,100}){0,100}){0,9}$"});
            bundle(registry, &described().crds([crd_of(2_000, &field)]))
        } },
    Shape { name: "crd: 2,000 patterns of 10,000 classes, in the cluster before", short: false,
        expect: Expect::Refused("removed field : v1.^.spec.size"),
        make: |registry| {
            let field = json!({"type": "string", "pattern": "^([a-z]{1,100}){1,100}$"});
            let crd = (0..2_000).fold(present().without_field("size"), |crd, at| crd.field(&format!("f{at}"), field.clone()));
            bundle(registry, &described().crds([crd]))
        } },
    Shape { name: "crd: a field of 14 MB above 1,000 others, in the cluster before", short: true,
        expect: Expect::Refused("a key of 14000000 bytes"),
        make: |registry| {
            let fields: Map<String, Value> = (0..1_000).map(|at| (format!("f{at}"), json!({"type": "string"}))).collect();
            let name = "n".repeat(14_000_000);
            bundle(registry, &described().crds([present().field(&name, json!({"type": "object", "properties": fields}))]))
        } },
    Shape { name: "crd: defaults that make 10^9 objects, in the cluster before", short: true,
        expect: Expect::Refused("removed field : v1.^.spec.size"),
        make: |registry| {
            let list = |y: Value| {
                json!({"type": "array", "default": vec![json!({}); 200], "items": {"type": "object", "properties": {"y": y}}})
            };
            let field = (0..4).fold(json!({"type": "string"}), |inner, _| list(inner));
            bundle(registry, &described().crds([present().without_field("size").field("x", field)]))
        } },
    Shape { name: "csv: 1,000,000 groups of a webhook's rule", short: true, expect: Expect::Refused("has invalid name"),
        make: |registry| {
            let webhook = json!({"type": "ValidatingAdmissionWebhook", "generateName": "w".repeat(1_000), "deploymentName": "hostile-ctrl",
                "rules": [{"apiGroups": vec!["*"; 1_000_000]}]});
            bundle(registry, &described().webhook(webhook))
        } },
    Shape { name: "csv: a CRD 1,000,000 times in conversionCRDs", short: false, expect: Expect::Refused("not owned bundle"),
        make: |registry| {
            let webhook = json!({"type": "ConversionWebhook", "generateName": "w".repeat(1_000), "deploymentName": "hostile-ctrl",
                "conversionCRDs": vec!["a"; 1_000_000]});
            bundle(registry, &described().webhook(webhook))
        } },
    Shape { name: "crd: 500 rules of CEL", short: false, expect: Expect::Refused("validating: apiextensions.k8s.io/v1"),
        make: |registry| {
            let rule = "self.all(x, self.all(y, self.all(z, x.matches(y + z))))";
            let field = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": rule}]});
            bundle(registry, &described().crds([crd_of(500, &field)]))
        } },
    Shape { name: "cel: 300 constraints of 16 kB", short: true, expect: Expect::Refused("cel rule has more than 300 operators"),
        make: |registry| {
            let inner = "properties.all(b, properties.all(c, properties.all(d, properties.all(e, true))))";
            let rule = vec![inner; 150].join(" && ");
            let constraint =
                json!({"type": "olm.constraint", "value": {"failureMessage": "m", "cel": {"rule": rule}}});
            properties(registry, vec![constraint; 300])
        } },
    Shape { name: "cel: 10,000 constraints that take all steps of a rule", short: true,
        expect: Expect::Refused("has dependencies that are not met"),
        make: |registry| {
            let list = format!("[{}]", ["1"; 60].join(","));
            let rule = format!("{list}.all(a, {list}.all(b, {list}.all(c, a + b + c > 0))) && false");
            let constraint =
                json!({"type": "olm.constraint", "value": {"failureMessage": "m", "cel": {"rule": rule}}});
            properties(registry, vec![constraint; 10_000])
        } },
    Shape { name: "constraints: 2,000 levels of `all`", short: false, expect: Expect::Refused("larger than the limit of 8388608 bytes"),
        make: |registry| {
            let mut value =
                json!({"failureMessage": "m", "package": {"packageName": "p", "versionRange": ">=1.0.0"}});
            for _ in 0..60 {
                value = json!({"failureMessage": "m", "all": {"constraints": [value.clone()]}});
            }
            properties(registry, vec![json!({"type": "olm.constraint", "value": value}); 2_000])
        } },
    Shape { name: "properties: 100,000", short: false, expect: Expect::Refused("more than the limit of 500000 nodes"),
        make: |registry| properties(registry, vec![json!({"type": "a", "value": {"b": "c"}}); 100_000]) },
    Shape { name: "package: 90,000 entries that replace each other", short: false, expect: Expect::Refused("no bundles found for package"),
        make: |registry| {
            let name = |at: usize| format!("hostile.v{at}.0.0");
            let entries: Vec<Value> =
                (0..90_000).map(|at| json!({"name": name(at), "replaces": name(at + 1)})).collect();
            let channel =
                json!({"schema": "olm.channel", "package": PACKAGE, "name": "stable", "entries": entries});
            let package = json!({"schema": "olm.package", "name": PACKAGE, "defaultChannel": "stable"});
            catalog(registry, &format!("{package}\n{channel}\n"))
        } },
    Shape { name: "package: 10,000 bundles with ranges of 200 parts", short: false,
        expect: Expect::Refused("larger than the limit of 8388608 bytes"),
        make: |registry| {
            let range = (0..200).fold(String::new(), |mut text, at| {
                let _ = write!(text, "{}>={at}.0.0 <{at}.9.0", if at > 0 { " || " } else { "" });
                text
            });
            let mut entries = Vec::new();
            let mut text = String::new();
            for at in 0..10_000 {
                let name = format!("hostile.v{at}.0.0");
                entries.push(json!({"name": name, "skipRange": range}));
                let property = json!({"type": "olm.package", "value": {"packageName": PACKAGE, "version": format!("{at}.0.0")}});
                let _ = writeln!(
                    text,
                    "{}",
                    json!({"schema": "olm.bundle", "package": PACKAGE, "name": name, "image": "x.invalid/y@sha256:0", "properties": [property]})
                );
            }
            let channel =
                json!({"schema": "olm.channel", "package": PACKAGE, "name": "stable", "entries": entries});
            let package = json!({"schema": "olm.package", "name": PACKAGE, "defaultChannel": "stable"});
            catalog(registry, &format!("{package}\n{channel}\n{text}"))
        } },
    Shape { name: "package: 250 MB of bundles", short: false, expect: Expect::Refused("is larger than"),
        make: |registry| large_package(registry, 250) },
    Shape { name: "package: 20,000 channels of 20 entries", short: false, expect: Expect::Refused("no bundles found for package"),
        make: |registry| channels(registry, 20_000, 20) },
    Shape { name: "package: 1,100 channels of 500 entries", short: true, expect: Expect::Refused("more than the limit of 500000 entries"),
        make: |registry| channels(registry, 1_100, 500) },
    Shape { name: "package: 45,000 bundles", short: false, expect: Expect::Refused("no bundles found for package"),
        make: |registry| small_bundles(registry, 45_000) },
    Shape { name: "package: 100,000 bundles", short: false, expect: Expect::Refused("more than the limit of 50000 objects"),
        make: |registry| small_bundles(registry, 100_000) },
];

/// A package of so many channels, each with the same entries.
fn channels(registry: &Registry, count: usize, entries: usize) -> Result<String> {
    let entries: Vec<Value> = (0..entries).map(|at| json!({"name": format!("hostile.v{at}.0.0")})).collect();
    let mut text = format!("{}\n", json!({"schema": "olm.package", "name": PACKAGE, "defaultChannel": "c0"}));
    for at in 0..count {
        let channel = json!({"schema": "olm.channel", "package": PACKAGE, "name": format!("c{at}"), "entries": entries});
        let _ = writeln!(text, "{channel}");
    }
    catalog(registry, &text)
}

/// A package of so many bundles without a version.
fn small_bundles(registry: &Registry, count: usize) -> Result<String> {
    let mut text = format!("{}\n", json!({"schema": "olm.package", "name": PACKAGE}));
    for at in 0..count {
        let bundle =
            json!({"schema": "olm.bundle", "package": PACKAGE, "name": format!("b{at}"), "image": "i"});
        let _ = writeln!(text, "{bundle}");
    }
    catalog(registry, &text)
}

/// The package with a bundle of the default content, and as many megabytes of other bundles, of a metadata property each.
pub(crate) fn large_package(registry: &Registry, megabytes: usize) -> Result<String> {
    let digest = registry.push("bundle", Some("1"), &Pushed::new([files(&described()).end()]));
    let image = format!("{}/bundle@{digest}", registry.address);
    let text = package().bundle(VERSION, &image).text();
    let pad = "description ".repeat(1_000_000 / 12 - 30);
    let other = json!({"schema": "olm.bundle", "package": PACKAGE, "name": "hostile.v0.9.0", "image": image,
        "properties": [{"type": "olm.package", "value": {"packageName": PACKAGE, "version": "0.9.0"}},
            {"type": "olm.csv.metadata", "value": {"description": pad}}]});
    let block = format!("{other}\n");
    let layer = Layer::new().file("configs/a.yaml", text.as_bytes()).noise(4 * MIB).blocks(
        "configs/b.json",
        block.as_bytes(),
        megabytes,
    );
    Ok(catalogs::push(registry, [layer.end()]))
}

/// A bundle with the members of `real-world.md` at twice their largest: 106 CRDs, one of them of 5 MB, manifests of more than
/// 10 MB together, a CSV of 2.6 MB, 172 webhooks, 986 rules.
pub(crate) fn twice_the_largest(registry: &Registry) -> Result<String> {
    let field = |description: usize| {
        json!({"type": "object", "description": "d".repeat(description), "properties": {
            "name": {"type": "string", "description": "a name"}, "count": {"type": "integer", "format": "int32"}}})
    };
    let mut crds = vec![crd_named("Large", 10_000, &field(330))];
    crds.extend((0..105).map(|at| crd_named(&format!("Kind{at}"), 40, &field(600))));
    let rule = json!({"apiGroups": ["hostile.kit.test"], "resources": ["widgets"], "verbs": ["get", "list", "watch"]});
    let rules = json!({"serviceAccountName": "hostile-sa", "rules": vec![rule; 986]});
    let mut bundled = described().crds(crds).cluster_permissions([rules]);
    let mut examples = Map::new();
    examples.insert("description".to_owned(), json!("d".repeat(2_500_000)));
    bundled = bundled.csv_patch(json!({"spec": examples}));
    for at in 0..172 {
        bundled = bundled.webhook(json!({
            "type": "ValidatingAdmissionWebhook", "generateName": format!("w{at}.kit.test"), "deploymentName": "hostile-ctrl",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore", "webhookPath": format!("/w{at}"),
            "rules": [{"apiGroups": ["hostile.kit.test"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["CREATE"]}]}));
    }
    let bytes: usize = bundled.files().values().map(Vec::len).sum();
    anyhow::ensure!(bytes > 10_000_000, "only {bytes} bytes");
    bundle(registry, &bundled).context("twice the largest bundle")
}

fn crd_named(kind: &str, fields: usize, field: &Value) -> Crd {
    (0..fields)
        .fold(Crd::new(kind, "hostile.kit.test"), |crd, at| crd.field(&format!("f{at}"), field.clone()))
}
