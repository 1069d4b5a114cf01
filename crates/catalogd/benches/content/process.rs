//! The real catalogd as a process, and content put on disk for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use catalogd::store::{Served, Store};
use olm_kit::{Ca, Child};

use crate::api::Api;
use crate::catalog::Catalog;
use crate::ingest::store_layer;

/// A running catalogd.
#[derive(Debug)]
pub(crate) struct Catalogd {
    child: Child,
    pub(crate) content: SocketAddr,
    pub(crate) grpc: SocketAddr,
    health: SocketAddr,
    pub(crate) began: Instant,
}

impl Catalogd {
    /// Starts it; `dir` holds its cache and its log.
    pub(crate) fn start(api: &Api, dir: &Path) -> Result<Self> {
        let ca = Ca::shared()?;
        let identity = ca.server(&olm_kit::unique("catalogd"), &[])?;
        let port = || anyhow::Ok(SocketAddr::from(([127, 0, 0, 1], olm_kit::free_port()?)));
        let (content, health, grpc) = (port()?, port()?, port()?);
        let mut command = Command::new(env!("CARGO_BIN_EXE_catalogd"));
        command
            .arg("--cache-dir")
            .arg(dir.join("cache"))
            .arg("--kubeconfig")
            .arg(api.kubeconfig(dir)?)
            .arg(format!("--catalogs-server-addr={content}"))
            .arg(format!("--external-address={content}"))
            .arg(format!("--grpc-bind-address={grpc}"))
            .arg(format!("--health-probe-bind-address={health}"))
            .arg("--metrics-bind-address=0")
            .arg("--tls-cert")
            .arg(identity.certificate)
            .arg("--tls-key")
            .arg(identity.key)
            .arg("--pull-cas-dir")
            .arg(ca.dir())
            // as in the image
            .env("MALLOC_TRIM_THRESHOLD_", "131072");
        let began = Instant::now();
        let child = Child::spawn("catalogd", &mut command, &dir.join("catalogd.log"))?;
        Ok(Self { child, content, grpc, health, began })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Waits for `/readyz` to answer 200; returns how long after the start that was.
    pub(crate) fn wait_ready(&mut self) -> Result<Duration> {
        loop {
            if ready(self.health).unwrap_or(false) {
                return Ok(self.began.elapsed());
            }
            if self.began.elapsed() > Duration::from_secs(60) || self.child.exited().is_some() {
                bail!("not ready: {}", self.child.describe_end());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it as a pod is ended.
    pub(crate) fn stop(mut self) -> Result<()> {
        let ended = self.child.stop(Duration::from_secs(40));
        ensure!(ended.is_some_and(|status| status.success()), "{}", self.child.describe_end());
        Ok(())
    }
}

fn ready(address: SocketAddr) -> std::io::Result<bool> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    socket.read_exact(&mut head)?;
    Ok(&head == b"HTTP/1.1 200")
}

/// Puts content on disk as an earlier catalogd would have left it, and the catalog into the API.
pub(crate) fn preload(api: &Api, dir: &Path, named: &[(&str, &Catalog)]) -> Result<()> {
    let (store, _) = Store::open(&dir.join("cache"))?;
    for (name, catalog) in named {
        let (content, _lease) = store_layer(&store, &catalog.layer, &catalog.digest)?;
        store.compress(&content, &|| false)?;
        let reference = format!("registry.invalid/{name}@{}", catalog.digest);
        let served = Served {
            content,
            reference: reference.clone(),
            source: Some(reference.clone()),
            last_unpacked: 1_700_000_000,
        };
        store.publish(name, served)?;
        api.put(name, &reference);
    }
    Ok(())
}
