//! Namespaces in the notation of the page update-graph.

use std::sync::Arc;

use olm_solver::{
    BundleDraft, Catalog, CatalogSource, ChannelDraft, ChannelEntry, ErrorKind, InstalledCsv, Limits,
    Namespace, PackageDraft, Property, SolveError, Subscription, solve,
};
use serde_json::{Value, json};

/// The namespace of all tests.
pub(crate) const NAMESPACE: &str = "ns";
/// The global namespace of all tests.
pub(crate) const GLOBAL: &str = "olm";

/// Builds a namespace. Bundles are named `<package>.v<version>`.
#[derive(Debug, Clone)]
pub(crate) struct Space(pub(crate) Namespace);

pub(crate) fn space() -> Space {
    let global_namespace = Some(GLOBAL.to_owned());
    Space(Namespace { name: NAMESPACE.to_owned(), global_namespace, ..Namespace::default() })
}

impl Space {
    pub(crate) fn catalog(self, name: &str, packages: impl IntoIterator<Item = Pkg>) -> Self {
        self.catalog_in(NAMESPACE, name, 0, packages)
    }

    pub(crate) fn catalog_in(
        mut self,
        namespace: &str,
        name: &str,
        priority: i32,
        packages: impl IntoIterator<Item = Pkg>,
    ) -> Self {
        let content = Ok(Arc::new(Catalog::new(packages.into_iter().map(|it| it.0))));
        let (name, namespace) = (name.to_owned(), namespace.to_owned());
        self.0.catalogs.push(CatalogSource { name, namespace, priority, content });
        self
    }

    /// A Subscription `sub-<package>` to the channel `stable` of the catalog `own`.
    pub(crate) fn subscribe(self, package: &str) -> Self {
        self.subscribe_to(package, |_| {})
    }

    pub(crate) fn subscribe_to(mut self, package: &str, change: impl FnOnce(&mut Subscription)) -> Self {
        let mut subscription = Subscription {
            name: format!("sub-{package}"),
            package: package.to_owned(),
            channel: "stable".to_owned(),
            catalog: "own".to_owned(),
            catalog_namespace: NAMESPACE.to_owned(),
            ..Subscription::default()
        };
        change(&mut subscription);
        self.0.subscriptions.push(subscription);
        self
    }

    /// A CSV with the annotation.
    pub(crate) fn installed(mut self, package: &str, version: &str, properties: &[Property]) -> Self {
        let own = property("olm.package", json!({"packageName": package, "version": version}));
        let properties = Some([own].into_iter().chain(properties.iter().cloned()).collect());
        let name = format!("{package}.v{version}");
        self.0.installed.push(InstalledCsv {
            name,
            version: version.to_owned(),
            properties,
            ..InstalledCsv::default()
        });
        self
    }

    /// What is installed now, as the names of the bundles; `—` if nothing changes, else `E` and the message.
    pub(crate) fn outcome(&self) -> String {
        match solve(&self.0, Limits::default()) {
            Ok(solution) if solution.bundles.is_empty() => "—".to_owned(),
            Ok(solution) => solution.bundles.iter().map(|it| it.name.as_str()).collect::<Vec<_>>().join(", "),
            Err(error) => format!("E {error}"),
        }
    }

    pub(crate) fn error(&self) -> (ErrorKind, String) {
        let error: SolveError = solve(&self.0, Limits::default()).expect_err("the namespace is refused");
        (error.kind(), error.to_string())
    }
}

/// Builds a package.
#[derive(Debug, Clone)]
pub(crate) struct Pkg(pub(crate) PackageDraft);

/// A package with the default channel `stable`; entries as in the page: `1.0.0; 1.1.0 r 1.0.0 s 1.0.1, 1.0.2 sr >=1.0.0 <1.1.0`.
pub(crate) fn pkg(name: &str, entries: &str) -> Pkg {
    let default_channel = "stable".to_owned();
    Pkg(PackageDraft { name: name.to_owned(), default_channel, ..PackageDraft::default() })
        .channel("stable", entries)
}

impl Pkg {
    pub(crate) fn channel(mut self, name: &str, entries: &str) -> Self {
        let bundle = |version: &str| format!("{}.v{version}", self.0.name);
        let entries = entries.split(';').map(str::trim).filter(|it| !it.is_empty()).map(|text| {
            let (text, skip_range) = text.split_once(" sr ").unwrap_or((text, ""));
            let (text, skips) = text.split_once(" s ").unwrap_or((text, ""));
            let (version, replaces) = text.split_once(" r ").unwrap_or((text, ""));
            ChannelEntry {
                name: bundle(version),
                replaces: if replaces.is_empty() { String::new() } else { bundle(replaces) },
                skips: skips.split(',').map(str::trim).filter(|it| !it.is_empty()).map(bundle).collect(),
                skip_range: skip_range.to_owned(),
            }
        });
        let entries: Vec<ChannelEntry> = entries.collect();
        for entry in &entries {
            if self.0.bundles.iter().all(|bundle| bundle.name != entry.name) {
                let version = entry.name.trim_start_matches(&self.0.name).trim_start_matches(".v").to_owned();
                let package = json!({"packageName": self.0.name, "version": version});
                let properties = vec![property("olm.package", package)];
                let name = entry.name.clone();
                self.0.bundles.push(BundleDraft { name, version, properties, ..BundleDraft::default() });
            }
        }
        self.0.channels.push(ChannelDraft { name: name.to_owned(), entries });
        self
    }

    pub(crate) fn with_properties(mut self, version: &str, properties: &[Property]) -> Self {
        for bundle in self.0.bundles.iter_mut().filter(|bundle| bundle.version == version) {
            bundle.properties.extend_from_slice(properties);
        }
        self
    }

    /// Properties of every version so far.
    pub(crate) fn all(mut self, properties: &[Property]) -> Self {
        self.0.bundles.iter_mut().for_each(|bundle| bundle.properties.extend_from_slice(properties));
        self
    }
}

pub(crate) fn property(kind: &str, value: Value) -> Property {
    Property { kind: kind.into(), value: value.to_string().into() }
}

fn gvk(api: &str) -> Value {
    let (kind, version) = api.split_once('/').unwrap_or((api, "v1"));
    json!({"group": "g", "version": version, "kind": kind})
}

/// The API `Kind` or `Kind/version` of the group `g`.
pub(crate) fn provides(api: &str) -> Property {
    property("olm.gvk", gvk(api))
}

pub(crate) fn needs(api: &str) -> Property {
    property("olm.gvk.required", gvk(api))
}

pub(crate) fn needs_package(name: &str, range: &str) -> Property {
    property("olm.package.required", json!({"packageName": name, "versionRange": range}))
}

pub(crate) fn constraint(value: Value) -> Property {
    property("olm.constraint", value)
}

/// An API as a part of a constraint.
pub(crate) fn api(api: &str) -> Value {
    json!({"gvk": gvk(api)})
}

/// A package as a part of a constraint.
pub(crate) fn package(name: &str, range: &str) -> Value {
    json!({"package": {"packageName": name, "versionRange": range}})
}

/// The namespace of decision 50 in which a later Subscription must give up its first candidate.
pub(crate) fn going_back() -> Space {
    let certified = [property("certified", json!(true))];
    let hazel = pkg("hazel", "3.0.0; 3.0.1 r 3.0.0; 3.2.0 r 3.0.1")
        .with_properties("3.0.0", &certified)
        .with_properties("3.0.1", &certified);
    let kelp = pkg("kelp", "1.1.0").all(&[needs_package("hazel", ">=3.2.0")]);
    let rule = json!({"cel": {"rule": "properties.exists(p, p.type == 'certified')"}});
    let ochre = pkg("ochre", "0.0.1; 0.1.0 r 0.0.1").with_properties("0.1.0", &[constraint(rule)]);
    space()
        .catalog_in(NAMESPACE, "operators", 100, [kelp, hazel])
        .catalog("own", [ochre, pkg("hazel", "3.2.0")])
        .subscribe_to("kelp", |it| it.catalog = "operators".to_owned())
        .subscribe("ochre")
}
