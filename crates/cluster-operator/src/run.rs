//! The process: what is started in which order, and how it ends.

use anyhow::Context as _;
use kube::Client;
use olm_certificates::MetricsServer;
use olm_runtime::events::Events;
use olm_runtime::foreign;
use olm_runtime::health;
use olm_runtime::leader::{self, Election};
use olm_runtime::metrics::Metrics;
use olm_runtime::tls;
use olm_runtime::{client, listen, serve, shutdown, task};

use crate::args::ServeArgs;
use crate::controller::{self, Context};
use crate::version::{Current, Given};

const LEASE: &str = "cluster-operator.operatorframework.io";
/// Where metrics are served when no address is given and there is a certificate.
const METRICS_ADDRESS: &str = ":8443";
/// The Service that a self-issued certificate is for.
const SERVICE: &str = "cluster-operator-service";

/// Reports until a signal asks to stop.
///
/// # Errors
/// When the settings cannot be used, or the lease is lost.
pub(crate) async fn run(args: ServeArgs) -> anyhow::Result<()> {
    args.run.feature_gates(&[])?;
    let metrics_address = args.run.metrics_address(METRICS_ADDRESS)?;
    let tls_settings = args.run.tls.settings()?;
    args.run.logs.init()?;
    tls::install_provider();
    let stop = shutdown::on_signal().context("cannot install signal handlers")?;
    let metrics = Metrics::new();
    let client = client::connect(args.run.kubeconfig(), &metrics).await?;

    let mut parts = tokio::task::JoinSet::new();
    let namespace = args.run.system_namespace();
    let observed = MetricsServer {
        serving: args.run.tls.serving()?,
        settings: tls_settings,
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

    let election = args.run.leader_elect.then(|| Election::new(LEASE, namespace));
    if let Some(election) = &election {
        foreign::check(&client, election, args.run.foreign_olm, &stop).await?;
    }
    let writing = match &election {
        Some(election) => election.connect(args.run.kubeconfig(), &metrics).await?,
        None => client.clone(),
    };
    let work = controller::run(context(&args, writing, &metrics), &metrics, stop.clone());
    let outcome = leader::lead(client, election, &metrics, &stop, work).await;
    stop.cancel();
    while parts.join_next().await.is_some() {}
    tracing::info!("stopped");
    Ok(outcome?)
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
        Current::Unknown(_) => tracing::info!("reading the OpenShift version from ClusterVersion/version"),
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
