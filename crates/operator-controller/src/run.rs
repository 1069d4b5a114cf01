//! The process: what is started in which order, and how it ends. Rule: operator-controller §7.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use kube::Client;
use olm_bundle::Gates;
use olm_catalog::{PackageStore, package_store};
use olm_certificates::{MetricsServer, PublishedCa};
use olm_install::BundleFetcher;
use olm_install::preflight;
use olm_install::render::RenderSettings;
use olm_install::resolution;
use olm_oci::{Config, Puller, SharedKeyring, Store};
use olm_resolver::{Environment, ReleaseField};
use olm_runtime::controller::Workers;
use olm_runtime::foreign;
use olm_runtime::health;
use olm_runtime::leader::{self, Election};
use olm_runtime::metrics::Metrics;
use olm_runtime::pull_secrets::NamespacedName;
use olm_runtime::tls::{self, TlsSettings};
use olm_runtime::{FeatureGates, Shutdown, client, listen, serve, shutdown, task};

use crate::args::{CERT_MANAGER, DEPLOYMENT_CONFIG, RELEASE, SERVICE_CA, SINGLE_OWN, ServeArgs};
use crate::bundles::RegistryBundles;
use crate::catalogs::Catalogd;
use crate::certificates::provider::Issuers;
use crate::controllers::{self, Content};
use crate::credentials::PullSecrets;
use crate::extension::context::Settings;
use crate::{catalogs, extension};

const LEASE: &str = "9c4404e7.operatorframework.io";
/// The address of metrics when no other is set and there is a certificate.
const METRICS_ADDRESS: &str = ":8443";
/// A failed fetch from catalogd is answered from the cache for a little less than this.
const FAILURE_CACHE_TIME: Duration = Duration::from_secs(2);
/// The Service in front of the metrics, for a self-issued certificate.
const SERVICE: &str = "operator-controller-service";

/// Controls until a signal asks to stop.
///
/// # Errors
/// When the settings cannot be used, or the lease is lost.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let gates = args.gates()?;
    let metrics_address = args.run.metrics_address(METRICS_ADDRESS)?;
    let tls_settings = args.run.tls.settings()?;
    let pull_secret = args.pull.pull_secret()?;
    args.run.logs.init()?;
    tls::install_provider();
    gates.log();
    let stop = shutdown::on_signal().context("cannot install signal handlers")?;
    let metrics = Metrics::new();
    let client = client::connect(args.run.kubeconfig(), &metrics).await?;

    let mut parts = tokio::task::JoinSet::new();
    let namespace = args.run.system_namespace();
    let observed = MetricsServer {
        serving: args.run.tls.serving()?,
        settings: tls_settings.clone(),
        address: metrics_address.as_deref(),
        profiles: &args.run.pprof_bind_address,
        namespace: &namespace,
        service: SERVICE,
    };
    if let Some(shown) = observed.listen(&client, &metrics, &stop).await? {
        parts.spawn(task::supervised("metrics server", shown));
    }
    // after the listener of the metrics, so that a ready process answers there too
    if let Some(listener) = listen::optional(&args.run.health_probe_bind_address).await? {
        let probes = serve::http(listener, health::router([]), serve::Limits::default(), stop.clone());
        parts.spawn(task::supervised("health server", probes));
    }
    let published = args.catalogd_ca_config_map().map(|name| PublishedCa::new(&namespace, name));
    if let Some(published) = &published {
        let watched = Arc::clone(published).watch(client.clone(), stop.clone());
        parts.spawn(task::supervised("watch of the CA of catalogd", watched));
    }

    let election = args.run.leader_elect.then(|| Election::new(LEASE, namespace));
    if let Some(election) = &election {
        foreign::check(&client, election, args.run.foreign_olm, &stop).await?;
    }
    let writing = match &election {
        Some(election) => election.connect(args.run.kubeconfig(), &metrics).await?,
        None => client.clone(),
    };
    let work =
        controllers(&args, &gates, (tls_settings, published), pull_secret, writing, &metrics, stop.clone())
            .await?;
    let outcome = leader::lead(client, election, &metrics, &stop, work).await;
    stop.cancel();
    while parts.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(outcome?)
}

/// Everything that writes to the cluster, as one future, with bundles from registries and catalogs from catalogd.
async fn controllers(
    args: &ServeArgs,
    gates: &FeatureGates,
    (tls_settings, published): (TlsSettings, Option<Arc<PublishedCa>>),
    pull_secret: Option<NamespacedName>,
    client: Client,
    metrics: &Metrics,
    stop: Shutdown,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let keyring = SharedKeyring::default();
    let verdicts = args.cache_path.join("verified-signatures");
    let config = Config::of_program(keyring.clone(), args.pull.signature_policy(), verdicts);
    let puller = Puller::new(config.with_certificates(args.pull.cas_dir()));
    puller.check_policy()?;
    let cache = args.cache_path.join("bundles");
    let store = tokio::task::spawn_blocking(move || Store::open(&cache)).await??;
    let secrets =
        PullSecrets::new(client.clone(), pull_secret, olm_runtime::pull_secrets::own_account(), keyring);
    let render = RenderSettings {
        gates: Gates {
            single_own_namespace: gates.enabled(SINGLE_OWN),
            deployment_config: gates.enabled(DEPLOYMENT_CONFIG),
        },
        preference: args.webhook_cert_provider,
        user_roles: args.user_roles,
        issuers: Issuers { cert_manager: gates.enabled(CERT_MANAGER), service_ca: gates.enabled(SERVICE_CA) },
    };
    let settings = Settings {
        system_namespace: args.run.system_namespace(),
        service_account_mode: args.service_account_mode,
        render,
        resolution: resolution::Settings {
            separate_release: gates.enabled(RELEASE),
            major_updates: args.major_updates,
            environment: Environment { constraints: args.environment_constraints, ..Environment::default() },
        },
        dependency_check: args.dependency_check,
        preflight: preflight::Settings { existing_objects: args.validate_existing_custom_resources },
        intervals: args.run.test_intervals,
    };
    let trust_changed = published.as_ref().map(|published| published.changes());
    let trust = stream::iter(trust_changed).flatten().then(|()| tokio::time::sleep(FAILURE_CACHE_TIME));
    let packages = Catalogd {
        client: catalogs::client::factory(args.catalogd_cas_dir(), published, tls_settings),
        release: if settings.resolution.separate_release {
            ReleaseField::Counts
        } else {
            ReleaseField::Ignored
        },
        store: PackageStore::new(&args.cache_path.join("packages"), package_store::DEFAULT_BYTES),
    };
    let workers = Workers::new(extension::WORKERS, stop.clone());
    let (image_limits, bundle_limits) = args.limits()?;
    let fetcher = BundleFetcher::new(puller, store).with_limits(image_limits, bundle_limits).quarantining();
    let bundles = RegistryBundles::new(client.clone(), fetcher, secrets, render, Arc::clone(&workers));
    let content =
        Content { bundles: Box::new(bundles), packages: Box::new(packages), trust: trust.boxed(), workers };
    Ok(controllers::run(client, content, settings, metrics, stop))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use clap::Parser as _;
    use olm_api::labels;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::args::Cli;
    use crate::testing::apiserver;
    use crate::{certificates, objectset};

    fn extension() -> Value {
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "e", "uid": "u1", "resourceVersion": "1", "generation": 1},
            "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": "p"}}},
        })
    }

    fn owners() -> Value {
        json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "e", "uid": "u1", "controller": true}])
    }

    fn revision() -> Value {
        json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {
                "name": "e-1", "uid": "u2", "resourceVersion": "2", "generation": 1, "ownerReferences": owners(),
                "labels": {(labels::OWNER_NAME): "e"},
            },
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
        })
    }

    /// Of a webhook that the revision does not have any more.
    fn certificate() -> Value {
        let labels = json!({(labels::OWNER_NAME): "e", (labels::WEBHOOK_CERTIFICATE): labels::WEBHOOK_CERTIFICATE_BUILT_IN});
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "c", "namespace": "n", "uid": "u3", "resourceVersion": "3", "ownerReferences": owners(), "labels": labels},
        })
    }

    /// What each controller writes first.
    const WRITES: [(&str, &str); 3] = [
        (extension::NAME, "/apis/olm.operatorframework.io/v1/clusterextensions/e"),
        (objectset::NAME, "/apis/olm.operatorframework.io/v1/clusterobjectsets/e-1"),
        (certificates::NAME, "/api/v1/namespaces/n/secrets/c"),
    ];

    /// All controllers, in a cluster in which each has something to write.
    async fn all<F>(
        metrics: &Metrics,
        written: impl Fn(String) -> F + Clone + Send + Sync + 'static,
    ) -> impl Future<Output = ()>
    where
        F: Future<Output = Value> + Send + 'static,
    {
        tls::install_provider();
        let cache = tempfile::tempdir().unwrap();
        let cache_path = cache.path().to_str().unwrap();
        let args = ["operator-controller", "--system-namespace=olm", "--cache-path", cache_path];
        let args = Cli::try_parse_from(args).unwrap().serve;
        let (gates, settings) = (args.gates().unwrap(), args.run.tls.settings().unwrap());
        let objects = vec![
            ("clusterextensions", extension()),
            ("clusterobjectsets", revision()),
            ("secrets", certificate()),
        ];
        let client = apiserver(objects, written);
        let stop = Shutdown::new();
        let running =
            controllers(&args, &gates, (settings, None), None, client, metrics, stop).await.unwrap();
        async move {
            running.await;
            drop(cache);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pass_that_panics_is_retried_within_seconds() {
        let writes: Arc<Mutex<HashMap<String, Vec<Instant>>>> = Arc::default();
        let (metrics, record) = (Metrics::new(), Arc::clone(&writes));
        let running = all(&metrics, move |path| {
            record.lock().entry(path).or_default().push(Instant::now());
            async { panic!("a defect") }
        });
        let _ = tokio::time::timeout(Duration::from_secs(40), running.await).await;
        let (writes, metrics) = (writes.lock(), metrics.classic());
        for (controller, path) in WRITES {
            let waits: Vec<u64> = writes[path].windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
            assert_eq!(waits, [1, 2, 4, 8, 10, 10], "{controller}");
            let counted =
                format!("controller_runtime_reconcile_panics_total{{controller=\"{controller}\"}} 7\n");
            assert!(metrics.contains(&counted), "{counted} in\n{metrics}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn passes_are_aborted_when_the_lease_is_lost() {
        let (metrics, held) = (Metrics::new(), Arc::new(Mutex::new(Vec::new())));
        let hold = Arc::clone(&held);
        let running = all(&metrics, move |path| {
            let held = Arc::clone(&hold);
            async move {
                held.lock().push(path);
                std::future::pending().await
            }
        });
        // the lease is lost while each of them waits for an answer
        assert!(tokio::time::timeout(Duration::from_secs(10), running.await).await.is_err());
        for (controller, path) in WRITES {
            assert!(held.lock().iter().any(|held| held == path), "{controller}");
        }
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 1, "a pass still runs");
    }
}
