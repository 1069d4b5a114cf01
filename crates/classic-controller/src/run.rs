//! The process: what is started in which order, and how it ends.

use std::sync::Arc;

use anyhow::Context as _;
use olm_certificates::Source;
use olm_oci::{Config, SharedKeyring};
use olm_runtime::args::{Serving, service_names};
use olm_runtime::leader::{self, Election};
use olm_runtime::metrics::{self, KubeReviews, Metrics};
use olm_runtime::{client, health, listen, pull_secrets, serve, shutdown, task, tls};

use crate::args::ServeArgs;
use crate::context::Settings;
use crate::controllers;
use crate::images::Images;
use crate::packages;

const LEASE: &str = "classic-controller.operators.coreos.com";
/// The Service that a self-issued certificate is for.
const SERVICE: &str = "classic-controller-service";

/// Controls until a signal asks to stop.
///
/// # Errors
/// When the settings cannot be used, or the lease is lost.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let limits = args.limits()?;
    let tls_settings = args.tls.settings()?;
    let pull_secret = args.pull.pull_secret()?;
    args.logs.init()?;
    tls::install_provider();
    let stop = shutdown::on_signal().context("cannot install signal handlers")?;
    let metrics = Metrics::new();
    let client = client::connect(args.kubeconfig(), &metrics).await?;

    let mut parts = tokio::task::JoinSet::new();
    if let Some(listener) = listen::optional(&args.metrics_bind_address).await? {
        match args.tls.serving()? {
            Some(serving @ Serving::SelfIssued(_)) => {
                let names = service_names(SERVICE, &args.namespace);
                let certificate = Source::open(&serving, &client, &args.namespace, names)
                    .context("failed to initialize certificate watcher")?;
                let shown = metrics::serve(
                    certificate.pair(stop.clone()),
                    tls_settings.clone(),
                    (Some(listener), None),
                    client.clone(),
                    metrics.clone(),
                    stop.clone(),
                );
                parts.spawn(task::supervised("metrics server", shown));
            }
            Some(Serving::Files { .. }) | None => {
                let router = metrics::router(metrics.clone(), KubeReviews(client.clone()));
                let shown = serve::http(listener, router, serve::Limits::default(), stop.clone());
                parts.spawn(task::supervised("metrics server", shown));
            }
        }
    }
    if let Some(packages) = packages::server(&args, &tls_settings, stop.clone()).await? {
        parts.spawn(task::supervised("server of packages", packages));
    }
    // after the listener of the metrics, so that a ready process answers there too
    if let Some(listener) = listen::optional(&args.health_probe_bind_address).await? {
        let probes = serve::http(listener, health::router([]), serve::Limits::default(), stop.clone());
        parts.spawn(task::supervised("health server", probes));
    }

    let election = args.leader_elect.then(|| Election::new(LEASE, args.namespace.clone()));
    let writing = match &election {
        Some(election) => election.connect(args.kubeconfig(), &metrics).await?,
        None => client.clone(),
    };
    let settings = Settings {
        global_namespace: args.global_namespace(),
        plan_retry_window: args.plan_retry_window(),
        unpack_timeout: args.unpack_timeout(),
        repair_deployments: args.repair_deployments,
        protected_namespaces: args.protected_namespaces(),
    };
    let verdicts = args.cache_dir.join("verified-signatures");
    let config = Config::of_program(SharedKeyring::default(), args.pull.signature_policy(), verdicts)
        .with_certificates(args.pull.cas_dir());
    let images = Images::open(writing.clone(), &args.cache_dir, config, limits)?
        .with_secrets_of_process(pull_secret, pull_secrets::own_account());
    let work = controllers::run(
        writing,
        args,
        settings,
        |accounts| Arc::new(images.with_accounts(accounts)),
        metrics.clone(),
        stop.clone(),
    );
    let outcome = leader::lead(client, election, &metrics, &stop, work).await;
    stop.cancel();
    while parts.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(outcome?)
}
