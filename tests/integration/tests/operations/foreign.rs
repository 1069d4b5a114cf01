//! Another OLM v1 in the cluster, such as OpenShift's: it holds leases of the same names in namespaces of its own.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::jiff::Timestamp;
use olm_kit::{Cluster, Options, Process, Program, eventually};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);
const HOLDER: &str = "controller-manager-7d_6f1bd4f5-3c64-4a5e-b0ea-0c4f6e0b7a11";

/// Applies a lease that was renewed so long ago.
async fn hold(cluster: &Cluster, namespace: &str, name: &str, ago: i64) -> Result<()> {
    cluster.apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}")).await?;
    let renewed = Timestamp::from_second(Timestamp::now().as_second() - ago)?;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": HOLDER, "leaseDurationSeconds": 137, "renewTime": format!("{renewed:.6}")}});
    cluster.apply(&lease.to_string()).await.map(drop)
}

async fn leads(process: &Process) -> Result<()> {
    eventually("it leads", LIMIT, || async {
        ensure!(process.log_text().contains("became leader"), "{}", process.log_text());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn foreign_olm_blocks_the_start() -> Result<()> {
    type Make = fn(&Cluster) -> Result<Program>;
    for (make, lease, namespace) in [
        (Program::catalogd as Make, "catalogd-operator-lock", "openshift-catalogd"),
        (Program::operator_controller, "9c4404e7.operatorframework.io", "openshift-operator-controller"),
    ] {
        let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
        cluster.install_olm().await?;
        let program = || -> Result<Program> { Ok(make(&cluster)?.flag("--leader-elect", "true")) };
        hold(&cluster, namespace, lease, 0).await?;
        let mut refused = program()?.launch()?;
        ensure!(refused.child().wait(LIMIT), "it runs: {}", refused.log_text());
        let has_failed = refused.child().exited().is_some_and(|status| status.code() == Some(1));
        let log = refused.log_text();
        ensure!(has_failed, "{log}");
        let error = format!(
            "Error: another OLM v1 manages the same objects: Lease {lease} in namespace {namespace} is held by {HOLDER:?} (another \
             implementation); scale the Deployments"
        );
        ensure!(log.contains(&error) && !log.contains("became leader"), "{log}");
        // the flag overrides it
        let mut ignoring = program()?.flag("--foreign-olm", "Ignore").start().await?;
        leads(&ignoring).await?;
        ensure!(ignoring.stop());
        // the other one was stopped in the meantime
        hold(&cluster, namespace, lease, 138).await?;
        leads(&program()?.start().await?).await?;
    }
    Ok(())
}
