//! The process: what is started in which order, and how it ends.
//!
//! Content on disk is served before anything is asked of the API server or a registry. Rule: catalogd §2.6 (with §12 row
//! 2: the cache is kept).

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use futures::FutureExt as _;
use olm_certificates::Source;
use olm_oci::{Config, Puller, SharedKeyring, parse_reference};
use olm_runtime::events::Events;
use olm_runtime::foreign;
use olm_runtime::health::{self, Check};
use olm_runtime::leader::{self, Election};
use olm_runtime::metrics::{KubeReviews, Metrics};
use olm_runtime::tls;
use olm_runtime::{Shutdown, client, listen, profile, pull_secrets, serve, shutdown, task};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::args::{GATES, GRAPHQL, METAS, ServeArgs};
use crate::controller::credentials::Credentials;
use crate::controller::fetch::Fetch;
use crate::controller::readiness::Readiness;
use crate::controller::reconcile;
use crate::controller::service::ServiceSettings;
use crate::http::{Catalogs, Endpoints, server};
use crate::store::{Opened, Store};
use crate::{controller, grpc, http};

/// The controller's name in metrics and events.
pub(crate) const CONTROLLER: &str = "catalogd-clustercatalog-controller";
const LEASE: &str = "catalogd-operator-lock";
/// Where metrics are served when no address is given and there is a certificate.
const METRICS_ADDRESS: &str = ":7443";

/// Serves until a signal asks to stop.
///
/// # Errors
/// When the settings cannot be used, or the lease is lost.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    let gates = args.run.feature_gates(GATES)?;
    let serving = args.serving()?;
    let metrics_address = args.run.metrics_address(METRICS_ADDRESS)?;
    let (image_limits, content_limits) = args.limits()?;
    let pull_secret = args.pull.pull_secret()?;
    let tls_settings = args.run.tls.settings()?;
    args.run.logs.init()?;
    tls::install_provider();
    gates.log();
    let stop = shutdown::on_signal().context("cannot install signal handlers")?;
    let metrics = Metrics::new();
    let client = client::connect(args.run.kubeconfig(), &metrics).await?;
    let certificate = Source::open(&serving, &client, &args.run.system_namespace(), args.own_names())
        .context("failed to initialize certificate watcher")?;

    let keyring = SharedKeyring::default();
    let puller = puller(&args, keyring.clone())?;
    let store = open_store(&args, &puller).await?;
    let readiness = Arc::new(Readiness::new(Instant::now()));
    let http_metrics = http::Metrics::default();
    http_metrics.register(&metrics);
    crate::gauges::register(&metrics, store.clone());

    let mut parts = JoinSet::new();
    serve_probes(&args, &readiness, &stop, &mut parts).await?;
    let Some((pair, keeping)) = certificate.pair(stop.clone()).await? else { return Ok(()) };
    parts.spawn(task::supervised("serving certificate", keeping));
    metrics.watch_pair(Arc::clone(&pair));
    let tls = tls::server_config(pair, &tls_settings)?;
    let endpoints = Endpoints { metas: gates.enabled(METAS), graphql: gates.enabled(GRAPHQL) };
    let catalogs = Arc::new(Catalogs::new(store.clone(), endpoints));
    let listener = listen::bind(&args.catalogs_server_addr).await?;
    let serving =
        server::serve(listener, Arc::clone(&tls), catalogs, http_metrics, server::LIMITS, stop.clone());
    let content_server = tokio::spawn(task::supervised("content server", serving));
    let mut services = None;
    if let Some(listener) = listen::optional(&args.grpc_bind_address).await? {
        let port = listener.local_addr()?.port();
        services = Some(ServiceSettings { namespace: args.run.system_namespace(), port });
        let registry = grpc::Registry::new(store.clone());
        let registry = grpc::server::serve(listener, registry, grpc::server::LIMITS, stop.clone())?;
        parts.spawn(task::supervised("gRPC server", registry));
    }
    if let Some(address) = metrics_address {
        let router = olm_runtime::metrics::router(metrics.clone(), KubeReviews(client.clone()));
        let listener = listen::bind(&address).await?;
        let shown = serve::https(listener, router, Arc::clone(&tls), serve::Limits::default(), stop.clone());
        parts.spawn(task::supervised("metrics server", shown));
    }
    if let Some(listener) = listen::optional(&args.run.pprof_bind_address).await? {
        let shown = profile::serve(listener, tls, client.clone(), stop.clone());
        parts.spawn(task::supervised("server of profiles", shown));
    }
    readiness.listening();
    parts.spawn(task::supervised("compression", crate::compress::run(store.clone(), stop.clone())));
    let damaged = check_in_background(&store, &stop);
    let account = pull_secrets::own_account();
    let (changed, secrets) = mpsc::channel(1);
    let credentials = Credentials::new(client.clone(), pull_secret, account, keyring);
    let watching = credentials.clone().watch(changed);
    let watching = tokio::spawn(task::supervised("watch of pull secrets", watching));
    let (lead, leader) = watch::channel(!args.run.leader_elect);
    let election = args.run.leader_elect.then(|| Election::new(LEASE, args.run.system_namespace()));
    if let Some(election) = &election {
        foreign::check(&client, election, args.run.foreign_olm, &stop).await?;
    }
    let writing = match &election {
        Some(election) => election.connect(args.run.kubeconfig(), &metrics).await?,
        None => client.clone(),
    };
    let context = Arc::new(reconcile::Context {
        client: writing.clone(),
        store: store.clone(),
        fetch: Fetch::new(puller, credentials, store).with_limits(image_limits, content_limits),
        leader,
        events: Events::new(writing, CONTROLLER, Some(leader::identity())).counted(&metrics),
        meter: metrics.controller(CONTROLLER, 0),
        base: format!("https://{}", args.external_address),
        services,
        intervals: args.run.test_intervals,
        version: Default::default(),
        states: Default::default(),
        epoch: std::sync::atomic::AtomicU64::new(0),
    });
    let lost = Shutdown::new();
    let working = controller::run(context, readiness, args.gc_interval.0, damaged, secrets, stop.clone());
    // a stop lets running passes end, a loss of the lease aborts them
    let working = async {
        tokio::select! {
            () = lost.cancelled() => {}
            () = working => {}
        }
    };
    let electing = async {
        let leading = async {
            lead.send_if_modified(|leads| !std::mem::replace(leads, true));
            stop.cancelled().await;
        };
        let elected = leader::lead(client, election, &metrics, &stop, leading).await;
        if elected.is_err() {
            lost.cancel();
            stop.cancel();
        }
        elected
    };
    let (elected, ()) = tokio::join!(electing, working);
    watching.abort();
    content_server.await.context("the content server ended badly")?;
    while parts.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(elected?)
}

/// The puller, after its signature policy was read.
fn puller(args: &ServeArgs, keyring: SharedKeyring) -> anyhow::Result<Puller> {
    let verdicts = args.cache_dir.join("verified-signatures");
    let config = Config::of_program(keyring, args.pull.signature_policy(), verdicts);
    let puller = Puller::new(config.with_certificates(args.pull.cas_dir()));
    puller.check_policy()?;
    Ok(puller)
}

/// The store, which serves what is on disk and accepted by the signature policy.
async fn open_store(args: &ServeArgs, puller: &Puller) -> anyhow::Result<Store> {
    let cache = args.cache_dir.clone();
    let (store, opened) = tokio::task::spawn_blocking(move || Store::open(&cache)).await??;
    withdraw_unverified(&store, puller)?;
    log_opened(&opened);
    Ok(store)
}

async fn serve_probes(
    args: &ServeArgs,
    readiness: &Arc<Readiness>,
    stop: &Shutdown,
    parts: &mut JoinSet<()>,
) -> anyhow::Result<()> {
    let readiness = Arc::clone(readiness);
    let check: Check = Arc::new(move || readiness.check(Instant::now()));
    if let Some(listener) = listen::optional(&args.run.health_probe_bind_address).await? {
        let probes = health::router([("catalog-server", check)]);
        let probes = serve::http(listener, probes, serve::Limits::default(), stop.clone());
        parts.spawn(task::supervised("health server", probes));
    }
    Ok(())
}

fn log_opened(opened: &Opened) {
    if !opened.served.is_empty() {
        tracing::info!(catalogs = opened.served.len(), "serving what is on disk");
    }
    for (name, reason) in &opened.lost {
        tracing::warn!(catalog = name, reason, "stored content cannot be used; it will be pulled again");
    }
}

/// Stops serving what the signature policy has not accepted yet; the controller verifies it and serves it again.
fn withdraw_unverified(store: &Store, puller: &Puller) -> anyhow::Result<()> {
    for (name, served) in store.serving().iter() {
        let asked = parse_reference(served.source.as_deref().unwrap_or(&served.reference));
        let accepted = match asked {
            Ok(asked) => puller.accepts_stored(&asked, served.content.digest())?,
            Err(_) => false,
        };
        if !accepted {
            tracing::info!(
                catalog = name,
                reference = served.reference,
                "not served before its signature is verified"
            );
            store.withdraw(name)?;
        }
    }
    Ok(())
}

/// As [`check_all`], on a thread of its own. Receives the names whose content is to be pulled again.
fn check_in_background(store: &Store, stop: &Shutdown) -> mpsc::Receiver<String> {
    let (damage, damaged) = mpsc::channel(16);
    let checking = tokio::task::spawn_blocking({
        let (store, stop) = (store.clone(), stop.clone());
        move || check_all(&store, &damage, &stop)
    });
    tokio::spawn(checking.map(|checked| {
        if let Err(error) = checked {
            tracing::error!(%error, "the check of stored content ended badly");
        }
    }));
    damaged
}

/// Reads all stored content once and drops what is damaged.
fn check_all(store: &Store, damage: &mpsc::Sender<String>, stop: &Shutdown) {
    let mut seen = std::collections::BTreeSet::new();
    for served in store.serving().values() {
        let content = &served.content;
        if stop.is_cancelled() || !seen.insert(content.digest().clone()) {
            continue;
        }
        let Err(error) = content.verify() else { continue };
        tracing::error!(digest = %content.digest(), %error, "stored content is damaged; it will be pulled again");
        let (names, removed) = store.condemn(content.digest());
        if let Err(error) = removed {
            tracing::error!(%error, "cannot remove damaged content");
        }
        names.into_iter().for_each(|name| drop(damage.blocking_send(name)));
    }
}
