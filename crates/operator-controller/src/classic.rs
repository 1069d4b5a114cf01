//! Packages that OLM Classic installs: an extension that waits for one is reconciled when its ClusterServiceVersion changes.
//!
//! ClusterServiceVersions are watched while their kind exists. Nothing of them is remembered but which version belongs to which package; what
//! counts as installed is read when an extension is reconciled.

use std::task::Poll;

use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use olm_api::classic::ClusterServiceVersion;
use olm_install::dependencies::recorded_package;
use olm_runtime::watched::{self, Watched};

use crate::crds::Crds;

/// The name of the CustomResourceDefinition.
const DEFINITION: &str = "clusterserviceversions.operators.coreos.com";
/// Selects ClusterServiceVersions that are no copies.
const ORIGINALS: &str = "!olm.copiedFrom";

/// What is stored of a ClusterServiceVersion.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Installed {
    resource_version: Option<String>,
    package: Option<String>,
}

impl Installed {
    fn row(csv: PartialObjectMeta<DynamicObject>) -> (String, Self) {
        let (resource_version, package) = (csv.resource_version(), recorded_package(&csv));
        (watched::key(&csv.metadata), Self { resource_version, package })
    }
}

/// The package of each ClusterServiceVersion that appears, changes or goes, while the stream is polled.
pub(crate) fn packages(client: &Client, crds: &Crds) -> BoxStream<'static, String> {
    let kind = ApiResource::erase::<ClusterServiceVersion>(&());
    let csvs: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &kind);
    let changes = move || {
        let selected = watcher::Config::default().labels(ORIGINALS);
        let changes = Watched::default().follow(csvs.clone(), selected, Installed::row);
        changes.filter_map(async |change| change.latest()?.package.clone())
    };
    while_present(crds.presence(DEFINITION), changes).boxed()
}

/// The items of the stream that `open` gives, while the last item of `presence` is `true`.
fn while_present<S>(
    presence: impl Stream<Item = bool> + Send + 'static,
    open: impl Fn() -> S + Send + 'static,
) -> impl Stream<Item = S::Item> + Send
where
    S: Stream + Send + 'static,
{
    let mut presence = presence.boxed().fuse();
    let mut opened: Option<BoxStream<'static, S::Item>> = None;
    stream::poll_fn(move |context| {
        while let Poll::Ready(Some(is_present)) = presence.poll_next_unpin(context) {
            match (is_present, &opened) {
                (true, None) => opened = Some(open().boxed()),
                (true, Some(_)) => {}
                (false, _) => opened = None,
            }
        }
        match &mut opened {
            Some(opened) => opened.poll_next_unpin(context),
            None => Poll::Pending,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::FutureExt as _;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn classic_csv_is_stored_with_its_package() {
        let row = |annotations: serde_json::Value| {
            let csv = json!({"metadata": {"name": "p.v1", "namespace": "n", "resourceVersion": "7", "annotations": annotations}});
            Installed::row(serde_json::from_value(csv).unwrap())
        };
        let stored = |package: Option<&str>| {
            let package = package.map(str::to_owned);
            ("n/p.v1".to_owned(), Installed { resource_version: Some("7".to_owned()), package })
        };
        let properties = json!({"properties": [
            {"type": "olm.gvk", "value": {"group": "g", "version": "v1", "kind": "K"}},
            {"type": "olm.package", "value": {"packageName": "p", "version": "1.0.0"}},
        ]});
        let recorded = json!({"operatorframework.io/properties": properties.to_string()});
        assert_eq!(row(recorded), stored(Some("p")));
        for without in [json!({}), json!({"operatorframework.io/properties": "no JSON"})] {
            assert_eq!(row(without), stored(None));
        }
    }

    #[tokio::test]
    async fn classic_watch_runs_while_its_kind_is_present() {
        let (presence, mut receiver) = mpsc::unbounded_channel();
        let presences = stream::poll_fn(move |context| receiver.poll_recv(context));
        let opened = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&opened);
        let mut items = while_present(presences, move || {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            stream::iter([number]).chain(stream::pending())
        })
        .boxed();
        assert_eq!(items.next().now_or_never(), None);
        for (present, item) in
            [(false, None), (true, Some(Some(1))), (true, None), (false, None), (true, Some(Some(2)))]
        {
            presence.send(present).unwrap();
            assert_eq!(items.next().now_or_never(), item, "{present}");
        }
        assert_eq!(opened.load(Ordering::Relaxed), 2);
    }
}
