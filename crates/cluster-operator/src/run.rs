//! The process: what is started in which order, and how it ends.

use std::sync::Arc;

use anyhow::Context as _;
use kube::Client;
use olm_runtime::args::service_names;
use olm_runtime::events::Events;
use olm_runtime::health::Health;
use olm_runtime::leader::{self, Election, Timing};
use olm_runtime::metrics::{KubeReviews, Metrics};
use olm_runtime::tls::{self, TlsSettings};
use olm_runtime::{Shutdown, client, listen, serve, shutdown};

use crate::args::ServeArgs;
use crate::controller::{self, Context};
use crate::version::{Current, Given};

/// The lease of the leader.
const LEASE: &str = "cluster-operator.operatorframework.io";
/// Where metrics are served when nothing else is said and there is a certificate.
const METRICS_ADDRESS: &str = ":8443";
/// The Service that a self-issued certificate is for.
const SERVICE: &str = "cluster-operator-service";

/// Reports until a signal asks to stop.
///
/// # Errors
/// When the settings cannot be used, or the lease is lost.
pub async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.run.feature_gates(&[])?;
    let metrics_address = args.run.metrics_address(METRICS_ADDRESS)?;
    let tls_settings = args.run.tls.settings()?;
    args.run.logs.init()?;
    tls::install_provider();
    let stop = shutdown::on_signal().context("cannot install signal handlers")?;
    let metrics = Metrics::new();
    let client = client::connect(args.run.kubeconfig(), &metrics).await?;

    let mut parts = tokio::task::JoinSet::new();
    if !listen::is_off(&args.run.health_probe_bind_address) {
        let listener = listen::bind(&args.run.health_probe_bind_address).await?;
        let probes = serve::http(listener, Health::new().router(), serve::Limits::default(), stop.clone());
        parts.spawn(ended("health", probes));
    }
    let namespace = args.run.system_namespace();
    match (args.run.tls.serving()?, metrics_address) {
        (Some(serving), Some(address)) => {
            let certificate = serving
                .open(&client, &namespace, service_names(SERVICE, &namespace))
                .context("failed to initialize certificate watcher")?;
            let listener = listen::bind(&address).await?;
            let shown = show_metrics(
                certificate,
                tls_settings,
                listener,
                client.clone(),
                metrics.clone(),
                stop.clone(),
            );
            parts.spawn(shown);
        }
        _ => tracing::warn!("metrics are not served: no certificate is given and none is self-issued"),
    }

    let outcome = led(&args, client, &metrics, &stop).await;
    stop.cancel();
    while parts.join_next().await.is_some() {}
    tracing::info!("stopped");
    outcome
}

/// Reports, as the leader if that is asked for.
async fn led(args: &ServeArgs, client: Client, metrics: &Metrics, stop: &Shutdown) -> anyhow::Result<()> {
    let work = controller::run(context(args, client.clone(), metrics), metrics, stop.clone());
    if !args.run.leader_elect {
        work.await;
        return Ok(());
    }
    let election = Election {
        name: LEASE.to_owned(),
        namespace: args.run.system_namespace(),
        identity: leader::identity(),
        timing: Timing::default(),
    };
    let Some(leadership) = leader::acquire(client, election, metrics, stop).await else { return Ok(()) };
    let lost = tokio::select! {
        () = work => false,
        () = leadership.lost().cancelled() => true,
    };
    if lost {
        // another leader may write already: nothing is finished here
        return Err(anyhow::anyhow!("leader election lost"));
    }
    leadership.release().await;
    Ok(())
}

fn context(args: &ServeArgs, client: Client, metrics: &Metrics) -> Context {
    let set = |name: &str| std::env::var(name).unwrap_or_default();
    let given = Given {
        flag: args.openshift_version.clone(),
        image_version: set("OPERATOR_IMAGE_VERSION"),
        release_version: set("RELEASE_VERSION"),
    };
    match given.current(None) {
        Current::Known { version, .. } => tracing::info!(version, "the version of OpenShift is set"),
        Current::Unknown(why) if given.is_fixed() => tracing::error!(why, "Upgradeable stays Unknown"),
        Current::Unknown(_) => tracing::info!("the version of OpenShift is that of ClusterVersion version"),
    }
    Context {
        events: Events::new(client.clone(), controller::NAME, Some(leader::identity())).counted(metrics),
        client,
        namespace: args.run.system_namespace(),
        deployments: args.deployments(),
        given,
        manage: args.manage,
    }
}

/// Serves metrics once there is a certificate.
async fn show_metrics(
    certificate: tls::Source,
    settings: TlsSettings,
    listener: tokio::net::TcpListener,
    client: Client,
    metrics: Metrics,
    stop: Shutdown,
) {
    let (pair, keeping) = match certificate.pair(&stop).await {
        Ok(Some(found)) => found,
        Ok(None) => return,
        Err(error) => return tracing::error!(%error, "metrics are not served: there is no certificate"),
    };
    metrics.watch_pair(Arc::clone(&pair));
    let config = match tls::server_config(pair, &settings) {
        Ok(config) => config,
        Err(error) => {
            return tracing::error!(error = olm_runtime::error_text::chain(&error), "metrics are not served");
        }
    };
    let router = olm_runtime::metrics::router(metrics, KubeReviews(client));
    let serving = serve::https(listener, router, config, serve::Limits::default(), stop);
    tokio::join!(ended("metrics", serving), keeping);
}

async fn ended(name: &'static str, server: impl Future<Output = std::io::Result<()>>) {
    if let Err(error) = server.await {
        tracing::error!(server = name, %error, "server ended");
    }
}
