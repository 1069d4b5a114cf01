//! Published catalogs: every bundle as starting point, both sets of rules, and what must hold for each answer.
#![expect(clippy::disallowed_methods, reason = "where the sample data is")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_fbc::{IngestLimits, load_dir};
use olm_resolver::{
    CatalogSource, End, Installed, PackageGraph, PathQuery, Policy, ReleaseField, Request, RuleSet, Target,
    Via, path, resolve,
};

/// The folder with sample data, if there is one.
fn data() -> Option<PathBuf> {
    let shared = std::env::var_os("OLM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    Some(shared.join("data/catalog")).filter(|folder| folder.is_dir())
}

#[test]
fn published_catalogs() {
    let Some(folder) = data() else {
        println!("SKIPPED: published_catalogs: no sample data (set OLM_SHARED)");
        return;
    };
    let catalog = load_dir(&folder, IngestLimits::default()).unwrap();
    let (mut packages, mut resolved, mut refused, mut hops, mut memory) = (0, 0, 0, 0, 0);
    for name in catalog.packages() {
        let (contents, findings) = catalog.package(name);
        let graph = Arc::new(PackageGraph::new(&contents, &findings, ReleaseField::Counts));
        packages += 1;
        memory += graph.memory();
        assert!(graph.bundles().len() > 0, "{name} has bundles");
        let source = [CatalogSource { name: "c".parse().unwrap(), priority: 0, content: Ok(graph.clone()) }];
        let starts = std::iter::once(None).chain(graph.bundles().map(Some));
        for start in starts {
            let installed = start.map(|bundle| Installed {
                name: graph.bundle_name(bundle).parse().unwrap(),
                version: graph.version(bundle).unwrap().clone(),
            });
            for policy in [Policy::CatalogProvided, Policy::SelfCertified] {
                let request = Request {
                    package: name.parse().unwrap(),
                    channels: vec![],
                    range: None,
                    policy,
                    installed: installed.clone(),
                };
                match resolve(&request, &source).result {
                    Ok(found) => {
                        resolved += 1;
                        if let (Some(installed), Policy::CatalogProvided) = (&installed, policy) {
                            let stays = found.version == installed.version;
                            assert_eq!(stays, found.via == Via::Installed, "{name} {installed:?}");
                        }
                    }
                    Err(error) => {
                        refused += 1;
                        assert!(!error.condition_message().is_empty());
                    }
                }
            }
            for rules in [RuleSet::V1, RuleSet::Classic] {
                let query = PathQuery {
                    graph: graph.clone(),
                    from: installed.clone(),
                    to: Target::Head,
                    channels: vec![],
                    range: None,
                    policy: Policy::CatalogProvided,
                };
                let found = path(&query, rules);
                hops += found.hops.len();
                assert!(!matches!(found.end, End::Loop(_)), "{name} from {installed:?}: {:?}", found.end);
            }
        }
    }
    println!(
        "published catalogs: {packages} packages, {resolved} resolved, {refused} refused, {hops} hops, {memory} bytes of graphs"
    );
    assert!(packages >= 9 && resolved > 200 && hops > 200);
}
