//! Catalogs: files to an index, packages to a resolution.

use std::sync::Arc;

use olm_core::{PackageName, Range};
use olm_fbc::{Catalog, Index, IngestLimits, Meta, Query, load_files_leniently, summary, validate};
use olm_resolver::{
    BundleIndex, CatalogSource, DependencyFacts, Environment, Installed, MajorUpdates, PackageGraph, Policy,
    ReleaseField, Request, dependencies, needed, resolve as choose,
};

use crate::{parts, texts};

fn limits() -> IngestLimits {
    IngestLimits { bytes: 4 << 20, ..IngestLimits::default() }
}

fn catalog(input: &[u8]) -> Option<Catalog> {
    load_files_leniently([("catalog.yaml", input)], limits()).ok().map(|(catalog, _)| catalog)
}

/// A catalog of one file. Ingest, index, validation and summaries agree on what is there, and what was ingested is ingested
/// again to the same bytes.
pub(crate) fn fbc(input: &[u8]) {
    let Some(catalog) = catalog(input) else { return };
    assert_eq!(catalog.index.size(), catalog.jsonl().len() as u64);
    assert_eq!(Index::from_bytes(&catalog.index.to_bytes()).as_ref(), Ok(&catalog.index));
    for object in catalog.index.objects() {
        let query = Query { schema: object.schema, package: object.package, name: object.name };
        let found = catalog.index.find(&query).iter().any(|other| other.offset == object.offset);
        assert!(found || object.schema.is_empty());
        let line = usize::try_from(object.offset).ok().and_then(|at| catalog.jsonl().get(at..));
        let line = line.and_then(|rest| rest.split(|&byte| byte == b'\n').next()).unwrap_or_default();
        if let Ok(meta) = Meta::parse(line) {
            assert_eq!((meta.schema.as_str(), meta.name.as_str()), (object.schema, object.name));
        }
    }
    for package in catalog.packages() {
        summary(package, catalog.package_lines(package));
        let Ok((contents, findings)) = catalog.package(package) else { continue };
        for release in [ReleaseField::Counts, ReleaseField::Ignored] {
            let graph = PackageGraph::new(contents.clone(), findings.clone(), release);
            let found = |&bundle: &BundleIndex| graph.find_bundle(graph.bundle_name(bundle)) == Some(bundle);
            assert!(graph.bundles().all(|bundle| found(&bundle)), "a bundle is not found by its name");
        }
    }
    validate(&catalog);
    match Catalog::from_jsonl(catalog.jsonl(), limits()) {
        Ok(again) => assert_eq!(again.jsonl(), catalog.jsonl(), "ingested twice is ingested once"),
        Err(error) => panics(&error.to_string(), catalog.jsonl()),
    }
}

fn panics(error: &str, jsonl: &[u8]) {
    assert!(jsonl.is_empty(), "what was ingested is refused: {error}");
}

/// Catalog, range, installed bundle (name, version). What is chosen is in the package, in the range and, by the catalog's
/// policy, no step back; the same question has the same answer; dependencies are judged without a panic.
pub(crate) fn resolve(input: &[u8]) {
    let [files, ..] = parts::<4>(input);
    let [_, range, name, version] = texts::<4>(input);
    let Some(catalog) = catalog(files) else { return };
    let range = (!range.trim().is_empty()).then(|| Range::masterminds(range.trim()).ok()).flatten();
    let installed = Installed::parse(name.trim(), version.trim(), None).ok();
    for package in catalog.packages().into_iter().take(4) {
        let Ok(package_name) = package.parse::<PackageName>() else { continue };
        let Ok((contents, findings)) = catalog.package(package) else { continue };
        let graph = Arc::new(PackageGraph::new(contents, findings, ReleaseField::Counts));
        for bundle in graph.bundles().take(8) {
            let _ = needed(&graph, bundle);
            let facts = DependencyFacts::default();
            let report = dependencies(&graph, bundle, &facts, &[]);
            assert_eq!(report, dependencies(&graph, bundle, &facts, &[]));
            assert_eq!(report.unmet.is_empty(), report.error_message("b").is_none());
        }
        let Ok(catalog) = "catalog".parse() else { continue };
        let source = CatalogSource { name: catalog, priority: 0, content: Ok(Arc::clone(&graph)) };
        for policy in [Policy::CatalogProvided, Policy::SelfCertified] {
            let request = Request {
                package: package_name.clone(),
                channels: vec![],
                range: range.clone(),
                policy,
                major_updates: MajorUpdates::default(),
                environment: Environment::default(),
                installed: installed.clone(),
            };
            let outcome = choose(&request, std::slice::from_ref(&source));
            let again = choose(&request, std::slice::from_ref(&source));
            match (&outcome.result, &again.result) {
                (Ok(found), Ok(same)) => {
                    assert_eq!(found.bundle, same.bundle);
                    assert_eq!(graph.find_bundle(found.bundle.as_str()), Some(found.index));
                    assert!(range.as_ref().is_none_or(|range| range.contains(&found.version.version)));
                }
                (Err(one), Err(two)) => assert_eq!(one.to_string(), two.to_string()),
                _ => unreachable!("two answers to one question"),
            }
        }
    }
}
