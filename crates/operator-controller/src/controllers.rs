//! The controllers of the process, on any client and any source of content.

use std::sync::Arc;

use futures::stream::BoxStream;
use kube::Client;
use olm_certificates::plan::Timing;
use olm_resolver::{ClusterFacts, EnvironmentConstraints};
use olm_runtime::controller::Workers;
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_runtime::watched::Objects;
use olm_runtime::{Polled, Shutdown, leader, task};

use crate::accounts::{Accounts, Rights};
use crate::bundles::BundleSource;
use crate::catalogs::{PackageCache, PackageSource};
use crate::certificates::{self, Expiries, RefusedCertificates};
use crate::crds::Crds;
use crate::extension::context::{Context, Settings};
use crate::extension::durations::ResolutionDurations;
use crate::extension::state::States;
use crate::extension::writer::RevisionWriter;
use crate::inventory::Inventory;
use crate::revisions::Revisions;
use crate::secret_cache::SecretCache;
use crate::{classic, extension, objectset};

/// What the controllers get from outside of the cluster.
pub struct Content {
    pub bundles: Box<dyn BundleSource>,
    pub packages: Box<dyn PackageSource>,
    /// An item when catalogs that could not be read may be readable: the CA of catalogd has changed.
    pub trust: BoxStream<'static, ()>,
    /// Passes over extensions that work at the same time.
    pub workers: Arc<Workers>,
}

/// Everything that writes to the cluster, as one future. It does nothing until it is polled.
pub fn run(
    client: Client,
    content: Content,
    settings: Settings,
    metrics: &Metrics,
    stop: Shutdown,
) -> impl Future<Output = ()> + use<> {
    let expiries = Expiries::default();
    expiries.register(metrics);
    let certificate_meter = metrics.controller(certificates::NAME, u32::from(certificates::WORKERS));
    let extension_meter = metrics.controller(extension::NAME, u32::from(extension::WORKERS));
    let revision_meter = metrics.controller(objectset::NAME, u32::from(objectset::WORKERS));
    let metrics = metrics.clone();

    async move {
        let (extensions, catalogs, revisions) = (Objects::empty(), Objects::empty(), Revisions::default());
        let kept = SecretCache::default();
        let (crds, apis) = Crds::watch(&client);
        let interruptions = crds.interruptions();
        let classic_packages = classic::packages(&client, &crds);
        let judges = settings.resolution.environment.constraints != EnvironmentConstraints::Ignore;
        let cluster = if judges { Polled::default() } else { Polled::fixed(ClusterFacts::default()) };
        let interval = settings.intervals.cluster;
        Inventory {
            extensions: extensions.clone(),
            revisions: revisions.clone(),
            catalogs: catalogs.clone(),
        }
        .register(&metrics);
        let (rights, lookups) = Rights::new(client.clone());
        let mode = settings.service_account_mode;
        let accounts = Arc::new(Accounts::new(client.clone(), mode, extensions.clone(), rights));
        let events = |name| Events::new(client.clone(), name, Some(leader::identity())).counted(&metrics);
        let system_namespace = settings.system_namespace.clone();
        let states = Arc::<States>::default();
        let refused_certificates = RefusedCertificates::new(Arc::clone(&states));
        let issuing = certificates::Context {
            client: client.clone(),
            system_namespace: system_namespace.clone(),
            timing: Timing::default(),
            extensions: extensions.clone(),
            revisions: revisions.clone(),
            meter: certificate_meter,
            events: events(certificates::NAME),
            expiries,
            refused_certificates: refused_certificates.clone(),
        };
        let mut rolling_out = objectset::Context::new(
            client.clone(),
            system_namespace.clone(),
            revisions.clone(),
            extensions.clone(),
        );
        rolling_out.kept = kept.clone();
        rolling_out.intervals = settings.intervals;
        rolling_out.identities = Arc::new(Arc::clone(&accounts));
        rolling_out.events = Some(events(objectset::NAME));
        let installing = Arc::new(Context {
            accounts,
            writer: RevisionWriter::new(client.clone(), &system_namespace, kept),
            bundles: content.bundles,
            extensions: extensions.clone(),
            revisions: revisions.clone(),
            catalogs: catalogs.clone(),
            packages: PackageCache::new(content.packages),
            settings,
            workers: content.workers,
            events: events(extension::NAME),
            durations: ResolutionDurations::register(&metrics),
            crds,
            cluster: cluster.clone(),
            refused_certificates: refused_certificates.clone(),
            states,
            client: client.clone(),
        });
        let feeds = extension::Feeds {
            rights: lookups,
            refused_certificates: refused_certificates.changes(),
            trust: content.trust,
            apis,
            classic_packages,
        };
        let _watches = (extensions.watch(&client), revisions.watch(&client), catalogs.watch(&client));
        let controllers = async {
            tokio::join!(
                extension::run(installing, feeds, extension_meter),
                objectset::run(rolling_out, revision_meter, stop.clone()),
                certificates::run(issuing, stop),
            );
        };
        let facts = async {
            if judges {
                let read = || olm_install::cluster::facts(&client);
                let reading = cluster.follow("the version and the APIs", read, interruptions, interval);
                match task::supervised("reading the version and the APIs", reading).await {}
            }
            std::future::pending().await
        };
        tokio::select! {
            () = controllers => {}
            () = facts => {}
        }
    }
}
