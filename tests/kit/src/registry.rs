//! A real OCI registry (distribution) on loopback with TLS, and pushing to it.
//!
//! Repositories are created by pushing; tests that share a registry use repositories of their own ([`crate::unique`]).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use http::{Method, StatusCode};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::image::{Defect, Image, Index, OCI_INDEX, sha256};
use crate::{Ca, Child, RunDir, Tools, eventually, free_port, pki};

/// The user of a registry with basic authentication.
pub const USER: &str = "kit";
/// That user's password.
pub const PASSWORD: &str = "kit-secret";
const HTPASSWD: &str = "kit:$2a$04$sPoxmus9Dl4AiAVNoOBB9.zqqRFjJevqttEIyEnFm4my6OYEEXha.\n";

/// A running registry; dropping it stops it and removes its content.
#[derive(Debug)]
pub struct Registry {
    /// absent when another process runs it
    server: Option<Server>,
    address: String,
    client: reqwest::Client,
    auth: bool,
    dir: PathBuf,
    _temporary: Option<RunDir>,
}

#[derive(Debug)]
struct Server {
    child: Child,
    command: Command,
}

/// What a push made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// `127.0.0.1:<port>/<repository>`
    pub repository: String,
    pub tag: String,
    /// `sha256:…` of the manifest (of the index when one was pushed)
    pub digest: String,
}

impl Pushed {
    /// `<repository>:<tag>`
    pub fn by_tag(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// `<repository>@<digest>`
    pub fn by_digest(&self) -> String {
        format!("{}@{}", self.repository, self.digest)
    }
}

impl Registry {
    /// The registry of this test program, started at first use, ended with the program.
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<Registry> = OnceCell::const_new();
        SHARED.get_or_try_init(Self::start).await
    }

    /// A registry of one's own, open to everybody.
    pub async fn start() -> Result<Self> {
        Self::launch(Ca::shared()?, None, false).await
    }

    /// A registry that wants [`USER`] and [`PASSWORD`].
    pub async fn start_with_auth() -> Result<Self> {
        Self::launch(Ca::shared()?, None, true).await
    }

    /// With a certificate of `ca`, in `dir` (a temporary folder when absent), with basic authentication or without.
    pub async fn launch(ca: &Ca, dir: Option<&Path>, auth: bool) -> Result<Self> {
        let (dir, temporary) = match dir {
            Some(dir) => (dir.to_owned(), None),
            None => {
                let own = RunDir::new("registry")?;
                (own.path().to_owned(), Some(own))
            }
        };
        let client = ca.http_client()?;
        let mut tries = 0;
        let (server, address) = loop {
            let address = format!("127.0.0.1:{}", free_port()?);
            let mut command = serve(ca, &dir, &address, auth)?;
            let mut child = spawn(&mut command, &dir)?;
            match wait_serving(&client, &address, &mut child).await {
                Ok(()) => break (Server { child, command }, address),
                // the port was taken in between
                Err(_) if tries < 2 && child.log_text().contains("address already in use") => tries += 1,
                Err(problem) => return Err(problem),
            }
        };
        Ok(Self { server: Some(server), address, client, auth, dir, _temporary: temporary })
    }

    /// With a certificate of `ca`, in `dir`, at `address`, open to everybody.
    pub(crate) async fn launch_at(ca: &Ca, dir: &Path, address: &str) -> Result<Self> {
        let client = ca.http_client()?;
        let mut command = serve(ca, dir, address, false)?;
        let mut child = spawn(&mut command, dir)?;
        wait_serving(&client, address, &mut child).await?;
        let (server, address) = (Some(Server { child, command }), address.to_owned());
        Ok(Self { server, address, client, auth: false, dir: dir.to_owned(), _temporary: None })
    }

    /// The registry that another process runs in `dir` at `address`, open to everybody, with a certificate of the authority in the
    /// file `ca`.
    pub fn attach(address: &str, dir: &Path, ca: &Path) -> Result<Self> {
        let pem = std::fs::read(ca).with_context(|| format!("cannot read {}", ca.display()))?;
        let (client, address) = (pki::http_client(&pem)?, address.to_owned());
        Ok(Self { server: None, address, client, auth: false, dir: dir.to_owned(), _temporary: None })
    }

    /// `127.0.0.1:<port>`, the first part of image references.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The program, when it is ours.
    pub fn child(&mut self) -> Result<&mut Child> {
        Ok(&mut self.server.as_mut().context("another process runs the registry")?.child)
    }

    /// Starts a killed registry again, at the same address and with its content.
    pub async fn start_again(&mut self) -> Result<()> {
        let server = self.server.as_mut().context("another process runs the registry")?;
        server.child = spawn(&mut server.command, &self.dir)?;
        wait_serving(&self.client, &self.address, &mut server.child).await
    }

    /// A docker `config.json` (or a Secret of type kubernetes.io/dockerconfigjson) that logs in here.
    pub fn docker_config(&self) -> String {
        let auth = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
        serde_json::json!({"auths": {&self.address: {"auth": auth}}}).to_string()
    }

    /// Pushes `image` to `repository` under `tag`.
    pub async fn push(&self, repository: &str, tag: &str, image: &Image) -> Result<Pushed> {
        let built = image.build()?;
        for blob in &built.blobs {
            self.put_blob(repository, blob).await?;
        }
        self.put_manifest(repository, tag, built.media_type, &built.manifest).await?;
        if let Some(fault) = image.stored_fault() {
            for layer in &built.layers {
                self.damage(layer, fault)?;
            }
        }
        Ok(self.pushed(repository, tag, &built.manifest))
    }

    /// Pushes an index and the images that it lists.
    pub async fn push_index(&self, repository: &str, tag: &str, index: &Index) -> Result<Pushed> {
        for image in index.images() {
            let built = image.build()?;
            for blob in &built.blobs {
                self.put_blob(repository, blob).await?;
            }
            self.put_manifest(repository, &sha256(&built.manifest), built.media_type, &built.manifest)
                .await?;
        }
        let manifest = index.manifest()?;
        self.put_manifest(repository, tag, OCI_INDEX, &manifest).await?;
        Ok(self.pushed(repository, tag, &manifest))
    }

    /// Pushes an OCI image layout, as `make images` leaves it in a folder: everything that its first manifest refers to.
    pub async fn push_layout(&self, repository: &str, tag: &str, layout: &Path) -> Result<Pushed> {
        let read = |digest: &str| {
            let path = layout.join("blobs").join(digest.replace(':', "/"));
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let index = layout.join("index.json");
        let index = std::fs::read(&index).with_context(|| format!("cannot read {}", index.display()))?;
        let index: Value = serde_json::from_slice(&index)?;
        let top = text(&index["manifests"][0]["digest"]);
        // parents first; pushed the other way round
        let (mut open, mut manifests) = (vec![index["manifests"][0].clone()], Vec::new());
        while let Some(entry) = open.pop() {
            let body = read(&text(&entry["digest"]))?;
            let manifest: Value = serde_json::from_slice(&body)?;
            open.extend(manifest["manifests"].as_array().into_iter().flatten().cloned());
            for blob in manifest["layers"].as_array().into_iter().flatten().chain(manifest.get("config")) {
                self.put_blob(repository, &read(&text(&blob["digest"]))?).await?;
            }
            manifests.push((text(&entry["digest"]), text(&entry["mediaType"]), body));
        }
        for (digest, media_type, body) in manifests.iter().rev() {
            let reference = if *digest == top { tag } else { digest };
            self.put_manifest(repository, reference, media_type, body).await?;
        }
        Ok(Pushed { repository: format!("{}/{repository}", self.address), tag: tag.to_owned(), digest: top })
    }

    /// Lets `tag` point to what was pushed before.
    pub async fn retag(&self, pushed: &Pushed, tag: &str) -> Result<Pushed> {
        let repository = self.repository_name(pushed)?;
        let path = format!("/v2/{repository}/manifests/{}", pushed.digest);
        let accept = [OCI_INDEX, crate::image::OCI_MANIFEST, crate::image::DOCKER_MANIFEST].join(", ");
        let mut headers = HeaderMap::new();
        headers.insert(http::header::ACCEPT, HeaderValue::from_str(&accept)?);
        let (headers, body) = self.request(Method::GET, &path, headers, Vec::new(), StatusCode::OK).await?;
        let media_type = headers.get(CONTENT_TYPE).context("no media type")?.to_str()?.to_owned();
        self.put_manifest(repository, tag, &media_type, &body).await?;
        Ok(Pushed { tag: tag.to_owned(), ..pushed.clone() })
    }

    /// Deletes the manifest (all tags that point to it).
    pub async fn delete(&self, pushed: &Pushed) -> Result<()> {
        let path = format!("/v2/{}/manifests/{}", self.repository_name(pushed)?, pushed.digest);
        self.request(Method::DELETE, &path, HeaderMap::new(), Vec::new(), StatusCode::ACCEPTED).await?;
        Ok(())
    }

    pub(crate) fn repository_name<'a>(&self, pushed: &'a Pushed) -> Result<&'a str> {
        let prefix = format!("{}/", self.address);
        pushed.repository.strip_prefix(&prefix).with_context(|| format!("{} is elsewhere", pushed.repository))
    }

    fn pushed(&self, repository: &str, tag: &str, manifest: &[u8]) -> Pushed {
        Pushed {
            repository: format!("{}/{repository}", self.address),
            tag: tag.to_owned(),
            digest: sha256(manifest),
        }
    }

    pub(crate) async fn put_blob(&self, repository: &str, blob: &[u8]) -> Result<()> {
        let digest = sha256(blob);
        let start = format!("/v2/{repository}/blobs/uploads/");
        let (headers, _) =
            self.request(Method::POST, &start, HeaderMap::new(), Vec::new(), StatusCode::ACCEPTED).await?;
        let location = headers.get(LOCATION).context("the registry gave no upload location")?.to_str()?;
        let path = match location.strip_prefix("https://") {
            Some(rest) => rest.find('/').map_or(location, |at| &rest[at..]),
            None => location,
        };
        let path = format!("{path}{}digest={digest}", if path.contains('?') { '&' } else { '?' });
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        self.request(Method::PUT, &path, headers, blob.to_vec(), StatusCode::CREATED).await?;
        Ok(())
    }

    pub(crate) async fn put_manifest(
        &self,
        repository: &str,
        reference: &str,
        media_type: &str,
        body: &[u8],
    ) -> Result<()> {
        let path = format!("/v2/{repository}/manifests/{reference}");
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(media_type)?);
        self.request(Method::PUT, &path, headers, body.to_vec(), StatusCode::CREATED).await?;
        Ok(())
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Vec<u8>,
        expected: StatusCode,
    ) -> Result<(HeaderMap, Vec<u8>)> {
        if self.auth {
            let user = base64::engine::general_purpose::STANDARD.encode(format!("{USER}:{PASSWORD}"));
            headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Basic {user}"))?);
        }
        let url = format!("https://{}{path}", self.address);
        let answer = self.client.request(method.clone(), &url).headers(headers).body(body).send().await?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await?.to_vec();
        if status != expected {
            bail!("registry: {method} {path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok((headers, body))
    }

    /// Damages a blob in the registry's storage, as a broken disk would.
    fn damage(&self, blob: &[u8], fault: Defect) -> Result<()> {
        let digest = sha256(blob);
        let hex = digest.trim_start_matches("sha256:");
        let path =
            self.dir.join("content/docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data");
        match fault {
            Defect::MissingBlob => std::fs::remove_file(&path)?,
            _ => {
                let mut bytes = std::fs::read(&path)?;
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0xff;
                std::fs::write(&path, bytes)?;
            }
        }
        Ok(())
    }
}

fn serve(ca: &Ca, dir: &Path, address: &str, auth: bool) -> Result<Command> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let names: Vec<&str> = Some(host).filter(|it| *it != "127.0.0.1").into_iter().collect();
    let identity = ca.server(&crate::unique("registry"), &names)?;
    let mut config = serde_json::json!({
        "version": "0.1", "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": dir.join("content")}, "delete": {"enabled": true}},
        "http": {"addr": address, "tls": {"certificate": identity.certificate, "key": identity.key}},
    });
    if auth {
        let passwords = dir.join("htpasswd");
        pki::write(&passwords, HTPASSWD)?;
        config["auth"] = serde_json::json!({"htpasswd": {"realm": "olm-kit", "path": passwords}});
    }
    let file = dir.join("config.yml");
    pki::write(&file, &config.to_string())?;
    let mut command = Tools::locate()?.command("registry")?;
    command.arg("serve").arg(&file).env("OTEL_TRACES_EXPORTER", "none");
    Ok(command)
}

fn spawn(command: &mut Command, dir: &Path) -> Result<Child> {
    Child::spawn("registry", command, &dir.join("registry.log"))
}

async fn wait_serving(client: &reqwest::Client, address: &str, child: &mut Child) -> Result<()> {
    let url = format!("https://{address}/v2/");
    let ended = std::sync::atomic::AtomicBool::new(false);
    let child = parking_lot::Mutex::new(child);
    let answered = eventually("the registry answers", Duration::from_secs(30), || async {
        if child.lock().exited().is_some() {
            ended.store(true, std::sync::atomic::Ordering::Relaxed);
            return Ok(());
        }
        client.get(&url).send().await?;
        Ok(())
    })
    .await;
    let child = child.into_inner();
    if ended.into_inner() {
        bail!("{}", child.describe_end());
    }
    answered.with_context(|| child.describe_end())
}
