//! Collection, now and then, of images on disk that no CatalogSource and no InstallPlan uses any more, of bundles in memory, and of the
//! connections of catalogs that are gone. It runs whichever controllers do.
//!
//! No decision needs it; what is removed too early is pulled again. Rule: decision 53.

use std::convert::Infallible;
use std::time::Duration;

use olm_classic::catalog_source::{Backing, validate};
use olm_classic::install_plan::PlanPhase;
use tokio::time::MissedTickBehavior;

use crate::catalog::Catalogs;
use crate::cluster::Cluster;
use crate::image_source::ImagesInUse;
use crate::subscription::Unpacks;

/// The time between two collections, and how long an image stays that was in use.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(120);

/// Runs until it is dropped.
pub(crate) async fn run(cluster: &Cluster, catalogs: &Catalogs, unpacks: &Unpacks) -> Infallible {
    // until then every image may be in use
    cluster.wait_until_listed().await;
    let mut ticks = tokio::time::interval(GRACE_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        collect(cluster, catalogs, unpacks).await;
    }
}

async fn collect(cluster: &Cluster, catalogs: &Catalogs, unpacks: &Unpacks) {
    catalogs.evict_gone(&cluster.catalogs);
    unpacks.evict();
    catalogs.images().collect(in_use(cluster)).await;
}

/// The catalogs of all CatalogSources, and the bundles of InstallPlans that have not ended: their steps may need them.
fn in_use(cluster: &Cluster) -> ImagesInUse {
    let sources = cluster.catalogs.all();
    let catalogs = sources.iter().filter_map(|source| match validate(&source.spec) {
        Ok(Backing::Image(image)) => {
            Some((source.metadata.namespace.clone().unwrap_or_default(), image.to_owned()))
        }
        Ok(Backing::Address(_) | Backing::ConfigMap(_)) | Err(_) => None,
    });
    let plans = cluster.plans.all();
    let open = plans.iter().filter(|plan| PlanPhase::from_plan(plan).is_none_or(|it| !it.is_final()));
    let lookups = open.filter_map(|plan| plan.status.as_ref()).flat_map(|status| &status.bundle_lookups);
    ImagesInUse { catalogs: catalogs.collect(), bundles: lookups.map(|lookup| lookup.path.clone()).collect() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use olm_api::classic::CatalogSource;
    use olm_bundle::BundleLimits;
    use olm_runtime::watched::Object;
    use serde_json::json;

    use super::*;
    use crate::images::Images;
    use crate::testing::{Apiserver, put};

    /// As a process with other controllers only does, which read catalogs, too.
    #[tokio::test]
    async fn catalog_that_is_gone_is_released_without_its_controller() {
        let client = Apiserver::new(|_, _| (404, json!({}))).client();
        let (cluster, cache) = (Cluster::new(), tempfile::tempdir().unwrap());
        let limits = (olm_oci::Limits::bundle(), BundleLimits::default());
        let images = Images::open(client.clone(), cache.path(), olm_oci::Config::default(), limits).unwrap();
        let catalogs = Catalogs::new(&client, Arc::new(images));
        let unpacks = Unpacks::new(catalogs.images());
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let source = json!({"metadata": {"namespace": "ns", "name": "c"},
            "spec": {"sourceType": "grpc", "address": unused.to_string()}});
        let source: CatalogSource = serde_json::from_value(source).unwrap();
        assert!(catalogs.content(&Arc::new(source.clone())).await.is_err());
        cluster.catalogs.insert("ns/c".to_owned(), Object::new(source));
        collect(&cluster, &catalogs, &unpacks).await;
        assert!(catalogs.problem("ns/c").is_some());
        cluster.catalogs.remove(&"ns/c".to_owned());
        collect(&cluster, &catalogs, &unpacks).await;
        assert!(catalogs.problem("ns/c").is_none());
    }

    #[test]
    fn images_of_sources_and_open_plans_are_in_use() {
        let cluster = Cluster::new();
        for (name, spec) in [
            ("image", json!({"sourceType": "grpc", "image": "r.test/c:v1"})),
            ("address", json!({"sourceType": "grpc", "address": "r.test:50051"})),
            ("invalid", json!({"sourceType": "none", "image": "r.test/c:v2"})),
        ] {
            let source = json!({"metadata": {"name": name, "namespace": "ns"}, "spec": spec});
            put(&cluster.catalogs, source);
        }
        for (phase, image) in [("Installing", "b:1"), ("RequiresApproval", "b:2"), ("Complete", "b:3")] {
            let lookup = json!({"path": image, "identifier": "a.v1", "replaces": "", "properties": "",
                "catalogSourceRef": {"name": "image", "namespace": "ns"}});
            let status = json!({"phase": phase, "catalogSources": [], "bundleLookups": [lookup]});
            let spec = json!({"approval": "Manual", "approved": false, "clusterServiceVersionNames": []});
            let plan =
                json!({"metadata": {"name": phase, "namespace": "ns"}, "spec": spec, "status": status});
            put(&cluster.plans, plan);
        }
        let want = ImagesInUse {
            catalogs: [("ns".to_owned(), "r.test/c:v1".to_owned())].into(),
            bundles: ["b:1", "b:2"].map(str::to_owned).into(),
        };
        assert_eq!(in_use(&cluster), want);
    }
}
