//! The administrator's view of the ClusterOperator `olm`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use olm_api::openshift::{ClusterOperator, OperatorCondition};
use olm_kit::{Cluster, Wait, eventually};

/// The black-box tests of the reference allow as much.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The cluster of a test, and the log that explains a failure.
pub(crate) struct View<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) operators: Api<ClusterOperator>,
    pub(crate) log: PathBuf,
}

impl<'a> View<'a> {
    pub(crate) async fn new(cluster: &'a Cluster, log: PathBuf) -> Result<Self> {
        Ok(Self { cluster, operators: Api::all(cluster.client().await?), log })
    }

    /// Waits for a state of the ClusterOperator.
    pub(crate) async fn until(
        &self,
        what: &str,
        reached: impl FnMut(&ClusterOperator) -> bool,
    ) -> Result<ClusterOperator> {
        Wait::new(&self.operators, "olm").within(LIMIT).log(&self.log).until(what, reached).await
    }

    /// Waits until Upgradeable has this status and its message this part; gives the condition.
    pub(crate) async fn upgradeable(&self, status: &str, part: &str) -> Result<OperatorCondition> {
        let what = format!("Upgradeable={status} with {part:?}");
        let found = self
            .until(&what, |it| {
                condition(it, "Upgradeable")
                    .is_some_and(|found| found.status.as_str() == status && found.message.contains(part))
            })
            .await?;
        condition(&found, "Upgradeable").cloned().context("no condition")
    }

    /// What kubectl prints.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = self.cluster.kubectl()?.args(arguments).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Writes to ClusterOperators so far: create and update of the object, and of its status.
    pub(crate) fn writes(&self) -> Result<Vec<(String, String, u64)>> {
        let ours = self
            .cluster
            .audited(0, |request| request.writes() && request.resource.starts_with("clusteroperators"))?;
        Ok(ours.into_iter().map(|request| (request.verb, request.resource, request.code)).collect())
    }

    /// Reasons and notes of the events about an object, sorted.
    pub(crate) async fn events(&self, kind: &str, name: &str) -> Result<Vec<(String, String)>> {
        let api: Api<Event> = Api::namespaced(self.cluster.client().await?, "default");
        let about = format!("regarding.kind={kind},regarding.name={name}");
        let list = api.list(&ListParams::default().fields(&about)).await?;
        let summary = |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        let mut all: Vec<_> = list.items.into_iter().map(summary).collect();
        all.sort();
        Ok(all)
    }

    /// Waits for an event; gives its note.
    pub(crate) async fn until_event(&self, kind: &str, name: &str, reason: &str) -> Result<String> {
        eventually(&format!("event {reason} about {kind} {name}"), LIMIT, || async {
            let all = self.events(kind, name).await?;
            let found = all.iter().find(|(found, _)| found == reason);
            found.map(|(_, note)| note.clone()).with_context(|| format!("{all:?}"))
        })
        .await
    }
}

/// A condition of the ClusterOperator.
pub(crate) fn condition<'a>(operator: &'a ClusterOperator, type_: &str) -> Option<&'a OperatorCondition> {
    operator.status.as_ref().and_then(|status| status.condition(type_))
}
