//! A namespace as one pass sees it.

use std::sync::Arc;

use olm_api::classic::{CatalogSource, ClusterServiceVersion, InstallPlan, OperatorGroup, Subscription};
use olm_classic::catalog_source::is_healthy;
use olm_classic::subscription::{CatalogFact, NamespaceFacts};

use crate::catalog::Catalogs;
use crate::context::Context;

/// The objects that decide a pass.
pub(super) struct Observed {
    pub(super) namespace: String,
    pub(super) groups: Vec<Arc<OperatorGroup>>,
    pub(super) subscriptions: Vec<Arc<Subscription>>,
    pub(super) csvs: Vec<Arc<ClusterServiceVersion>>,
    pub(super) plans: Vec<Arc<InstallPlan>>,
    /// Those of the namespace and of the global namespace, and whether each is healthy.
    pub(super) catalogs: Vec<(Arc<CatalogSource>, bool)>,
}

impl Observed {
    pub(super) fn read(context: &Context, catalogs: &Arc<Catalogs>, namespace: &str) -> Self {
        let cluster = &context.cluster;
        let global = context.settings.global_namespace.as_str();
        let mut sources = cluster.catalogs.in_namespace(namespace);
        if global != namespace {
            sources.extend(cluster.catalogs.in_namespace(global));
        }
        let mut subscriptions = cluster.subscriptions.in_namespace(namespace);
        subscriptions.retain(|it| it.metadata.deletion_timestamp.is_none());
        let healthy = |source: Arc<CatalogSource>| {
            let is_healthy = is_healthy(&source, catalogs.is_served(&source));
            (source, is_healthy)
        };
        Self {
            namespace: namespace.to_owned(),
            groups: cluster.groups.in_namespace(namespace),
            subscriptions,
            csvs: cluster.own_csvs(namespace),
            plans: cluster.plans.in_namespace(namespace),
            catalogs: sources.into_iter().map(healthy).collect(),
        }
    }

    pub(super) fn catalog_facts(&self) -> Vec<CatalogFact<'_>> {
        self.catalogs
            .iter()
            .map(|(source, is_healthy)| CatalogFact { source, is_healthy: *is_healthy })
            .collect()
    }

    /// `catalogs` are those of [`Self::catalog_facts`].
    pub(super) fn facts<'a>(
        &'a self,
        global_namespace: &'a str,
        catalogs: &'a [CatalogFact<'a>],
    ) -> NamespaceFacts<'a> {
        let facts = NamespaceFacts {
            namespace: &self.namespace,
            global_namespace: Some(global_namespace),
            groups: &self.groups,
            subscriptions: &self.subscriptions,
            csvs: &self.csvs,
            plans: &self.plans,
            catalogs,
        };
        facts.with_exclusion()
    }

    pub(super) fn catalog(&self, namespace: &str, name: &str) -> Option<&Arc<CatalogSource>> {
        let is_it = |source: &&Arc<CatalogSource>| {
            source.metadata.namespace.as_deref() == Some(namespace)
                && source.metadata.name.as_deref() == Some(name)
        };
        self.catalogs.iter().map(|(source, _)| source).find(is_it)
    }
}
