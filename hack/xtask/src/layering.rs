//! The dependencies between the crates of the workspace: which may use which, as data, and a check over `cargo metadata`.
//!
//! There are no others. A new dependency is its own commit that changes this table and gives the reason.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::source::{self, Manifest, is_in};

pub(crate) use self::table::{files, print};

const LIBRARIES: &str = "olm-api olm-bundle olm-catalog olm-certificates olm-core olm-crd-safety olm-fbc olm-install olm-oci \
    olm-resolver olm-rollout olm-runtime olm-yaml";

/// A package and the packages of this workspace that it may use.
const ALLOWED: &[(&str, &str)] = &[
    ("olm-core", ""),
    // it prints numbers and characters as Go does
    ("olm-yaml", "olm-core"),
    ("olm-fbc", "olm-core olm-yaml"),
    ("olm-resolver", "olm-core olm-fbc"),
    // constraints, CEL and the order of a channel are those of one package
    ("olm-solver", "olm-core olm-fbc olm-resolver"),
    ("olm-bundle", "olm-core olm-yaml"),
    ("olm-crd-safety", "olm-core"),
    ("olm-rollout", "olm-core"),
    ("olm-signature", "olm-core"),
    // it brings signatures from the registry and has them judged
    ("olm-oci", "olm-core olm-signature"),
    ("olm-api", ""),
    // it decides over the objects of the API, and uses the decisions that v1 has already: ranges, CRD safety, order of a channel
    (
        "olm-classic",
        "olm-api olm-core olm-yaml olm-fbc olm-resolver olm-solver olm-bundle olm-crd-safety olm-rollout",
    ),
    ("olm-runtime", "olm-core olm-api"),
    // it needs the client, TLS and the flags
    ("olm-certificates", "olm-runtime"),
    // messages of a protocol that catalogd serves and olm-catalog reads
    ("olm-registry", ""),
    // it hands the resolver what it reads
    ("olm-catalog", "olm-registry olm-core olm-fbc olm-resolver olm-oci olm-api olm-runtime"),
    // it builds the resolver's question, reads its answer, judges CRDs and lays revisions out for the controller and the CLI alike; of
    // olm-runtime it needs to act as a ServiceAccount, and to print the errors of the apiserver as conditions show them
    (
        "olm-install",
        "olm-core olm-resolver olm-oci olm-bundle olm-crd-safety olm-rollout olm-api olm-catalog olm-runtime",
    ),
    ("catalogd", "olm-registry olm-core olm-fbc olm-oci olm-api olm-runtime olm-certificates"),
    ("operator-controller", LIBRARIES),
    // it answers for namespaces of OLM Classic, too
    (
        "kubectl-olm",
        "olm-api olm-bundle olm-catalog olm-certificates olm-classic olm-core olm-crd-safety olm-fbc olm-install olm-oci olm-resolver \
         olm-rollout olm-runtime olm-solver olm-yaml",
    ),
    // it compares versions as kubectl-olm does (olm-core), and knows neither catalogs nor bundles
    ("cluster-operator", "olm-core olm-api olm-runtime olm-certificates"),
    // it is the second consumer of Classic's decisions, and reads catalogs and bundles as the others do
    (
        "classic-controller",
        "olm-api olm-bundle olm-catalog olm-certificates olm-classic olm-core olm-crd-safety olm-fbc olm-install olm-oci olm-registry \
         olm-resolver olm-rollout olm-runtime olm-solver olm-yaml",
    ),
    // the kit starts our binaries as processes, so it needs none of their code
    ("olm-kit", "olm-api"),
    // programs arrive as files
    ("olm-images", ""),
    // it writes down the flags of the programs, as they define them, and finds the version where a release writes it
    (
        "xtask",
        "olm-api olm-images catalogd operator-controller cluster-operator classic-controller kubectl-olm",
    ),
];

/// Packages that only test: they may use anything.
const TEST_PACKAGES: &str = "olm-fuzz olm-integration olm-simulation olm-determinism";

/// Crates without Kubernetes, an async runtime or a socket, and the packages that would bring these. `olm-classic` has the types of the
/// Kubernetes API through `olm-api`, and no client.
const PURE: &str =
    "olm-core olm-yaml olm-fbc olm-resolver olm-solver olm-bundle olm-crd-safety olm-rollout olm-classic";
const IMPURE_PACKAGES: &str =
    "kube kube-core kube-client k8s-openapi tokio hyper reqwest oci-client axum rustls";
/// Kubernetes packages appear only here; xtask holds manifests against the types of their kinds.
const KUBE_USERS: &str = "olm-api olm-runtime olm-certificates olm-catalog olm-install catalogd operator-controller kubectl-olm \
    cluster-operator classic-controller xtask olm-kit olm-fuzz olm-integration olm-simulation";
const KUBE_PACKAGES: &str = "kube k8s-openapi";
/// Nowhere in the tree, not even through others: rustls with ring is the one TLS. `deny.toml` has the same list for cargo-deny.
const BANNED: &str = "aws-lc-rs aws-lc-sys native-tls openssl openssl-sys";

/// Fails with one line for each dependency that is not allowed.
pub(crate) fn check(root: &Path) -> Result<()> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let mut violations = violations(&source::metadata(root)?.packages);
    violations.extend(banned(&lock));
    ensure!(
        violations.is_empty(),
        "dependencies between crates that the table in hack/xtask/src/layering.rs does not have:\n  {}",
        violations.join("\n  ")
    );
    Ok(())
}

fn banned(lock: &str) -> Vec<String> {
    let locked = lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    locked.filter(|name| is_in(BANNED, name)).map(|name| format!("{name} is in Cargo.lock")).collect()
}

fn violations(packages: &[Manifest]) -> Vec<String> {
    let allowed: BTreeMap<&str, &str> = ALLOWED.iter().copied().collect();
    let ours: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut found = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        let test_package = is_in(TEST_PACKAGES, name);
        if !allowed.contains_key(name) && !test_package {
            found.push(format!("{name} is not in the table of hack/xtask/src/layering.rs"));
            continue;
        }
        for dependency in &package.dependencies {
            let used = dependency.name.as_str();
            // tests may use the kit, and their own crate with more features
            let only_tests = dependency.kind.as_deref() == Some("dev");
            if ours.contains(used) {
                let allowed = match allowed.get(name) {
                    Some(list) => is_in(list, used) || only_tests && (used == "olm-kit" || used == name),
                    None => true,
                };
                if !allowed {
                    found.push(format!("{name} -> {used}"));
                }
            }
            if is_in(PURE, name) && is_in(IMPURE_PACKAGES, used) {
                found.push(format!("{name} is pure but uses {used}"));
            }
            if is_in(KUBE_PACKAGES, used) && !is_in(KUBE_USERS, name) {
                found.push(format!("{name} may not know Kubernetes but uses {used}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Dependency;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Manifest {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind)| Dependency { name: (*name).to_owned(), kind: kind.map(str::to_owned) })
            .collect();
        Manifest { name: name.to_owned(), dependencies, ..Manifest::default() }
    }

    #[test]
    fn layering_finds_each_kind_of_violation() {
        let packages = [
            package("olm-core", &[("serde", None), ("tokio", None)]),
            package("olm-fbc", &[("olm-core", None), ("olm-resolver", None)]),
            package("olm-resolver", &[("olm-fbc", None), ("olm-kit", Some("dev"))]),
            package("olm-oci", &[("kube", None)]),
            package("catalogd", &[("olm-kit", None)]),
            package("operator-controller", &[("catalogd", Some("dev"))]),
            package(
                "olm-integration",
                &[("olm-kit", Some("dev")), ("olm-runtime", None), ("catalogd", None)],
            ),
            package("olm-kit", &[]),
            package("newcomer", &[]),
        ];
        assert_eq!(
            violations(&packages),
            [
                "olm-core is pure but uses tokio",
                "olm-fbc -> olm-resolver",
                "olm-oci may not know Kubernetes but uses kube",
                "catalogd -> olm-kit",
                "operator-controller -> catalogd",
                "newcomer is not in the table of hack/xtask/src/layering.rs",
            ]
        );
    }

    #[test]
    fn layering_finds_banned_packages_in_the_lock_file() {
        let lock =
            "[[package]]\nname = \"openssl-probe\"\n\n[[package]]\nname = \"openssl-sys\"\nversion = \"1\"\n";
        assert_eq!(banned(lock), ["openssl-sys is in Cargo.lock"]);
    }

    #[test]
    fn layering_table_has_no_cycle() {
        // every library may use only libraries that come earlier in the table
        let order: Vec<&str> = ALLOWED.iter().map(|(name, _)| *name).collect();
        for (index, (name, uses)) in ALLOWED.iter().enumerate() {
            for used in uses.split_whitespace() {
                let place = order.iter().position(|candidate| *candidate == used).unwrap();
                assert!(place < index, "{name} -> {used}");
            }
        }
    }
}
