//! The bundle of a catalog that would no longer block an update of the cluster.
//!
//! Only a hint: catalogs repeat what bundles declare, and `kubectl olm paths` shows whether an upgrade edge leads there. The
//! gate itself never reads a catalog.
//!
//! Rule: cluster-operator §16 step 7.

use olm_core::VersionRelease;
use olm_core::openshift::{Bundle, Owner, Stream, judge};
use olm_resolver::{BundleIndex, CatalogSource, PackageGraph};

/// A bundle that runs on the target version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remedy {
    pub(crate) bundle: String,
    /// The catalog that has it.
    pub(crate) catalog: String,
}

/// The lowest bundle above the installed one that runs on `target`; of equal ones that of the catalog with the higher priority.
pub(crate) fn lowest(sources: &[CatalogSource], installed: &str, target: Stream) -> Option<Remedy> {
    let graphs = || sources.iter().filter_map(|source| Some((source, source.content.as_ref().ok()?)));
    let now = graphs().find_map(|(_, graph)| graph.version(graph.find_bundle(installed)?).ok().cloned())?;
    let mut found: Vec<(VersionRelease, std::cmp::Reverse<i32>, Remedy)> = Vec::new();
    for (source, graph) in graphs() {
        for bundle in graph.bundles() {
            let Ok(version) = graph.version(bundle) else { continue };
            if *version > now && fits(graph, bundle, target) {
                let remedy =
                    Remedy { bundle: graph.bundle_name(bundle).to_owned(), catalog: source.name.to_string() };
                found.push((version.clone(), std::cmp::Reverse(source.priority), remedy));
            }
        }
    }
    found.sort_by(|a, b| (&a.0, a.1, &a.2.catalog).cmp(&(&b.0, b.1, &b.2.catalog)));
    found.into_iter().next().map(|(_, _, remedy)| remedy)
}

fn fits(graph: &PackageGraph, bundle: BundleIndex, target: Stream) -> bool {
    let one =
        |kind: &str, value: &str| format!("{{\"type\":{},\"value\":{value}}}", serde_json::Value::from(kind));
    let properties: Vec<String> =
        graph.properties(bundle).iter().map(|property| one(&property.kind, &property.value)).collect();
    let bundle = Bundle {
        owner: Owner::Extension(String::new()),
        name: String::new(),
        properties: Some(format!("[{}]", properties.join(","))),
    };
    judge(target.before(), target, &[bundle]).is_open()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_catalog::PackageContent;
    use olm_resolver::{CatalogReadError, ReleaseField};
    use serde_json::json;

    use super::*;

    fn catalog(name: &str, priority: i32, bundles: &[(&str, Option<&str>)]) -> CatalogSource {
        let mut lines = json!({"schema": "olm.package", "name": "p"}).to_string();
        for (version, limit) in bundles {
            let mut properties =
                vec![json!({"type": "olm.package", "value": {"packageName": "p", "version": version}})];
            properties.extend(limit.map(|limit| json!({"type": "olm.maxOpenShiftVersion", "value": limit})));
            let bundle = json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i",
                "properties": properties});
            lines = format!("{lines}\n{bundle}");
        }
        let content = PackageContent::from_lines(&"p".parse().unwrap(), lines.as_bytes()).unwrap();
        CatalogSource {
            name: name.parse().unwrap(),
            priority,
            content: Ok(Arc::new(content.into_graph(ReleaseField::Counts))),
        }
    }

    #[test]
    fn remedy_is_lowest_bundle_for_target() {
        let all = [
            ("1.0.0", Some("4.18")),
            ("1.10.0", None),
            ("1.2.0", Some("4.19")),
            ("1.1.0", Some("4.18")),
            ("0.9.0", None),
        ];
        let sources = [catalog("a", 0, &all)];
        for (installed, target, want) in [
            ("p.v1.0.0", Stream::new(4, 19), Some("p.v1.2.0")),
            ("p.v1.0.0", Stream::new(4, 20), Some("p.v1.10.0")),
            ("p.v1.2.0", Stream::new(4, 20), Some("p.v1.10.0")),
            ("p.v1.10.0", Stream::new(4, 20), None),
            ("unknown", Stream::new(4, 19), None),
        ] {
            let found = lowest(&sources, installed, target).map(|remedy| remedy.bundle);
            assert_eq!(found.as_deref(), want, "{installed} to {target}");
        }
    }

    #[test]
    fn remedy_prefers_catalog_with_higher_priority() {
        let newer = [("1.0.0", Some("4.18")), ("1.1.0", None)];
        let broken = CatalogSource {
            name: "broken".parse().unwrap(),
            priority: 99,
            content: Err(CatalogReadError::NotServing),
        };
        let sources = [broken, catalog("a", 0, &newer), catalog("b", 5, &newer)];
        let want = Remedy { bundle: "p.v1.1.0".to_owned(), catalog: "b".to_owned() };
        assert_eq!(lowest(&sources, "p.v1.0.0", Stream::new(4, 19)), Some(want));
        let invalid = [("1.0.0", Some("4.18")), ("1.1.0", Some("v5"))];
        assert_eq!(lowest(&[catalog("a", 0, &invalid)], "p.v1.0.0", Stream::new(4, 19)), None, "unreadable");
    }
}
