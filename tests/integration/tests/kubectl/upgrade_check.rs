//! `upgrade-check` against a real apiserver: who blocks, every exit code, every form.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Api;
use kube::api::PostParams;
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_kit::{Cluster, Options, eventually};
use serde_json::{Value, json};

/// Exit code and both outputs.
fn check(kubeconfig: &str, arguments: &[&str]) -> Result<(i32, String, String)> {
    let mut command = Command::new(olm_kit::built("kubectl-olm")?);
    command.arg("upgrade-check").args(arguments).args(["--kubeconfig", kubeconfig]);
    let output = command.output()?;
    let code = output.status.code().context("killed")?;
    Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

async fn installed(cluster: &Cluster, name: &str, limit: Value) -> Result<()> {
    let client = cluster.client().await?;
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": "default", "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}},
    });
    extensions.create(&PostParams::default(), &serde_json::from_value(extension)?).await?;
    let properties = json!([{"type": "olm.maxOpenShiftVersion", "value": limit}]).to_string();
    let set = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {
            "name": format!("{name}-1"),
            "annotations": {"olm.operatorframework.io/bundle-name": format!("{name}.v1.0.0"), "olm.properties": properties},
            "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": name},
        },
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
    });
    let sets: Api<ClusterObjectSet> = Api::all(client);
    sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
    Ok(())
}

#[tokio::test]
async fn kubectl_upgrade_check_results_and_exit_codes() -> Result<()> {
    let options = Options { api_only: true, ..Options::default() };
    let cluster = Cluster::start_with(&options).await?;
    cluster.install_olm().await?;
    let kubeconfig = cluster.kubeconfig().display().to_string();
    // no OpenShift, no version given: no answer (nor while the apiserver still registers the new kinds)
    eventually("the error message names the flags", Duration::from_secs(60), || async {
        let (code, out, error) = check(&kubeconfig, &[])?;
        assert_eq!((code, out.as_str()), (3, ""), "{error}");
        anyhow::ensure!(error.contains("give --from or --to"), "{error}");
        Ok(())
    })
    .await?;
    // with a version it does not take one
    let (code, out, error) = check(&kubeconfig, &["--to", "4.20"])?;
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert_eq!(out, "to 4.20: nothing installed stands in the way\n");

    cluster.install_openshift_kinds().await?;
    cluster.set_openshift_version("4.18.7").await?;
    installed(&cluster, "early", json!("4.18")).await?;
    installed(&cluster, "late", json!("4.20")).await?;
    let (code, out, error) = check(&kubeconfig, &["--no-hints"])?;
    assert_eq!((code, error.as_str()), (1, ""), "{out}");
    assert!(out.starts_with("4.18.7 to 4.19: 1 bundle stands in the way\n"), "{out}");
    let (code, out, _) = check(&kubeconfig, &["-o", "json"])?;
    let answer: Value = serde_json::from_str(&out)?;
    let want = json!({
        "current": "4.18.7", "target": "4.19", "upgradeable": false, "reason": "IncompatibleOperatorsInstalled",
        "message": "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: bundle \"early.v1.0.0\" for \
                    ClusterExtension \"early\".",
        "bundles": [
            {"extension": "early", "bundle": "early.v1.0.0", "maxOpenShiftVersion": "4.18", "blocks": true,
             "help": "upgrade to a bundle that runs on 4.19, or uninstall it"},
            {"extension": "late", "bundle": "late.v1.0.0", "maxOpenShiftVersion": "4.20", "blocks": false},
        ],
        "unlimited": 0,
    });
    assert_eq!((code, answer), (1, want));
    // what a catalog knows to help; here one in a directory
    let dir = olm_kit::RunDir::new("catalog")?;
    let bundle = |version: &str, limit: &str| {
        json!({"schema": "olm.bundle", "package": "early", "name": format!("early.v{version}"), "image": "example.invalid/early:v1", "properties": [
            {"type": "olm.package", "value": {"packageName": "early", "version": version}},
            {"type": "olm.maxOpenShiftVersion", "value": limit},
        ]})
    };
    let lines = [
        json!({"schema": "olm.package", "name": "early", "defaultChannel": "stable"}),
        json!({"schema": "olm.channel", "package": "early", "name": "stable", "entries": [{"name": "early.v1.0.0"}, {"name": "early.v1.1.0", "replaces": "early.v1.0.0"}]}),
        bundle("1.0.0", "4.18"),
        bundle("1.1.0", "4.19"),
    ];
    std::fs::write(dir.path().join("catalog.json"), lines.map(|line| line.to_string()).join("\n"))?;
    let (code, out, error) = check(&kubeconfig, &["--dir", &dir.path().display().to_string()])?;
    assert_eq!((code, error.as_str()), (1, ""), "{out}");
    assert!(out.contains("upgrade to early.v1.1.0 of catalog"), "{out}");
    // patches are free, two hops are not
    assert_eq!(check(&kubeconfig, &["--to", "4.18.9"])?.0, 0);
    let (code, out, _) = check(&kubeconfig, &["--to", "4.21", "-o", "name"])?;
    assert_eq!((code, out.as_str()), (1, "early\nlate\n"));
    // another version than the cluster's own
    assert_eq!(check(&kubeconfig, &["--from", "4.16.2"])?.0, 0);
    installed(&cluster, "odd", json!(true)).await?;
    let (code, out, _) = check(&kubeconfig, &["--from", "4.16.2"])?;
    assert_eq!(code, 1, "a limit that cannot be read: {out}");
    assert!(out.contains("error converting to semver for version true"), "{out}");
    for bad in [["--to", "latest"], ["--from", "4"]] {
        let (code, _, error) = check(&kubeconfig, &bad)?;
        assert_eq!(code, 2, "{error}");
        assert!(error.contains("of OpenShift such as"), "{error}");
    }
    Ok(())
}
