//! `kubectl olm migrate reference`: from a cluster as the Go implementation leaves it to one where olm-rs works.
//!
//! Its programs cannot be built here: their objects are made after the specification, their leases and field managers are played.
//! Rules: catalogd §11.7, operator-controller §6.2, §8 and appendix B.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterCatalog, condition};
use olm_integration::package::{LIMIT, Package};
use olm_kit::{
    Ca, CatalogImage, Cluster, Entry, Package as Content, Program, Registry, RunDir, SYSTEM_NAMESPACE, Wait,
    repository,
};
use serde_json::{Value, json};

use crate::helm::{Helm, Release};

const LEASES: [&str; 2] = ["catalogd-operator-lock", "9c4404e7.operatorframework.io"];

/// A cluster of the Go implementation, with a user of it.
struct Reference {
    cluster: Cluster,
    leases: Api<Lease>,
    folder: RunDir,
}

impl Reference {
    /// The standard manifests, applied as its install script does: on the client's side.
    async fn start() -> Result<Self> {
        let cluster = Cluster::start().await?;
        let leases = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
        let reference = Self { cluster, leases, folder: RunDir::new("migration")? };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}});
        reference.cluster.apply(&namespace.to_string()).await?;
        for kind in ["clustercatalogs", "clusterextensions"] {
            let file = format!("{kind}.yaml");
            std::fs::write(reference.folder.path().join(&file), standard_crd(kind)?.to_string())?;
            reference.kubectl(&["apply", "-f", &file])?;
        }
        let wait = ["wait", "--for=condition=Established", "--timeout=1m", "crd", "--all"];
        reference.kubectl(&wait)?;
        Ok(reference)
    }

    /// Everything else of the manifests that a migration meets.
    fn add_objects(&self) -> Result<()> {
        let folder = repository().join("tests/integration/reference");
        self.kubectl(&["apply", "-f", &folder.display().to_string()]).map(drop)
    }

    fn run_kubectl(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.cluster.kubectl()?.args(arguments).current_dir(self.folder.path()).output()?)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run_kubectl(arguments)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{arguments:?}: {error}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// A process of the Go implementation renews the lease at this time; `None`: it released the lease at its end.
    async fn renew(&self, name: &str, at: Option<Timestamp>) -> Result<()> {
        let identity = format!("{name}-6d5f_1c1f1e54-7f0c-4b50-9a3a-8f2d8a4f7f10");
        let held = at.is_some();
        let time = MicroTime(at.unwrap_or_else(Timestamp::now));
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": if held { identity.as_str() } else { "" }, "renewTime": time,
                     "leaseDurationSeconds": if held { 137 } else { 1 }},
        });
        let params = PatchParams::apply("go-client").force();
        self.leases.patch(name, &params, &Patch::Apply(&lease)).await.map(drop).map_err(Into::into)
    }

    /// Exit code and both outputs of `kubectl olm migrate reference`.
    async fn migrate(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        let mut command = tokio::process::Command::new(olm_kit::built("kubectl-olm")?);
        command
            .args(["migrate", "reference"])
            .args(arguments)
            .args(["--kubeconfig"])
            .arg(self.cluster.kubeconfig());
        let output = command.env("HOME", self.folder.path()).current_dir(self.folder.path()).output().await?;
        let code = output.status.code().context("killed")?;
        Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
    }
}

/// A definition of the standard manifests: without experimental fields, short names and categories, with the annotations of their
/// generator.
fn standard_crd(kind: &str) -> Result<Value> {
    let file = repository().join(format!("manifests/crds/olm.operatorframework.io_{kind}.yaml"));
    let mut crd: Value = serde_saphyr::from_str(&std::fs::read_to_string(file)?)?;
    crd["metadata"]["annotations"] = json!({
        "controller-gen.kubebuilder.io/version": "v0.20.1", "olm.operatorframework.io/generator": "standard",
    });
    for name in ["shortNames", "categories"] {
        crd["spec"]["names"].as_object_mut().context("no names")?.remove(name);
    }
    let spec = crd
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties")
        .and_then(Value::as_object_mut)
        .context("no spec")?;
    for name in ["config", "progressDeadlineMinutes"] {
        spec.remove(name);
    }
    Ok(crd)
}

fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// An extension of version 1.0.0 that the Go implementation has installed through Helm; 1.1.0 and 2.0.0 follow.
async fn installed_by_helm(reference: &Reference, registry: &Registry, package: &Package) -> Result<String> {
    let name = &package.name;
    package.make_namespace(&reference.cluster).await?;
    let entries = [
        Entry::new("1.0.0"),
        Entry::new("1.1.0").replaces("1.0.0"),
        Entry::new("2.0.0").replaces("1.1.0").skips("1.0.0"),
    ];
    let mut content = Content::new(name).channel("stable", entries);
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        content = content.bundle(version, &package.push(registry, version, &package.bundle(version)).await?);
    }
    let image = CatalogImage::new().package(&content).image();
    let catalog = registry.push(&format!("{name}/catalog"), "latest", &image).await?.by_tag();
    let label = "olm.operatorframework.io/metadata.name";
    let objects = [
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name, "labels": {label: name}},
            "spec": {"source": {"type": "Image", "image": {"ref": catalog}}}}),
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": name, "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}}}),
    ];
    for object in objects {
        reference.cluster.apply(&object.to_string()).await?;
    }
    let helm = Helm::of_package(package).await?;
    let objects = helm.objects(&package.bundle("1.0.0"))?;
    helm.create(&objects).await?;
    helm.store(&Release { version: 1, status: "deployed", bundle_version: "1.0.0", objects, chunk: 1 << 20 })
        .await?;
    let bundle = json!({"name": format!("{name}.v1.0.0"), "version": "1.0.0"});
    let status = json!({"status": {"install": {"bundle": bundle}}});
    package.extensions.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(catalog)
}

#[tokio::test(flavor = "multi_thread")]
async fn migration_from_the_reference_removes_adopts_and_upgrades() -> Result<()> {
    let reference = Reference::start().await?;
    let registry = Registry::start().await?;
    let client = reference.cluster.client().await?;
    let package = Package::new(client.clone(), "moved", None);
    let catalog = installed_by_helm(&reference, &registry, &package).await?;
    let name = &package.name;
    reference.add_objects()?;
    for lease in LEASES {
        reference.renew(lease, Some(Timestamp::now())).await?;
    }

    // what a migration without the command ends with
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    let new: ClusterCatalog = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "new"},
        "spec": {"source": {"type": "Image", "image": {"ref": catalog}}},
    }))?;
    let error = catalogs
        .create(&Default::default(), &new)
        .await
        .err()
        .context("the webhook let it pass")?
        .to_string();
    has(&error, &["failed calling webhook \"inject-metadata-name.olm.operatorframework.io\""]);

    // while the other controllers work
    let ca = Ca::shared()?.certificate();
    let plan = ["plan", "--image", &catalog, "--ca-file", ca.to_str().context("path")?];
    let (code, out, error) = reference.migrate(&plan).await?;
    assert_eq!(code, 1, "{out}{error}");
    has(
        &out,
        &[
            "the Go implementation ",
            "remove      MutatingWebhookConfiguration       catalogd-mutating-webhook-configuration",
            "remove      ValidatingAdmissionPolicy          clusterextension-serviceaccount-deprecated",
            "remove      ValidatingAdmissionPolicyBinding   clusterextension-serviceaccount-deprecated",
            "take over   CustomResourceDefinition           clustercatalogs.olm.operatorframework.io",
            "its fields belong to kubectl-client-side-apply",
            "create      CustomResourceDefinition           clusterobjectsets.olm.operatorframework.io",
            &format!("Helm release sh.helm.release.v1.{name}.v1"),
            "2.0.0, will be held",
            "`apply` refuses while the Go implementation holds 2 leases",
            "Rollback: ",
        ],
    );
    let (_, out, _) = reference.migrate(&[&plan[..], &["-o", "json"]].concat()).await?;
    let json: Value = serde_json::from_str(&out)?;
    assert_eq!(json["leases"][0]["holder"], "Other", "{out}");
    assert_eq!(json["extensions"][0]["heldMajor"], "2.0.0", "{out}");
    assert_eq!(json["customResourceDefinitions"].as_array().map(Vec::len), Some(3), "{out}");

    let before = reference.kubectl(&["get", "mutatingwebhookconfigurations", "-o", "name"])?;
    let refuse = async |parts: &[&str]| -> Result<()> {
        let (code, out, error) = reference.migrate(&["apply", "--lease-wait", "6s"]).await?;
        assert_eq!((code, out.as_str()), (2, ""), "{error}");
        has(&error, parts);
        assert_eq!(reference.kubectl(&["get", "mutatingwebhookconfigurations", "-o", "name"])?, before);
        Ok(())
    };
    refuse(&["the Go implementation still works", LEASES[0], LEASES[1], "scale its Deployments to 0"])
        .await?;
    // one is stopped; the clock of the other's node is behind, so that its lease looks expired
    reference.renew(LEASES[0], None).await?;
    let behind = |seconds: i64| Timestamp::now() - SignedDuration::from_secs(600 - seconds);
    reference.renew(LEASES[1], Some(behind(0))).await?;
    let renewing = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        reference.renew(LEASES[1], Some(behind(26))).await
    };
    let (refused, renewed) = tokio::join!(refuse(&["which renews it"]), renewing);
    refused?;
    renewed?;

    // it was killed
    let (code, out, error) = reference.migrate(&["apply", "--lease-wait", "2s"]).await?;
    assert_eq!(code, 0, "{error}");
    let done = "customresourcedefinition/clustercatalogs.olm.operatorframework.io taken over
customresourcedefinition/clusterextensions.olm.operatorframework.io taken over
customresourcedefinition/clusterobjectsets.olm.operatorframework.io created
validatingadmissionpolicybinding/clusterextension-serviceaccount-deprecated deleted
validatingadmissionpolicy/clusterextension-serviceaccount-deprecated deleted
mutatingwebhookconfiguration/catalogd-mutating-webhook-configuration deleted
";
    assert_eq!(out, done);
    has(&error, &["what is removed is in olm-reference-removed.yaml", "Rollback: "]);
    check_definitions(&reference).await?;
    check_backup(&reference, &reference.folder.path().join("olm-reference-removed.yaml"))?;
    let (code, out, error) = reference.migrate(&plan).await?;
    assert_eq!(code, 0, "{error}");
    has(&out, &["nothing is left to do"]);
    let (code, out, error) = reference.migrate(&["apply"]).await?;
    assert_eq!((code, out.as_str(), error.as_str()), (0, "", "nothing is left to do\n"));

    // the lease of a process that was killed lasts 137 s: here it runs out faster
    reference.renew(LEASES[1], None).await?;
    let _catalogd = Program::catalogd(&reference.cluster)?.start().await?;
    let _operator_controller = Program::operator_controller(&reference.cluster)?.start().await?;
    catalogs.create(&Default::default(), &new).await.context("after the migration")?;
    for catalog in ["new", name.as_str()] {
        Wait::new(&catalogs, catalog).within(LIMIT).for_condition("Serving", "True").await?;
    }
    Wait::new(&package.extensions, name)
        .within(LIMIT)
        .until("1.1.0 is installed, and 2.0.0 is held", |extension| {
            let Some(status) = &extension.status else { return false };
            let held = condition::find(&status.conditions, condition::UPGRADE_AVAILABLE);
            status.install.as_ref().is_some_and(|install| install.bundle.version == "1.1.0")
                && held
                    .is_some_and(|held| held.reason == "MajorVersionHeld" && held.message.contains("2.0.0"))
        })
        .await?;
    let first = package.sets.get(&format!("{name}-1")).await?;
    let migrated = first.labels().get("olm.operatorframework.io/migrated-from-helm");
    assert_eq!(migrated.map(String::as_str), Some("true"));
    Ok(())
}

/// The manifests of olm-rs can be applied without force, and what only the Go implementation's had is gone.
async fn check_definitions(reference: &Reference) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(reference.cluster.client().await?);
    for kind in ["clustercatalogs", "clusterextensions", "clusterobjectsets"] {
        let crd = api.get(&format!("{kind}.olm.operatorframework.io")).await?;
        let annotations: Vec<&String> = crd.annotations().keys().collect();
        assert_eq!(annotations, ["olm.operatorframework.io/generator"], "{kind}");
        let of_object = |manager: &str| {
            let mut entries = crd.managed_fields().iter();
            entries.any(|entry| entry.manager.as_deref() == Some(manager) && entry.subresource.is_none())
        };
        assert!(of_object("kubectl") && !of_object("kubectl-client-side-apply"), "{kind}");
        assert!(crd.spec.names.short_names.is_some(), "{kind}");
    }
    let shipped = repository().join("manifests/crds").display().to_string();
    let applied = reference.kubectl(&["apply", "--server-side", "-k", &shipped])?;
    assert_eq!(applied.lines().filter(|line| line.ends_with("serverside-applied")).count(), 3, "{applied}");
    Ok(())
}

/// The file creates what was removed.
fn check_backup(reference: &Reference, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file)?;
    let kinds = "MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding";
    for kind in kinds.split(' ') {
        has(&text, &[&format!("kind: {kind}\n")]);
    }
    let file = file.display().to_string();
    let (dry, strict) = ("--dry-run=server", "--validate=strict");
    let applied = reference.kubectl(&["apply", "--server-side", dry, strict, "-f", &file])?;
    assert_eq!(applied.lines().count(), 3, "{applied}");
    Ok(())
}
