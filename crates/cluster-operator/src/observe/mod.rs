//! Tables of the few facts that matter: extensions and their revisions, Deployments of OLM, the version of the cluster, and the
//! ClusterOperator itself.
//!
//! A kind is watched only while its CustomResourceDefinition is established; the definitions themselves are watched by name. So
//! nothing is asked for again and again where an API is absent, and work begins by itself when it appears.
//!
//! Rule: cluster-operator §11 step 5, §13 step 1 (nothing is decided before every table is complete), §16 step 2.

mod facts;
mod table;

use kube::Client;
use kube::api::{ApiResource, DynamicObject};
use olm_api::classic::ClusterServiceVersion;
use olm_api::openshift::{CLUSTER_OPERATOR, CLUSTER_VERSION, ClusterOperator, ClusterVersion};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_core::openshift::Bundle;
use olm_runtime::controller::Waker;

use crate::deployment::Deployment;
#[cfg(test)]
pub(crate) use facts::Broken;
pub(crate) use facts::{Extension, RevisionFact};
use table::{Scope, Source};
pub(crate) use table::{State, Table};

/// The kinds that OLM itself brings.
pub(crate) const EXTENSION_KIND: &str = "ClusterExtension";
pub(crate) const REVISION_KIND: &str = "ClusterObjectSet";

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) extensions: Table<Extension>,
    /// Revisions of extensions; others are left out.
    pub(crate) revisions: Table<Option<RevisionFact>>,
    /// Of OLM Classic, without copies.
    pub(crate) csvs: Table<Bundle>,
    pub(crate) deployments: Table<Deployment>,
    pub(crate) versions: Table<Option<String>>,
    pub(crate) operators: Table<DynamicObject>,
    /// Wakes the controller when a table changes.
    pub(crate) waker: Waker,
}

impl Default for World {
    fn default() -> Self {
        let waker = Waker::default();
        Self {
            extensions: Table::new(&waker),
            revisions: Table::new(&waker),
            csvs: Table::new(&waker),
            deployments: Table::new(&waker),
            versions: Table::new(&waker),
            operators: Table::new(&waker),
            waker,
        }
    }
}

impl World {
    /// Keeps the tables up to date while it is polled. `namespace` is the one of the Deployments.
    pub(crate) async fn follow(&self, client: &Client, namespace: &str) {
        let source = |resource: ApiResource, scope: Scope| Source { client: client.clone(), resource, scope };
        let extensions = source(ApiResource::erase::<ClusterExtension>(&()), Scope::All);
        let revisions = source(ApiResource::erase::<ClusterObjectSet>(&()), Scope::All);
        let csvs =
            source(ApiResource::erase::<ClusterServiceVersion>(&()), Scope::Labelled("!olm.copiedFrom"));
        let versions = source(ApiResource::erase::<ClusterVersion>(&()), Scope::Named(CLUSTER_VERSION));
        let operators = source(ApiResource::erase::<ClusterOperator>(&()), Scope::Named(CLUSTER_OPERATOR));
        let deployments = ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
        let deployments = source(deployments, Scope::BuiltIn(namespace.to_owned()));
        tokio::join!(
            extensions.follow(&self.extensions, facts::extension),
            revisions.follow(&self.revisions, facts::revision),
            csvs.follow(&self.csvs, facts::csv),
            deployments.follow(&self.deployments, facts::deployment),
            versions.follow(&self.versions, facts::version),
            operators.follow(&self.operators, facts::operator),
        );
    }
}
