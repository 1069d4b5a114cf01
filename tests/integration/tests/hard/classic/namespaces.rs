//! The namespace of a Subscription is deleted during the install: it goes, with what the operator had in the cluster, and an install into
//! a namespace of the same name succeeds.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use olm_kit::{Wait, eventually};
use rand::Rng as _;

use super::site::Site;
use crate::kills::Moment;
use crate::package::LIMIT;
use crate::runs::Case;

/// Writes of an install, about.
const WRITES: usize = 60;

#[tokio::test]
async fn fault_classic_namespace_deleted_mid_install_goes() -> Result<()> {
    let mut case =
        Case::sampled("namespace deleted during an install of OLM Classic, then made again", 2, 12);
    let mut dice = case.dice();
    let site = Site::start().await?;
    let client = site.client().await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for run in 0..case.runs() {
        let (package, _) = site.served("namespace").await?;
        let mut tail = site.cluster.audit_tail()?;
        let moment = Moment::Write(dice.random_range(1..WRITES));
        case.log(&format!("run {run}: deleted at {moment:?}"));
        package.subscribe("1.0.0").await?;
        moment.come(&mut tail, &mut Vec::new()).await?;
        let since = Instant::now();
        namespaces.delete(&package.name, &DeleteParams::default()).await?;
        Wait::new(&namespaces, &package.name)
            .within(LIMIT)
            .log(site.controller.log())
            .to_be_gone()
            .await
            .with_context(|| format!("run {run}: deleted at {moment:?}"))?;
        case.converged(since);
        let of_csv = ListParams::default().labels(&format!("olm.owner.namespace={}", package.name));
        let (roles, bindings) =
            (Api::<ClusterRole>::all(client.clone()), Api::<ClusterRoleBinding>::all(client.clone()));
        eventually("no role of the operator is left", LIMIT, || async {
            let mut left: Vec<String> =
                roles.list(&of_csv).await?.items.iter().map(|it| it.name_any()).collect();
            left.extend(bindings.list(&of_csv).await?.items.iter().map(|it| it.name_any()));
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await
        .with_context(|| format!("run {run}: deleted at {moment:?}"))?;
        package.furnish().await?;
        package.subscribe("1.0.0").await?;
        package.installed("1.0.0").await.with_context(|| format!("run {run}: installed again"))?;
        package.delete().await?;
        package.gone().await?;
    }
    Ok(())
}
