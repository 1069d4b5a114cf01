//! The real programs in the memory of their manifests, against hostile images, packages, bundles, registries and
//! requests.
//!
//! ```text
//! make test-hostile
//! ```
//!
//! `OLM_HOSTILE=all` reads every shape; without it a short selection is read. `OLM_HOSTILE_ONLY=<text>,…` reads those whose name
//! contains one of the texts. A good catalog and a good extension beside each shape are served and reconciled without a failure.

mod bundles;
mod catalogs;
mod cgroup;
mod classic;
mod content;
mod images;
mod registries;
mod report;
mod requests;
mod shape;
mod sizes;
#[expect(clippy::unwrap_used, reason = "part of a test, and a test may panic")]
#[path = "../../../../crates/olm-oci/tests/registry/support/mod.rs"]
mod support;
mod world;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::classic::ClassicWorld;
use crate::report::Row;
use crate::requests::Question;
use crate::shape::{Expect, Shape};
use crate::world::{Reader, World};

/// All inputs but those of OLM Classic, with the program that reads them.
const INPUTS: &[(Reader, &[Shape])] = &[
    (Reader::Catalogd, catalogs::SHAPES),
    (Reader::Catalogd, images::SHAPES),
    (Reader::Catalogd, registries::SHAPES),
    (Reader::Catalogd, sizes::CATALOGS),
    (Reader::Client(Question::Packages), requests::PACKAGES),
    (Reader::Client(Question::GraphQl), requests::GRAPHQL),
    (Reader::Client(Question::Bundles), requests::BUNDLES),
    (Reader::Client(Question::Providers), requests::PROVIDERS),
    (Reader::OperatorController, bundles::SHAPES),
    (Reader::OperatorController, sizes::BUNDLES),
];

fn all_shapes() -> impl Iterator<Item = &'static Shape> {
    INPUTS.iter().flat_map(|(_, shapes)| *shapes).chain(classic::SHAPES)
}

/// Which inputs are read.
struct Selection {
    all: bool,
    only: String,
}

impl Selection {
    fn from_environment() -> Self {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let only = variable("OLM_HOSTILE_ONLY");
        Self { all: variable("OLM_HOSTILE") == "all" || !only.is_empty(), only }
    }

    fn has(&self, shape: &Shape) -> bool {
        (self.all || shape.short) && self.only.split(',').any(|text| shape.name.contains(text))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_content_is_refused_within_the_limits() -> Result<()> {
    let selection = Selection::from_environment();
    let is_any = all_shapes().any(|shape| selection.has(shape));
    ensure!(is_any, "no input has a name with one of the texts {:?}", selection.only);
    let mut world = World::start().await?;
    report::log(&world.describe());
    report::head();
    let mut rows = Vec::new();
    for &(reader, shapes) in INPUTS {
        for shape in shapes.iter().filter(|shape| selection.has(shape)) {
            rows.push(world.read(reader, shape.name, shape.expect, shape.make).await?);
        }
    }
    if selection.all && selection.only.is_empty() {
        rows.extend(sizes::read_shared(&mut world).await?);
    }
    world.end()?;
    let mut shapes = classic::SHAPES.iter().filter(|shape| selection.has(shape)).peekable();
    if shapes.peek().is_some() {
        let mut world = ClassicWorld::start().await?;
        for shape in shapes {
            rows.push(world.read(shape).await?);
        }
        world.end()?;
    }
    let failed: Vec<String> = rows.iter().filter_map(Row::failure).collect();
    ensure!(failed.is_empty(), "{} inputs:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// Names are distinct, and of each class of hostile content something is refused.
#[test]
fn hostile_inputs_are_of_every_class() {
    let mut names = BTreeSet::new();
    let repeated = all_shapes().find(|shape| !names.insert(shape.name));
    assert_eq!(repeated.map(|shape| shape.name), None);
    for class in [
        "ignore", "objects", "json", "yaml", "names", "zstd", "layers", "links", "pax", "manifest",
        "registry", "bundle", "csv", "crd", "cel", "package", "packages", "grpc", "classic",
    ] {
        let is_refused = |shape: &Shape| matches!(shape.expect, Expect::Refused(_));
        let mut of_class = all_shapes().filter(|shape| shape.name.split(':').next() == Some(class));
        assert!(of_class.any(is_refused), "{class}");
    }
}
