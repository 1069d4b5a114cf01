//! A Helm release as the reference makes it when it installs an extension: objects that the extension controls, and a
//! release in Secrets, gzipped and cut into chunks. Made here after its description, not recorded.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::discovery::{self, Scope};
use kube::{Api, ResourceExt as _};
use olm_bundle::{RegistryV1, RenderOptions, render};
use olm_integration::package::Package;
use olm_kit::BundleImage;
use serde_json::{Value, json};

use crate::world::World;

/// An extension that the reference has installed.
pub(crate) struct Helm<'a> {
    package: &'a Package,
    uid: String,
    pub(crate) secrets: Api<Secret>,
}

pub(crate) struct Release {
    pub(crate) version: i64,
    pub(crate) status: &'static str,
    pub(crate) bundle_version: &'static str,
    pub(crate) objects: Vec<Value>,
    /// Bytes of a chunk.
    pub(crate) chunk: usize,
}

impl<'a> Helm<'a> {
    /// The extension exists, and is paused so that the controller ignores it for now.
    pub(crate) async fn new(world: &'a World) -> Result<Self> {
        world.pause(true).await?;
        Self::of_package(world).await
    }

    /// The extension exists, and no controller of olm-rs runs.
    pub(crate) async fn of_package(package: &'a Package) -> Result<Self> {
        let uid = package.extensions.get(&package.name).await?.uid().context("no UID")?;
        let secrets = Api::namespaced(package.client.clone(), olm_kit::SYSTEM_NAMESPACE);
        Ok(Self { package, uid, secrets })
    }

    /// What the reference makes of a bundle: rendered objects, owned and labelled.
    pub(crate) fn objects(&self, bundle: &BundleImage) -> Result<Vec<Value>> {
        let bundle = RegistryV1::from_files(bundle.files())?;
        let rendered = render(&bundle, &RenderOptions::new(&self.package.name))?;
        Ok(rendered
            .into_iter()
            .map(|mut object| {
                object.set_label("olm.operatorframework.io/owner-kind", "ClusterExtension");
                object.set_label("olm.operatorframework.io/owner-name", &self.package.name);
                let mut object = object.into_value();
                object["metadata"]["ownerReferences"] = json!([self.owner()]);
                object
            })
            .collect())
    }

    fn owner(&self) -> Value {
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": self.package.name, "uid": self.uid,
               "controller": true, "blockOwnerDeletion": true})
    }

    /// Creates the objects as Helm does.
    pub(crate) async fn create(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            let mut object: DynamicObject = serde_json::from_value(object.clone())?;
            object.labels_mut().insert("app.kubernetes.io/managed-by".into(), "Helm".into());
            let marks = [("release-name", &self.package.name), ("release-namespace", &self.package.name)];
            for (key, value) in marks {
                object.annotations_mut().insert(format!("meta.helm.sh/{key}"), value.clone());
            }
            let params = PostParams { dry_run: false, field_manager: Some("operator-controller".to_owned()) };
            self.api(&object).await?.create(&params, &object).await?;
        }
        Ok(())
    }

    async fn api(&self, object: &DynamicObject) -> Result<Api<DynamicObject>> {
        let client = self.package.client.clone();
        let types = object.types.as_ref().context("no kind")?;
        let (resource, capabilities) =
            discovery::oneshot::pinned_kind(&client, &GroupVersionKind::try_from(types)?).await?;
        Ok(match (&object.metadata.namespace, capabilities.scope) {
            (Some(namespace), Scope::Namespaced) => Api::namespaced_with(client, namespace, &resource),
            _ => Api::all_with(client, &resource),
        })
    }

    /// The objects as they are now.
    pub(crate) async fn live(&self, objects: &[Value]) -> Result<Vec<DynamicObject>> {
        let mut live = Vec::new();
        for object in objects {
            let object: DynamicObject = serde_json::from_value(object.clone())?;
            live.push(self.api(&object).await?.get(&object.name_any()).await?);
        }
        Ok(live)
    }

    /// The Secrets of a release, the index first.
    pub(crate) fn secrets_of(&self, release: &Release) -> Result<Vec<Secret>> {
        let name = &self.package.name;
        let manifest: String = release.objects.iter().map(|object| format!("---\n{object}\n")).collect();
        let version = release.bundle_version;
        let payload = json!({
            "name": name, "namespace": name, "version": release.version, "config": {}, "manifest": manifest,
            "info": {"status": release.status, "first_deployed": "2026-01-01T00:00:00Z", "description": "Install complete"},
            "chart": {"metadata": {"annotations": {"olm.properties": "[{\"type\":\"from.chart\",\"value\":1}]"}}, "templates": [], "files": []},
            "labels": {
                "olm.operatorframework.io/bundle-name": format!("{name}.v{version}"),
                "olm.operatorframework.io/package-name": name,
                "olm.operatorframework.io/bundle-version": version,
                "olm.operatorframework.io/bundle-reference": format!("registry.invalid/{name}:v{version}"),
            },
        });
        let payload = gzip(payload.to_string().as_bytes())?;
        let key = format!("sh.helm.release.v1.{name}.v{}", release.version);
        let labels = |type_: &str| {
            json!({"name": name, "owner": "operator-controller", "key": key, "type": type_,
                   "status": release.status, "version": release.version.to_string(), "createdAt": "1767225600"})
        };
        let mut chunks = payload.chunks(release.chunk);
        let first = chunks.next().unwrap_or_default();
        let further: Vec<(String, &[u8])> =
            chunks.enumerate().map(|(at, bytes)| (format!("{key}-chunk{at}"), bytes)).collect();
        let names: Vec<&String> = further.iter().map(|(name, _)| name).collect();
        let mut index = BTreeMap::from([("chunk".to_owned(), ByteString(first.to_vec()))]);
        if !names.is_empty() {
            index.insert("extraChunks".to_owned(), ByteString(serde_json::to_vec(&names)?));
        }
        let secret = |name: &str, labels: Value, type_: &str, data| -> Result<Secret> {
            let metadata = json!({"name": name, "labels": labels, "ownerReferences": [self.owner()]});
            let (metadata, type_) = (serde_json::from_value(metadata)?, Some(type_.to_owned()));
            Ok(Secret { metadata, type_, data: Some(data), ..Secret::default() })
        };
        let mut all = vec![secret(&key, labels("index"), "operatorframework.io/index.v1", index)?];
        for (name, bytes) in further {
            let data = BTreeMap::from([("chunk".to_owned(), ByteString(bytes.to_vec()))]);
            all.push(secret(&name, labels("chunk"), "operatorframework.io/chunk.v1", data)?);
        }
        Ok(all)
    }

    pub(crate) async fn store(&self, release: &Release) -> Result<()> {
        for secret in self.secrets_of(release)? {
            self.secrets.create(&PostParams::default(), &secret).await?;
        }
        Ok(())
    }

    /// How many Secrets of releases there are.
    pub(crate) async fn count(&self) -> Result<usize> {
        let ours =
            ListParams::default().labels(&format!("name={},owner=operator-controller", self.package.name));
        Ok(self.secrets.list_metadata(&ours).await?.items.len())
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}
