//! Accepted inputs: generated catalogs of 130 and 522 MB, and shapes of twice the largest figures of
//! docs/internals/spec/real-world.md.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use olm_fbc::testing::{Format, generate};
use olm_kit::BundleImage;
use olm_kit::image::read_dir;
use serde_json::json;
use tar::EntryType;

use crate::content::{Layer, gzip, header};
use crate::report::{Row, log};
use crate::shape::{Expect, Shape};
use crate::support::Registry;
use crate::world::{Reader, World};
use crate::{bundles, catalogs};

/// A catalog like real ones of about as many bytes: packages of one of 13 MB, with other names again and again.
fn generated(registry: &Registry, format: Format, copies: usize) -> Result<String> {
    let mut files = Vec::new();
    generate(13_050_000, format, 1, |path, text| files.push((path.to_owned(), text.to_owned())));
    let mut layer = Layer::new();
    for copy in 0..copies {
        for (path, text) in &files {
            let text = text.replace("operator-", &format!("operator{copy}-"));
            layer = layer.file(&format!("configs/{copy}/{path}"), text.as_bytes());
        }
    }
    Ok(catalogs::push(registry, [layer.end()]))
}

/// Twice the figures: 304 bundles, 1,626 skips, an icon of 400 kB, objects of 2.1 MB.
fn twice_the_largest(registry: &Registry) -> Result<String> {
    let name = |at: usize| format!("hostile.v{at}.0.0");
    let skips: Vec<String> = (0..1_626).map(name).collect();
    let icon = json!({"base64data": "A".repeat(400_000), "mediatype": "image/png"});
    let package =
        json!({"schema": "olm.package", "name": "hostile", "defaultChannel": "stable", "icon": icon});
    let entries: Vec<_> = (2_000..2_304).map(|at| json!({"name": name(at), "skips": skips})).collect();
    let channel =
        json!({"schema": "olm.channel", "package": "hostile", "name": "stable", "entries": entries});
    let mut text = format!("{package}\n{channel}\n");
    for at in 2_000..2_304 {
        let property = json!({"type": "olm.package", "value": {"packageName": "hostile", "version": format!("{at}.0.0")}});
        let size = if at < 2_004 { 2_100_000 } else { 100_000 };
        let object = json!({"type": "olm.bundle.object", "value": {"data": "QUJD".repeat(size / 4)}});
        let bundle = json!({"schema": "olm.bundle", "package": "hostile", "name": name(at), "image": "example.com/b:1",
            "properties": [property, object]});
        let _ = writeln!(text, "{bundle}");
    }
    Ok(catalogs::push(registry, [Layer::new().file("configs/catalog.json", text.as_bytes()).end()]))
}

/// The largest documents that the limits allow, one after the other.
fn many_large(registry: &Registry) -> Result<String> {
    let text = format!("{{\"schema\":\"a\",\"value\":\"{}\"}}\n", "v".repeat(4 << 20));
    let size = text.len() * 50;
    let layer =
        Layer::new().noise(2 << 20).raw(&header("configs/a.json", EntryType::Regular, "", size as u64));
    let packed = gzip(text.as_bytes());
    let layer = (0..50).fold(layer, |layer, _| layer.packed(&packed));
    Ok(catalogs::push(registry, [layer.raw(&vec![0; size.next_multiple_of(512) - size]).end()]))
}

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const CATALOGS: &[Shape] = &[
    Shape { name: "catalog: twice the largest figures", short: true, expect: Expect::Served, make: twice_the_largest },
    Shape { name: "catalog: 50 objects of 4 MiB", short: false, expect: Expect::Served, make: many_large },
    Shape { name: "catalog: 13 MB of YAML", short: false, expect: Expect::Served, make: |registry| generated(registry, Format::Yaml, 1) },
    Shape { name: "catalog: 130 MB", short: false, expect: Expect::Served, make: |registry| generated(registry, Format::Json, 10) },
    Shape { name: "catalog: 522 MB", short: false, expect: Expect::Served, make: |registry| generated(registry, Format::Json, 40) },
];

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const BUNDLES: &[Shape] = &[
    Shape { name: "bundle: twice the largest figures", short: false, expect: Expect::Within, make: bundles::twice_the_largest },
    Shape { name: "package: 40 MB of bundles", short: false, expect: Expect::Served,
        make: |registry| bundles::large_package(registry, 40) },
];

/// Reads all catalogs and bundles of the shared reference material, where it is.
pub(crate) async fn read_shared(world: &mut World) -> Result<Vec<Row>> {
    let Some(data) = olm_kit::shared_material().map(|folder| folder.join("data")).filter(|it| it.is_dir())
    else {
        log(
            "SKIPPED: the shared reference material is not beside this checkout; no real catalog and bundle is read",
        );
        return Ok(Vec::new());
    };
    let mut rows = Vec::new();
    for folder in ["catalog", "bundles-catalog"] {
        let files = read_dir(&data.join(folder), "configs/")?;
        let layer = files.iter().fold(Layer::new(), |layer, (path, content)| layer.file(path, content)).end();
        let name = format!("shared: {folder}");
        let make = |registry: &Registry| Ok(catalogs::push(registry, [layer]));
        rows.push(world.read(Reader::Catalogd, &name, Expect::Served, make).await?);
    }
    let mut versions = Vec::new();
    for package in std::fs::read_dir(data.join("bundles"))? {
        for version in std::fs::read_dir(package?.path())? {
            versions.push(version?.path());
        }
    }
    versions.sort();
    for folder in versions {
        let short = folder.strip_prefix(&data).context("another folder")?.display().to_string();
        let image = BundleImage::from_dir(&folder)?;
        let make = |registry: &Registry| bundles::bundle(registry, &image);
        rows.push(
            world.read(Reader::OperatorController, &format!("shared: {short}"), Expect::Within, make).await?,
        );
    }
    Ok(rows)
}
