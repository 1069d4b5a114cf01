//! Small catalogs in short notation, for tests.

use std::sync::Arc;

use olm_fbc::PackageContents;
use olm_resolver::{
    CatalogReadError, CatalogSource, Environment, Installed, MajorUpdates, Outcome, PackageGraph, Policy,
    ReleaseField, Request, parse_range, resolve,
};
use serde_json::{Value, json};

/// A package as catalog lines. Bundles are named `<package>.v<version>`.
#[derive(Clone)]
pub(crate) struct Pkg {
    name: String,
    lines: Vec<Value>,
    deprecated: Vec<Value>,
}

impl Pkg {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            lines: vec![json!({"schema": "olm.package", "name": name})],
            deprecated: vec![],
        }
    }

    /// Bundles with these versions.
    pub(crate) fn bundles(mut self, versions: &[&str]) -> Self {
        for version in versions {
            let properties =
                json!([{"type": "olm.package", "value": {"packageName": self.name, "version": version}}]);
            self = self.bundle(version, properties);
        }
        self
    }

    /// A bundle with these properties.
    pub(crate) fn bundle(mut self, version: &str, properties: Value) -> Self {
        let name = format!("{}.v{version}", self.name);
        self.lines.push(json!({
            "schema": "olm.bundle", "package": self.name, "name": name, "properties": properties,
            "image": format!("registry.example/{}:v{}", self.name, version.replace('+', "_")),
        }));
        self
    }

    /// A channel; an entry is `version [r version] [s version,version] [sr range]`.
    pub(crate) fn channel(mut self, name: &str, entries: &[&str]) -> Self {
        let full = |version: &str| format!("{}.v{version}", self.name);
        let entries: Vec<Value> = entries
            .iter()
            .map(|entry| {
                let (entry, range) = match entry.split_once(" sr ") {
                    Some((entry, range)) => (entry, Some(range)),
                    None => (*entry, None),
                };
                let words: Vec<&str> = entry.split(' ').collect();
                let mut made = json!({"name": full(words[0])});
                for pair in words[1..].chunks(2) {
                    match pair {
                        ["r", version] => made["replaces"] = json!(full(version)),
                        ["s", versions] => made["skips"] = versions.split(',').map(&full).collect(),
                        other => panic!("bad entry {other:?}"),
                    }
                }
                if let Some(range) = range {
                    made["skipRange"] = json!(range);
                }
                made
            })
            .collect();
        self.lines
            .push(json!({"schema": "olm.channel", "package": self.name, "name": name, "entries": entries}));
        self
    }

    pub(crate) fn deprecate(mut self, schema: &str, name: &str, message: &str) -> Self {
        let mut reference = json!({"schema": schema});
        if !name.is_empty() {
            reference["name"] = json!(name);
        }
        self.deprecated.push(json!({"reference": reference, "message": message}));
        self
    }

    pub(crate) fn deprecate_bundles(mut self, versions: &[&str]) -> Self {
        for version in versions {
            let name = format!("{}.v{version}", self.name);
            self = self.deprecate("olm.bundle", &name, &format!("{version} is deprecated"));
        }
        self
    }

    pub(crate) fn graph(&self) -> Arc<PackageGraph> {
        self.graph_with(ReleaseField::Counts)
    }

    pub(crate) fn graph_with(&self, release: ReleaseField) -> Arc<PackageGraph> {
        let mut lines = self.lines.clone();
        if !self.deprecated.is_empty() {
            lines.push(
                json!({"schema": "olm.deprecations", "package": self.name, "entries": self.deprecated}),
            );
        }
        let (contents, findings) =
            PackageContents::from_lines(&self.name, lines.iter().map(|line| line.to_string().into_bytes()))
                .unwrap();
        Arc::new(PackageGraph::new(contents, findings, release))
    }
}

pub(crate) fn catalog(name: &str, priority: i32, package: &Pkg) -> CatalogSource {
    CatalogSource { name: name.parse().unwrap(), priority, content: Ok(package.graph()) }
}

pub(crate) fn without_package(name: &str) -> CatalogSource {
    CatalogSource { name: name.parse().unwrap(), priority: 0, content: Ok(Arc::new(PackageGraph::empty())) }
}

pub(crate) fn broken(name: &str, priority: i32, why: &str) -> CatalogSource {
    CatalogSource { name: name.parse().unwrap(), priority, content: Err(CatalogReadError::Other(why.into())) }
}

/// A request, of package p by default.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    pub(crate) installed: Option<&'a str>,
    pub(crate) range: &'a str,
    pub(crate) channels: &'a [&'a str],
    pub(crate) self_certified: bool,
}

impl Ask<'_> {
    pub(crate) fn request(&self, package: &str) -> Request {
        Request {
            package: package.parse().unwrap(),
            channels: self.channels.iter().map(|name| name.parse().unwrap()).collect(),
            range: parse_range(self.range).unwrap(),
            policy: if self.self_certified { Policy::SelfCertified } else { Policy::CatalogProvided },
            major_updates: MajorUpdates::Automatic,
            environment: Environment::default(),
            installed: self
                .installed
                .map(|version| Installed::parse(&format!("{package}.v{version}"), version, None).unwrap()),
        }
    }
}

/// `version@catalog`, or `E: ` and the message.
pub(crate) fn short(outcome: &Outcome) -> String {
    match &outcome.result {
        Ok(found) => format!("{}@{}", found.version, found.catalog),
        Err(error) => format!("E: {error}"),
    }
}

pub(crate) fn resolve_short(ask: Ask<'_>, package: &str, sources: &[CatalogSource]) -> String {
    short(&resolve(&ask.request(package), sources))
}
