//! Images for the tests of catalogs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use olm_api::classic::CatalogSource;
use olm_core::Object;
use serde_json::{Value, json};

use super::Catalogs;
use crate::image_source::{CatalogContent, FetchError, ImageSource};
use crate::testing::Apiserver;

const REFUSED: &str = "connection refused";

/// An image that can be pulled unless the registry is out; then it may be in the cache.
#[derive(Default)]
pub(super) struct Registry {
    pub(super) is_out: AtomicBool,
    pub(super) is_cached: bool,
    /// What it has is rejected, while it is out.
    pub(super) is_final: bool,
    /// A pull takes a minute.
    pub(super) is_slow: AtomicBool,
    pub(super) packages: Vec<String>,
    /// Of a bundle of each package. None: its lines cannot be read.
    pub(super) bytes: usize,
    /// Of the index.
    pub(super) memory: usize,
    pub(super) pulls: AtomicU64,
    pub(super) updates: AtomicU64,
    /// A list of its packages does not end.
    pub(super) is_held: Arc<AtomicBool>,
    pub(super) lists: Arc<AtomicU64>,
    pub(super) reads: Arc<AtomicU64>,
}

struct Content {
    reference: String,
    problem: Option<&'static str>,
    packages: Vec<String>,
    bytes: usize,
    memory: usize,
    is_held: Arc<AtomicBool>,
    lists: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
}

impl ImageSource for Registry {
    fn catalog<'a>(
        &'a self,
        _: &'a CatalogSource,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>> {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        let is_out = self.is_out.load(Ordering::Relaxed);
        let content = Content {
            reference: format!("registry.test/c@sha256:{}", 1 + self.updates.load(Ordering::Relaxed)),
            problem: is_out.then_some(REFUSED),
            packages: self.packages.clone(),
            bytes: self.bytes,
            memory: self.memory,
            is_held: Arc::clone(&self.is_held),
            lists: Arc::clone(&self.lists),
            reads: Arc::clone(&self.reads),
        };
        let pulled = match is_out && !self.is_cached {
            true => Err(FetchError { message: REFUSED.to_owned(), is_final: self.is_final }),
            false => Ok(Arc::new(content) as Arc<dyn CatalogContent>),
        };
        if !self.is_slow.load(Ordering::Relaxed) {
            return std::future::ready(pulled).boxed();
        }
        tokio::time::sleep(Duration::from_secs(60)).map(|()| pulled).boxed()
    }

    fn bundle<'a>(
        &'a self,
        _: &'a CatalogSource,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

impl CatalogContent for Content {
    fn reference(&self) -> &str {
        &self.reference
    }

    fn problem(&self) -> Option<&str> {
        self.problem
    }

    fn memory(&self) -> usize {
        self.memory
    }

    fn packages(&self) -> Vec<String> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        while self.is_held.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.packages.clone()
    }

    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if self.bytes == 0 {
            return Err(io::Error::other("disk full"));
        }
        Ok(package_lines(package, self.bytes))
    }
}

/// A package with a bundle that has a property of so many bytes.
pub(super) fn package_lines(package: &str, bytes: usize) -> Vec<u8> {
    let property = json!({"type": "t", "value": "x".repeat(bytes)});
    let lines = [
        json!({"schema": "olm.package", "name": package, "defaultChannel": "a"}),
        json!({"schema": "olm.bundle", "package": package, "name": "p.v1", "image": "i", "properties": [property]}),
    ];
    lines.map(|line| format!("{line}\n")).concat().into_bytes()
}

pub(super) fn source(spec: Value) -> Arc<CatalogSource> {
    let value = json!({"metadata": {"namespace": "ns", "name": "c"}, "spec": spec});
    Arc::new(serde_json::from_value(value).unwrap())
}

/// Catalogs with the images of a registry, and a CatalogSource that names one.
pub(super) fn image_catalogs(registry: &Arc<Registry>) -> (Arc<Catalogs>, Arc<CatalogSource>) {
    let apiserver = Apiserver::new(|_, _| (404, json!({})));
    let catalogs = Catalogs::new(&apiserver.client(), Arc::clone(registry) as Arc<dyn ImageSource>);
    (catalogs, source(json!({"sourceType": "grpc", "image": "registry.test/c:v1"})))
}
