//! `helm test`: the pods of the chart, with this test in place of the kubelet. It runs what a pod names, with the CA that the pod mounts,
//! and writes how it ended into the pod's status.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use olm_kit::{Cluster, Options, SYSTEM_NAMESPACE, Wait, built};
use serde_json::json;

use crate::chart::{helm, template};
use crate::install::start_programs;
use crate::manifests::{folder, make_default_account};
use crate::world::LIMIT;

const RELEASE: &str = "olm-rs";

/// Waits for the pod, runs it with the Service's address replaced, and reports the end.
async fn play_kubelet(cluster: &Cluster, program: &str, service: &str, address: &str) -> Result<String> {
    let client = cluster.client().await?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let name = format!("{RELEASE}-test-{program}");
    let is_new = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase.is_none_or(|phase| phase == "Pending")
    };
    let pod = Wait::new(&pods, &name).within(LIMIT).until("is pending", is_new).await?;
    let spec = json!(pod.spec);
    let volume = &spec["volumes"][0]["configMap"];
    let maps: Api<ConfigMap> = Api::namespaced(client, SYSTEM_NAMESPACE);
    let data = maps.get(volume["name"].as_str().context("no ConfigMap")?).await?.data.unwrap_or_default();
    let item = &volume["items"][0];
    let ca = tempfile::tempdir()?;
    std::fs::write(
        ca.path().join(item["path"].as_str().context("no path")?),
        data.get(item["key"].as_str().context("no key")?).context("no such key")?,
    )?;
    let container = &spec["containers"][0];
    let mounted = container["volumeMounts"][0]["mountPath"].as_str().context("not mounted")?;
    let binary = PathBuf::from(container["command"][0].as_str().context("no command")?);
    ensure!(binary == PathBuf::from("/").join(program), "{binary:?}");
    let args: Vec<String> = container["args"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|arg| arg.as_str())
        .map(|arg| arg.replace(service, address).replace(mounted, &ca.path().display().to_string()))
        .collect();
    ensure!(args.iter().any(|arg| arg.contains(address)), "{args:?}");
    let mut command = tokio::process::Command::new(built(program)?);
    let output = command.args(&args).arg("--timeout=3s").stdin(Stdio::null()).output().await?;
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = json!({"status": {"phase": phase}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_test_checks_the_services() -> Result<()> {
    let cluster = Cluster::start_with(&Options { api_only: true, ..Options::default() }).await?;
    let chart = folder("chart").display().to_string();
    helm(&cluster, &["install", RELEASE, &chart, "--namespace", SYSTEM_NAMESPACE, "--create-namespace"])?;
    make_default_account(&cluster).await?;
    let (mut catalogd, controller) = start_programs(&cluster, &template(&json!({}))?).await?;
    let content = catalogd.content_url().replace("https://", "");
    let metrics = controller.metrics_url().replace("https://", "");
    let test = || async {
        let attached = Cluster::attach(cluster.dir())?;
        let run =
            move || helm(&attached, &["test", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--timeout", "60s"]);
        // helm runs one pod after the other, and ends with the first that fails
        let kubelet = async {
            let first =
                play_kubelet(&cluster, "catalogd", "catalogd-service.olmv1-system.svc", &content).await?;
            if first.starts_with("Error: ") {
                return Ok(vec![first]);
            }
            let service = "operator-controller-service.olmv1-system.svc:8443";
            let second = play_kubelet(&cluster, "operator-controller", service, &metrics).await?;
            anyhow::Ok(vec![first, second])
        };
        let kubelet = tokio::time::timeout(LIMIT, kubelet);
        let (ended, printed) = tokio::join!(tokio::task::spawn_blocking(run), kubelet);
        anyhow::Ok((ended?, printed??))
    };
    let (ended, printed) = test().await?;
    let text = ended?;
    ensure!(text.contains("Succeeded") && !text.contains("Failed"), "{text}");
    let content = format!("https://{content}/: 404 Not Found");
    let metrics = format!("https://{metrics}/metrics: 401 Unauthorized");
    ensure!(printed == [content, metrics], "{printed:?}");

    catalogd.kill9();
    let (ended, printed) = test().await?;
    ensure!(
        printed[0].contains("Error: no answer within 3s: ") && printed[0].contains("refused"),
        "{printed:?}"
    );
    let error = ended.err().context("helm test succeeds without catalogd")?.to_string();
    ensure!(error.contains("olm-rs-test-catalogd"), "{error}");
    Ok(())
}
