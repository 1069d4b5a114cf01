//! The controller of Subscriptions for tests, with images in memory, and what it reads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use olm_api::classic::CatalogSource;
use olm_core::Object;
use serde_json::{Value, json};

use super::{NAME, Solved, Subscriptions, Unpacks, metrics};
use crate::catalog::Catalogs;
use crate::cluster::Cluster;
use crate::image_source::{CatalogContent, FetchError, ImageSource};
use crate::testing::{self, Apiserver, put};

/// Images with one package each, which has the name of the image.
struct Registry;

struct Content {
    package: String,
    reads: AtomicU32,
}

impl ImageSource for Registry {
    fn catalog<'a>(
        &'a self,
        _: &'a CatalogSource,
        reference: &'a str,
    ) -> BoxFuture<'a, Result<Arc<dyn CatalogContent>, FetchError>> {
        let content = Content { package: reference.to_owned(), reads: AtomicU32::new(0) };
        async move { Ok(Arc::new(content) as Arc<dyn CatalogContent>) }.boxed()
    }

    fn bundle<'a>(
        &'a self,
        _: &'a CatalogSource,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Object>, FetchError>> {
        futures::future::pending().boxed()
    }
}

impl CatalogContent for Content {
    fn reference(&self) -> &str {
        &self.package
    }

    fn packages(&self) -> Vec<String> {
        vec![self.package.clone()]
    }

    /// That of `z` can be read once.
    fn package_lines(&self, package: &str) -> io::Result<Vec<u8>> {
        if self.reads.fetch_add(1, Ordering::Relaxed) > 0 && package == "z" {
            return Err(io::Error::other("disk full"));
        }
        let name = format!("{package}.v1");
        let property = json!({"type": "olm.package", "value": {"packageName": package, "version": "1.0.0"}});
        let lines = [
            json!({"schema": "olm.package", "name": package, "defaultChannel": "stable"}),
            json!({"schema": "olm.channel", "package": package, "name": "stable", "entries": [{"name": name}]}),
            json!({"schema": "olm.bundle", "package": package, "name": name, "image": "registry.test/bundle:v1",
                "properties": [property]}),
        ];
        Ok(lines.map(|line| format!("{line}\n")).concat().into_bytes())
    }
}

/// A cluster with an OperatorGroup and Subscriptions of these names in namespace `ns`. Each is to the package of its name in the catalog of
/// its name, and has this status.
pub(super) fn subscribed(names: &[&str], status: &Value) -> Arc<Cluster> {
    let cluster = Cluster::new();
    put(&cluster.groups, json!({"metadata": {"namespace": "ns", "name": "g"}, "spec": {}}));
    for name in names {
        let spec = json!({"name": name, "channel": "stable", "source": name, "sourceNamespace": "ns"});
        let metadata = json!({"namespace": "ns", "name": name});
        put(&cluster.subscriptions, json!({"metadata": metadata, "spec": spec, "status": status}));
    }
    cluster
}

/// The controller with the images of [`Registry`].
pub(super) fn subscriptions(apiserver: &Apiserver, cluster: &Arc<Cluster>) -> Subscriptions {
    let images: Arc<dyn ImageSource> = Arc::new(Registry);
    let context = testing::context(NAME, apiserver, cluster);
    Subscriptions {
        catalogs: Catalogs::new(&apiserver.client(), Arc::clone(&images)),
        unpacks: Unpacks::new(&images),
        solved: Solved::default(),
        recorded: metrics::register(&context.metrics, cluster),
        context,
    }
}
