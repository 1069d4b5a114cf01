//! A registry that holds one image, over TLS, and counts what it is asked for.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use olm_kit::image::sha256;
use parking_lot::Mutex;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The running registry.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    image: Arc<Image>,
}

#[derive(Debug)]
struct Image {
    manifest: Bytes,
    config: Bytes,
    layer: Bytes,
}

impl Registry {
    /// Serves a catalog image of one layer as `/cat:1`.
    pub(crate) async fn start(layer: &Path, layer_digest: &str) -> Result<Self> {
        let layer = Bytes::from(std::fs::read(layer)?);
        let labels = json!({"operators.operatorframework.io.index.configs.v1": "/configs"});
        let config = Bytes::from(
            json!({"architecture": olm_kit::image::host_architecture(), "os": "linux", "config": {"Labels": labels}, "rootfs": {"type": "layers", "diff_ids": []}})
                .to_string(),
        );
        let manifest = Bytes::from(
            json!({
                "schemaVersion": 2, "mediaType": MANIFEST,
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": sha256(&config), "size": config.len()},
                "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": layer_digest, "size": layer.len()}],
            })
            .to_string(),
        );
        let identity = olm_kit::Ca::shared()?.server(&olm_kit::unique("registry"), &[])?;
        let chain = CertificateDer::pem_file_iter(&identity.certificate)?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(&identity.key)?;
        let tls = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let image = Arc::new(Image { manifest, config, layer });
        let registry = Self { address: listener.local_addr()?, log: Arc::default(), image };
        let serving = registry.clone();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, registry) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = service_fn(move |request| {
                        let registry = registry.clone();
                        async move { Ok::<_, Infallible>(registry.respond(&request)) }
                    });
                    let serving = hyper::server::conn::http1::Builder::new();
                    // a client that goes away is no error
                    let _ = serving.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(registry)
    }

    /// Everything asked for since the last call.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock())
    }

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        self.log.lock().push(format!("{} {path}", request.method()));
        let Image { manifest, config, layer } = &*self.image;
        let digest = path.rsplit('/').next().unwrap_or_default();
        let (body, kind) = match path {
            _ if path.starts_with("/v2/cat/manifests/") => (manifest.clone(), MANIFEST),
            _ if digest == sha256(config) => (config.clone(), "application/octet-stream"),
            _ if path.starts_with("/v2/cat/blobs/") => (layer.clone(), "application/octet-stream"),
            _ => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        };
        let response = Response::builder()
            .header("content-type", kind)
            .header("content-length", body.len())
            .header("docker-content-digest", sha256(manifest));
        let body = if *request.method() == Method::HEAD { Bytes::new() } else { body };
        response.body(Full::new(body)).unwrap_or_default()
    }
}
