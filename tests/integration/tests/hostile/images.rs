//! Hostile images around a catalog: compression, layers, manifests and configs.

use anyhow::Result;
use tar::EntryType;

use crate::catalogs::{LABEL, members, push};
use crate::content::{Layer, entry, gzip, header, zstd};
use crate::shape::{Expect, Shape};
use crate::support::{self, Registry};

const MIB: usize = 1 << 20;

/// A manifest of the layers of a small catalog, with `more` members.
fn manifest(registry: &Registry, more: &str) -> String {
    let layer = Layer::new().file("configs/a.json", br#"{"schema":"olm.package","name":"a"}"#).end();
    let (layer_digest, size) = (registry.blob(&layer), layer.len());
    let config = format!(r#"{{"config":{{"Labels":{{"{LABEL}":"/configs"}}}}}}"#);
    let (config_digest, config_size) = (registry.blob(config.as_bytes()), config.len());
    format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"digest":"{config_digest}","size":{config_size}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"{layer_digest}","size":{size}}}]{more}}}"#,
        support::MANIFEST
    )
}

fn push_manifest(registry: &Registry, kind: &str, manifest: &str) -> Result<String> {
    let digest = registry.manifest("catalog", Some("1"), kind, manifest.as_bytes());
    Ok(format!("{}/catalog@{digest}", registry.address))
}

fn with_config(registry: &Registry, config: &str) -> Result<String> {
    let digest = registry.blob(config.as_bytes());
    let layer = Layer::new().end();
    let (layer_digest, size) = (registry.blob(&layer), layer.len());
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","config":{{"digest":"{digest}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{layer_digest}","size":{size}}}]}}"#,
        support::MANIFEST,
        config.len()
    );
    push_manifest(registry, support::MANIFEST, &manifest)
}

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "gzip: 1 GiB of zeros", short: true, expect: Expect::Served,
        make: |registry| Ok(push(registry, [Layer::new().blocks("other", &vec![0; MIB], 1_024).end()])) },
    Shape { name: "gzip: 2,000,000 empty members", short: false, expect: Expect::Served,
        make: |registry| Ok(push(registry, [gzip(b"").repeat(2_000_000)])) },
    Shape { name: "gzip: a member name without end", short: false, expect: Expect::Refused("gzip header field too long"),
        make: |registry| {
            let mut bytes = vec![0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3];
            bytes.extend(vec![b'n'; 32 * MIB]);
            Ok(push(registry, [bytes]))
        } },
    Shape { name: "zstd: a window of 128 MiB", short: true, expect: Expect::Refused("a zstd window of more than"),
        make: |registry| {
            let tar = [entry("configs/a.json", EntryType::Regular, "", b"{}"), vec![0; 1024]].concat();
            // the size of a frame is not declared when it is streamed
            Ok(push(registry, [zstd(&tar, 27)?]))
        } },
    Shape { name: "zstd: 200,000 frames with a window of 8 MiB", short: false, expect: Expect::Served,
        make: |registry| {
            let tar = header("other", EntryType::Regular, "", 0);
            Ok(push(registry, [zstd(&tar, 23)?.repeat(200_000)]))
        } },
    Shape { name: "layers: 509", short: true, expect: Expect::Refused("image with 509 layers exceeds the limit of 508 layers"),
        make: |registry| Ok(push(registry, vec![Layer::new().end(); 509])) },
    Shape { name: "layers: 508", short: false, expect: Expect::Served,
        make: |registry| {
            let layer = |at: usize| {
                let object = format!("{{\"schema\":\"olm.package\",\"name\":\"p{at}\"}}");
                Layer::new().file(&format!("configs/{at}.json"), object.as_bytes()).end()
            };
            Ok(push(registry, (0..508).map(layer)))
        } },
    Shape { name: "manifest: 3.9 MiB of annotations", short: true, expect: Expect::Served,
        make: |registry| {
            let annotations = members(200_000, "\"v\"");
            let more = format!(",\"annotations\":{{{}\"z\":\"\"}}", &annotations);
            push_manifest(registry, support::MANIFEST, &manifest(registry, &more))
        } },
    Shape { name: "manifest: 100 MiB of annotations", short: true, expect: Expect::Refused("exceeds the limit of 4194304 bytes"),
        make: |registry| {
            let more = format!(",\"annotations\":{{\"a\":\"{}\"}}", "v".repeat(100 * MIB));
            push_manifest(registry, support::MANIFEST, &manifest(registry, &more))
        } },
    Shape { name: "manifest: 1,000,000 levels", short: false, expect: Expect::Refused("manifest is not valid JSON"),
        make: |registry| {
            let more = format!(",\"annotations\":{}", "[".repeat(1_000_000));
            push_manifest(registry, support::MANIFEST, &manifest(registry, &more))
        } },
    Shape { name: "manifest: 40,000 layers", short: false, expect: Expect::Refused("exceeds the limit of 508 layers"),
        make: |registry| {
            let digest = support::digest(b"");
            let layer = format!("{{\"digest\":\"{digest}\",\"size\":1}},");
            let text = manifest(registry, "")
                .replace("\"layers\":[", &format!("\"layers\":[{}", layer.repeat(40_000)));
            push_manifest(registry, support::MANIFEST, &text)
        } },
    Shape { name: "index: 30,000 images", short: false, expect: Expect::Refused("no image found in image index"),
        make: |registry| {
            let digest = support::digest(b"");
            let one = format!(
                "{{\"digest\":\"{digest}\",\"size\":1,\"platform\":{{\"os\":\"x\",\"architecture\":\"y\"}}}},"
            );
            let list = one.repeat(30_000);
            let text = format!(
                "{{\"schemaVersion\":2,\"mediaType\":\"{}\",\"manifests\":[{}]}}",
                support::INDEX,
                list.trim_end_matches(',')
            );
            push_manifest(registry, support::INDEX, &text)
        } },
    Shape { name: "config: 250,000 labels", short: false, expect: Expect::Refused("more than 1000 labels"),
        make: |registry| {
            let labels = members(250_000, "\"\"");
            with_config(registry, &format!("{{\"config\":{{\"Labels\":{{{}\"z\":\"\"}}}}}}", labels))
        } },
    Shape { name: "config: 1,000,000 levels", short: false, expect: Expect::Refused("image config is not valid JSON"),
        make: |registry| with_config(registry, &format!("{{\"history\":{}", "[".repeat(1_000_000))) },
];
