//! The status of the OLMConfig: whether copies of ClusterServiceVersions are as its switch names.
//!
//! Rule: classic-apis §10.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use olm_api::classic::OlmConfig;
use olm_api::{Condition, condition};
use olm_classic::operator_group::{copies, targets};
use olm_runtime::controller::{self, Controller, Requeue, Source};
use olm_runtime::watched::Object;
use olm_runtime::write_status;
use tracing::{Instrument as _, info_span};

use super::copied::{living, settings};
use crate::cluster::Cluster;
use crate::context::{Context, MANAGER, ended};

const NAME: &str = "olmconfig";
/// The only object of the kind that counts.
const CLUSTER: &str = "cluster";
const TYPE: &str = "DisabledCopiedCSVs";
/// Copies are written one after another; the condition follows once.
const DEBOUNCE: Duration = Duration::from_secs(1);

pub(super) async fn controller(context: &Arc<Context>) {
    let controller = Controller { debounce: DEBOUNCE, ..context.further(NAME, sources(&context.cluster)) };
    controller::run(controller, context.cluster.wait_until_listed(), |key| {
        let context = Arc::clone(context);
        (key == CLUSTER)
            .then(|| async move { ended(reconcile(&context).await) }.instrument(info_span!("olmconfig")))
    })
    .await;
}

/// The sources that wake the pass.
fn sources(cluster: &Cluster) -> Vec<Source> {
    vec![
        Source::new("it changed", cluster.configs.subscribe(), |change| [change.key]),
        Source::new("a copy appeared, changed or is gone", cluster.copies.subscribe(), |_| {
            [CLUSTER.to_owned()]
        }),
        Source::new("a ClusterServiceVersion changed", cluster.csvs.subscribe(), |_| [CLUSTER.to_owned()]),
        Source::new("a namespace appeared or is gone", cluster.namespaces.subscribe(), |_| {
            [CLUSTER.to_owned()]
        }),
    ]
}

async fn reconcile(context: &Context) -> kube::Result<Requeue> {
    let cluster = &context.cluster;
    let Some(config) = cluster.configs.find(CLUSTER) else { return Ok(Requeue::OnChange) };
    let groups = cluster.groups.all();
    let global = groups.iter().filter(|it| targets::resolved(it).is_some_and(|it| targets::is_global(&it)));
    let csvs: Vec<_> =
        global.flat_map(|group| cluster.csvs.in_namespace(&group.namespace().unwrap_or_default())).collect();
    let mut observed = Vec::new();
    for csv in &csvs {
        observed.extend(cluster.copies.named(&csv.name_any()));
    }
    let found = copies::condition(&csvs, &living(cluster), &observed, &settings(context));
    let mut status = config.status.clone().unwrap_or_default();
    let now = Timestamp::now();
    let new = Condition::new(TYPE, found.status, found.reason, &found.message, None, now);
    condition::set(&mut status.conditions, new);
    let api: Api<OlmConfig> = Api::all(context.client.clone());
    let written = write_status(&api, &*config, status, MANAGER).await.map_err(|error| error.0)?;
    if let Some(written) = written {
        cluster.configs.update(CLUSTER.to_owned(), Object::new(written));
    }
    Ok(Requeue::OnChange)
}
