//! Bills of materials (CycloneDX 1.6, JSON) from cargo's metadata of the workspace and its lock file.
//!
//! Listed is what a program may contain: all crates that it reaches over ordinary dependencies on its platform. Crates that
//! only tests or build scripts use are left out. Features are those of the whole workspace, so a list can name a crate
//! more than the linker kept, never one less.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::image::About;

/// What cargo knows of the workspace for one platform.
#[derive(Debug)]
pub struct Crates {
    packages: BTreeMap<String, Package>,
    uses: BTreeMap<String, BTreeSet<String>>,
    /// SHA-256 of a crate's archive by name and version
    checksums: BTreeMap<(String, String), String>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    description: Option<String>,
    repository: Option<String>,
    source: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Debug, Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    /// absent for ordinary dependencies
    kind: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

impl Crates {
    /// Asks cargo for what is built for `target` (a name of rustc's), which downloads nothing.
    ///
    /// # Errors
    /// When cargo fails, or the lock file does not fit.
    pub fn read_workspace(workspace: &Path, target: &str) -> Result<Self> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", target])
            .current_dir(workspace)
            .output()
            .context("cannot run cargo metadata")?;
        let printed = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed: {}", printed.trim());
        let lock = std::fs::read_to_string(workspace.join("Cargo.lock")).context("cannot read Cargo.lock")?;
        Self::read(&output.stdout, &lock)
    }

    fn read(metadata: &[u8], lock: &str) -> Result<Self> {
        let metadata: Metadata = serde_json::from_slice(metadata).context("cannot read cargo metadata")?;
        let lock: Lock = toml::from_str(lock).context("cannot read Cargo.lock")?;
        let ordinary = |edge: &Edge| edge.dep_kinds.iter().any(|kind| kind.kind.is_none());
        Ok(Self {
            packages: metadata.packages.into_iter().map(|package| (package.id.clone(), package)).collect(),
            uses: metadata
                .resolve
                .nodes
                .into_iter()
                .map(|node| (node.id, node.deps.into_iter().filter(ordinary).map(|edge| edge.pkg).collect()))
                .collect(),
            checksums: lock
                .package
                .into_iter()
                .filter_map(|package| Some(((package.name, package.version), package.checksum?)))
                .collect(),
        })
    }

    /// The description of `program` in its manifest.
    ///
    /// # Errors
    /// When the workspace has no such package, or it has no description.
    pub fn description(&self, program: &str) -> Result<&str> {
        let package = self.own(program)?;
        package.description.as_deref().with_context(|| format!("the package {program} has no description"))
    }

    /// The bill of `program`.
    ///
    /// # Errors
    /// When the workspace has no such package.
    pub fn bill(&self, program: &str, about: &About) -> Result<Vec<u8>> {
        let root = self.own(program)?;
        let mut reached = BTreeSet::new();
        let mut next = vec![root.id.as_str()];
        while let Some(id) = next.pop() {
            if reached.insert(id) {
                next.extend(self.uses.get(id).into_iter().flatten().map(String::as_str));
            }
        }
        let mut components: Vec<(String, Value)> = Vec::new();
        let mut dependencies: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for id in reached {
            let package = self.packages.get(id).with_context(|| format!("cargo names no package {id}"))?;
            let uses = self.uses.get(id).into_iter().flatten().filter_map(|used| self.packages.get(used));
            dependencies.insert(package.purl(), uses.map(Package::purl).collect());
            if id != root.id {
                components.push((package.purl(), self.component(package, "library")));
            }
        }
        components.sort_by(|one, other| one.0.cmp(&other.0));
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": about.date()?,
                "component": self.component(root, "application"),
            },
            "components": components.into_iter().map(|(_, component)| component).collect::<Vec<_>>(),
            "dependencies": dependencies
                .into_iter()
                .map(|(from, uses)| json!({"ref": from, "dependsOn": uses}))
                .collect::<Vec<_>>(),
        });
        Ok(serde_json::to_vec_pretty(&bill)?)
    }

    fn own(&self, program: &str) -> Result<&Package> {
        self.packages
            .values()
            .find(|package| package.name == program && package.source.is_none())
            .with_context(|| format!("the workspace has no package {program}"))
    }

    fn component(&self, package: &Package, kind: &str) -> Value {
        let mut component = json!({
            "type": kind,
            "bom-ref": package.purl(),
            "name": package.name,
            "version": package.version,
            "purl": package.purl(),
        });
        if let Some(license) = &package.license {
            // an old way to write OR that SPDX does not know
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        if let Some(sum) = self.checksums.get(&(package.name.clone(), package.version.clone())) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        if let Some(repository) = &package.repository {
            component["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        component
    }
}

impl Package {
    fn purl(&self) -> String {
        // `+` begins build metadata in versions and is no letter of such names
        format!("pkg:cargo/{}@{}", self.name, self.version.replace('+', "%2B"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = "[[package]]\nname = \"used\"\nversion = \"1.0.0+x\"\nchecksum = \"aa\"\n";

    fn metadata() -> Vec<u8> {
        let package = |name: &str, version: &str, source: Option<&str>| {
            json!({"id": name, "name": name, "version": version, "license": "MIT/Apache-2.0", "source": source,
                   "description": "what it does", "repository": null})
        };
        let edge = |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        json!({
            "packages": [
                package("program", "0.1.0", None), package("used", "1.0.0+x", Some("registry")),
                package("tester", "2.0.0", Some("registry")), package("elsewhere", "3.0.0", Some("registry")),
            ],
            "resolve": {"nodes": [
                {"id": "program", "deps": [edge("used", None), edge("tester", Some("dev"))]},
                {"id": "used", "deps": []},
                {"id": "tester", "deps": [edge("elsewhere", None)]},
                {"id": "elsewhere", "deps": []},
            ]},
        })
        .to_string()
        .into_bytes()
    }

    fn about() -> About {
        About {
            version: "0.1.0".to_owned(),
            revision: None,
            created: 0,
            source: String::new(),
            licenses: "Apache-2.0".to_owned(),
        }
    }

    #[test]
    fn sbom_lists_reached_crates_only() {
        let crates = Crates::read(&metadata(), LOCK).unwrap();
        let bill: Value = serde_json::from_slice(&crates.bill("program", &about()).unwrap()).unwrap();
        insta::assert_json_snapshot!(bill);
    }

    /// What `cargo tree` prints for the ordinary dependencies of a program, as `name version`.
    fn tree(program: &str, target: &str) -> BTreeSet<String> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--edges",
                "normal",
                "--prefix",
                "none",
                "--format",
                "{p}",
            ])
            .args(["--package", program, "--target", target])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let name = |line: &str| {
            let (name, version) = line.split(" (").next()?.trim().split_once(' ')?;
            Some(format!("{name} {}", version.trim_start_matches('v')))
        };
        text.lines().filter_map(name).collect()
    }

    #[test]
    fn sbom_names_every_crate_of_the_lock_file_in_the_programs() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let target = if cfg!(target_arch = "aarch64") {
            "aarch64-unknown-linux-gnu"
        } else {
            "x86_64-unknown-linux-gnu"
        };
        let crates = Crates::read_workspace(root, target).unwrap();
        let lock: Lock = toml::from_str(&std::fs::read_to_string(root.join("Cargo.lock")).unwrap()).unwrap();
        let locked: BTreeMap<String, Option<String>> = lock
            .package
            .into_iter()
            .map(|package| (format!("{} {}", package.name, package.version), package.checksum))
            .collect();
        for program in
            ["catalogd", "operator-controller", "cluster-operator", "classic-controller", "kubectl-olm"]
        {
            let bill: Value = serde_json::from_slice(&crates.bill(program, &about()).unwrap()).unwrap();
            let text = |component: &Value, key: &str| component[key].as_str().unwrap_or_default().to_owned();
            let mut listed = BTreeMap::new();
            for component in
                bill["components"].as_array().unwrap().iter().chain([&bill["metadata"]["component"]])
            {
                let name = format!("{} {}", text(component, "name"), text(component, "version"));
                let sum = component["hashes"][0]["content"].as_str().map(str::to_owned);
                // of the lock file, with the checksum that it has; crates of this workspace have none
                assert_eq!(locked.get(&name), Some(&sum), "{program}: {name}");
                listed.insert(name, sum);
            }
            let built = tree(program, target);
            assert!(built.len() > 100 && built.contains(&format!("{program} {}", env!("CARGO_PKG_VERSION"))));
            let missing: Vec<&String> = built.iter().filter(|name| !listed.contains_key(*name)).collect();
            assert!(
                missing.is_empty(),
                "{program} is built of crates that its bill does not name: {missing:?}"
            );
        }
    }

    #[test]
    fn sbom_error_names_an_unknown_program() {
        let crates = Crates::read(&metadata(), LOCK).unwrap();
        let problem = crates.bill("used", &about()).unwrap_err();
        assert_eq!(problem.to_string(), "the workspace has no package used");
    }
}
