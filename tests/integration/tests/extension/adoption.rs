//! Decision 1: an extension that the reference installed through a Helm release continues as a revision, with the same objects.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use olm_api::{ClusterObjectSet, condition};
use olm_kit::{Ca, Entry, RunDir, Wait, eventually};
use serde_json::{Value, json};

use crate::helm::{Helm, Release, gzip};
use crate::world::{LIMIT, World, stuck_deployment};

fn uids(live: &[DynamicObject]) -> Vec<(String, String)> {
    live.iter().map(|object| (object.name_any(), object.uid().unwrap_or_default())).collect()
}

/// The objects but for what the cluster's own controllers write into them, who may do so at any time.
fn as_written(mut live: Vec<DynamicObject>) -> Result<Vec<Value>> {
    for object in &mut live {
        object.metadata.resource_version = None;
        object.annotations_mut().remove("deployment.kubernetes.io/revision");
        object
            .managed_fields_mut()
            .retain(|entry| entry.manager.as_deref() != Some("kube-controller-manager"));
        if let Some(data) = object.data.as_object_mut() {
            data.remove("status");
        }
    }
    Ok(live.into_iter().map(serde_json::to_value).collect::<Result<_, _>>()?)
}

/// A Deployment with a variable that 1.1.0 no longer has.
fn deployment(name: &str, variables: Value) -> Value {
    json!({"name": name, "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "example.invalid/main:v1", "env": variables}]},
        },
    }})
}

/// `kubectl olm plan` for the extension without its pause.
async fn plan_to_resume(world: &World) -> Result<Value> {
    let (ca, home) = (Ca::shared()?, RunDir::new("adoption")?);
    let mut command = tokio::process::Command::new(olm_kit::built("kubectl-olm")?);
    command.args(["plan", &world.name, "--resume", "-o", "json", "--catalogd-url"]);
    command.arg(world.stack.catalogd.content_url()).arg("--catalogd-cas-dir").arg(ca.dir());
    command.arg("--ca-file").arg(ca.certificate()).arg("--kubeconfig").arg(world.stack.cluster.kubeconfig());
    let output = command.env("HOME", home.path()).output().await?;
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("{}: {error}", output.status))
}

#[tokio::test]
async fn helm_release_is_adopted_and_its_objects_keep_their_uids() -> Result<()> {
    let world = World::new("helm").await?;
    let name = &world.name;
    let both = json!([{"name": "KEPT", "value": "1"}, {"name": "DROPPED", "value": "1"}]);
    let one = world.bundle("1.0.0").deployments([deployment(name, both)]);
    let two = world.bundle("1.1.0").deployments([deployment(name, json!([{"name": "KEPT", "value": "1"}]))]);
    world.serve_chain([("1.0.0", one.clone()), ("1.1.0", two)]).await?;
    // or what is adopted might be kept as it is
    world.catalog_is_known().await?;

    world.pause(true).await?;
    let helm = Helm::new(&world).await?;
    let objects = helm.objects(&one)?;
    helm.create(&objects).await?;
    let release = |version, status, bundle_version, chunk| {
        let objects = objects.clone();
        Release { version, status, bundle_version, objects, chunk }
    };
    helm.store(&release(1, "superseded", "0.9.0", 1 << 20)).await?;
    helm.store(&release(2, "deployed", "1.0.0", 400)).await?;
    helm.store(&release(3, "failed", "1.1.0", 1 << 20)).await?;
    let stored = helm.count().await?;
    assert!(stored >= 5, "the deployed release is chunked: {stored} Secrets");
    let before = uids(&helm.live(&objects).await?);

    world.want(json!({"version": "1.0.0"})).await?;
    let plan = plan_to_resume(&world).await?;
    world.pause(false).await?;
    world.installed("1.0.0").await?;
    let want = [(1, "Archived".to_owned(), true), (2, "Active".to_owned(), true)];
    assert_eq!(world.revisions().await?, want);
    let first = world.sets.get(&format!("{name}-1")).await?;
    assert_eq!(
        first.labels().get("olm.operatorframework.io/migrated-from-helm").map(String::as_str),
        Some("true")
    );
    let annotation = |key: &str| first.annotations().get(key).map(String::as_str);
    assert_eq!(annotation("olm.operatorframework.io/bundle-version"), Some("1.0.0"));
    assert_eq!(annotation("olm.properties"), Some("[{\"type\":\"from.chart\",\"value\":1}]"));
    assert!(first.spec.phases.iter().flat_map(|phase| &phase.objects).all(|object| object.object.is_some()));

    let live = helm.live(&objects).await?;
    assert_eq!(uids(&live), before);
    for object in &live {
        let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        assert_eq!(controller.map(|owner| owner.name.clone()), Some(format!("{name}-2")), "{object:?}");
        assert!(!object.annotations().contains_key("meta.helm.sh/release-name"), "{object:?}");
        let managers: Vec<_> =
            object.managed_fields().iter().filter_map(|entry| entry.manager.as_deref()).collect();
        assert!(!managers.contains(&"operator-controller"), "{managers:?}");
    }
    assert_eq!(helm.count().await?, stored, "the release stays");
    world.until_event("Adopted").await?;

    let warned = plan["warnings"].to_string();
    assert!(warned.contains("Helm release") && warned.contains(&format!("revision {name}-1")), "{plan:#}");
    assert_eq!((&plan["action"], &plan["refused"]), (&json!("Create"), &Value::Null), "{plan:#}");
    assert_eq!((&plan["from"]["revision"], &plan["to"]["revision"]), (&json!(1), &json!(2)), "{plan:#}");
    let planned = plan["objects"].as_array().context("no objects")?;
    assert!(planned.iter().all(|object| object["action"] == "Change"), "{plan:#}");
    let second = world.sets.get(&format!("{name}-2")).await?;
    let made = second.spec.phases.iter().flat_map(|phase| &phase.objects);
    let made: Vec<_> = made.filter_map(|object| Some(object.reference.as_ref()?.key.as_str())).collect();
    let hashes: Vec<_> = planned.iter().filter_map(|object| object["hash"].as_str()).collect();
    assert_eq!(hashes, made);

    // what a later version no longer has goes, though Helm wrote it
    world.install("1.1.0").await?;
    let deployments: Api<Deployment> = Api::namespaced(world.stack.cluster.client().await?, name);
    let deployment = deployments.get(name).await?;
    let was = before.iter().find(|(found, _)| found == name).map(|(_, uid)| uid.clone());
    assert_eq!(deployment.uid(), was);
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("no pod")?;
    let variables: Vec<_> =
        pod.containers[0].env.iter().flatten().map(|variable| variable.name.as_str()).collect();
    assert_eq!(variables, ["KEPT"]);
    Ok(())
}

#[tokio::test]
async fn helm_release_that_is_unreadable_blocks_until_fixed() -> Result<()> {
    let world = World::new("helm-broken").await?;
    let bundle = world.bundle("1.0.0");
    world.serve([("1.0.0", bundle.clone())], [Entry::new("1.0.0")]).await?;
    world.pause(true).await?;
    let helm = Helm::new(&world).await?;
    let objects = helm.objects(&bundle)?;
    helm.create(&objects).await?;
    let all = objects.clone();
    let release =
        Release { version: 1, status: "deployed", bundle_version: "1.0.0", objects: all, chunk: 600 };
    helm.store(&release).await?;
    let good = helm.secrets_of(&release)?;
    let index = good[0].name_any();
    let before = as_written(helm.live(&objects).await?)?;

    let whole = async |bytes: Vec<u8>| {
        let data = json!({"data": {"chunk": ByteString(bytes), "extraChunks": null}});
        helm.secrets.patch(&index, &PatchParams::default(), &Patch::Merge(data)).await
    };
    let without_manifest = json!({"name": world.name, "version": 1, "info": {"status": "deployed"}, "labels": {
        "olm.operatorframework.io/bundle-name": "x", "olm.operatorframework.io/package-name": "x",
        "olm.operatorframework.io/bundle-version": "1.0.0", "olm.operatorframework.io/bundle-reference": "x",
    }});
    let until_message = async |what: &str| {
        world.again().await?;
        let until = world.until(what, |extension| {
            let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice());
            condition::find(conditions.unwrap_or_default(), condition::PROGRESSING)
                .is_some_and(|found| found.message.contains(what))
        });
        let conditions = until.await?.status.unwrap_or_default().conditions;
        anyhow::Ok(
            condition::find(&conditions, condition::PROGRESSING).cloned().context("no condition")?.message,
        )
    };
    whole(b"this is no gzip".to_vec()).await?;
    world.pause(false).await?;
    let text = until_message("it cannot be decompressed").await?;
    assert!(
        text.contains(&format!(
            "migrating storage: extension {:?} was installed through the Helm release in Secret olmv1-system/{index}, which cannot be \
             read: it cannot be decompressed: ",
            world.name
        )) && text.contains("; nothing was changed; restore the Secret from a backup, or delete the ClusterExtension"),
        "{text}"
    );
    for (bytes, what) in [
        (gzip(without_manifest.to_string().as_bytes())?, "the release has no manifest"),
        (gzip(b"7")?, "it is no release"),
        (gzip(&vec![b' '; 64 << 20])?, "it is larger than 33554432 bytes when decompressed"),
    ] {
        whole(bytes).await?;
        until_message(what).await?;
    }
    // a chunk is gone
    let restore = json!({"data": good[0].data});
    helm.secrets.patch(&index, &PatchParams::default(), &Patch::Merge(&restore)).await?;
    let second = good.get(1).context("the release is chunked")?;
    helm.secrets.delete(&second.name_any(), &Default::default()).await?;
    until_message(&format!("chunk {:?} is missing", second.name_any())).await?;

    assert_eq!(world.revisions().await?, []);
    assert_eq!(as_written(helm.live(&objects).await?)?, before, "nothing was touched");

    helm.secrets.create(&PostParams::default(), second).await?;
    world.again().await?;
    world.installed("1.0.0").await?;
    Ok(())
}

#[tokio::test]
async fn helm_migration_continues_after_interruption() -> Result<()> {
    let world = World::new("helm-cut").await?;
    let name = &world.name;
    let bundle = world.bundle("1.0.0").deployments([stuck_deployment("main")]);
    world.pause(true).await?;
    let helm = Helm::new(&world).await?;
    let objects = helm.objects(&bundle)?;
    helm.create(&objects).await?;
    helm.store(&Release { version: 1, status: "deployed", bundle_version: "1.0.0", objects, chunk: 1 << 20 })
        .await?;
    let extension = world.extensions.get(name).await?;
    // the process died after it had written the revision and before it could write its status
    let left = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {
            "name": format!("{name}-1"),
            "labels": {"olm.operatorframework.io/owner-kind": "ClusterExtension", "olm.operatorframework.io/owner-name": name,
                       "olm.operatorframework.io/migrated-from-helm": "true"},
            "annotations": {"olm.operatorframework.io/bundle-name": format!("{name}.v1.0.0"), "olm.operatorframework.io/bundle-version": "1.0.0",
                            "olm.operatorframework.io/package-name": name, "olm.operatorframework.io/bundle-reference": "registry.invalid/x:v1"},
            "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": name,
                                 "uid": extension.uid(), "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "None",
                 "phases": [{"name": "deploy", "objects": [{"object": helm.objects(&bundle)?.into_iter().find(|object| object["kind"] == "Deployment")}]}]},
    });
    world.sets.create(&PostParams::default(), &serde_json::from_value(left)?).await?;
    world.pause(false).await?;
    let set = Wait::new(&world.sets, &format!("{name}-1"))
        .within(LIMIT)
        .until("has succeeded", |set: &ClusterObjectSet| {
            set.status.as_ref().is_some_and(|s| condition::is_true(&s.conditions, condition::SUCCEEDED))
        })
        .await?;
    let conditions = set.status.unwrap_or_default().conditions;
    let succeeded = condition::find(&conditions, condition::SUCCEEDED).context("no condition")?;
    assert_eq!(
        (succeeded.reason.as_str(), succeeded.message.as_str()),
        ("Succeeded", "Revision succeeded - migrated from Helm release")
    );
    world
        .until("1.0.0 is installed", |extension| {
            let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
            installed.is_some_and(|install| install.bundle.version == "1.0.0")
        })
        .await?;
    assert_eq!(world.revisions().await?.len(), 1, "no catalog has the package, so nothing follows");
    Ok(())
}

/// The only controlling owner of an object.
fn controller(object: &DynamicObject) -> Result<String> {
    let owners = object.owner_references();
    let controlling: Vec<_> = owners.iter().filter(|owner| owner.controller == Some(true)).collect();
    match controlling[..] {
        [owner] => Ok(format!("{} {}", owner.kind, owner.name)),
        _ => anyhow::bail!("{}: {owners:?}", object.name_any()),
    }
}

/// The apiserver refuses to let a revision control the Deployment, so the takeover stops after the objects of earlier phases.
#[tokio::test]
async fn helm_adoption_converges_after_a_failed_write() -> Result<()> {
    let world = World::new("helm-half").await?;
    let name = &world.name;
    let bundle = world.bundle("1.0.0").deployments([deployment(name, json!([]))]);
    world.serve([("1.0.0", bundle.clone())], [Entry::new("1.0.0")]).await?;
    world.catalog_is_known().await?;
    world.pause(true).await?;
    let helm = Helm::new(&world).await?;
    let objects = helm.objects(&bundle)?;
    helm.create(&objects).await?;
    let chunk = 1 << 20;
    let release =
        Release { version: 1, status: "deployed", bundle_version: "1.0.0", objects: objects.clone(), chunk };
    helm.store(&release).await?;
    let before = uids(&helm.live(&objects).await?);

    let client = world.stack.cluster.client().await?;
    let (policies, bindings): (Api<ValidatingAdmissionPolicy>, Api<ValidatingAdmissionPolicyBinding>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let expression = format!(
        "request.namespace != '{name}' || !has(object.metadata.ownerReferences) || \
         !object.metadata.ownerReferences.exists(owner, owner.kind == 'ClusterObjectSet')"
    );
    let policy = json!({"metadata": {"name": name}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["UPDATE"],
                                                "resources": ["deployments"]}]},
        "validations": [{"expression": expression, "message": "no takeover today"}]}});
    let binding =
        json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}});
    policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let deployments: Api<Deployment> = Api::namespaced(client, name);
    let owned = json!({"metadata": {"ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                                                         "name": "x", "uid": "x"}]}});
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    eventually("the policy is in force", LIMIT, || async {
        let refused = deployments.patch(name, &dry_run, &Patch::Merge(&owned)).await;
        ensure!(refused.is_err_and(|error| error.to_string().contains("no takeover today")));
        Ok(())
    })
    .await?;

    world.want(json!({"version": "1.0.0"})).await?;
    world.pause(false).await?;
    let (old, new) = (format!("ClusterExtension {name}"), format!("ClusterObjectSet {name}-2"));
    let half = eventually("the takeover stops between two objects", LIMIT, || async {
        let live = helm.live(&objects).await?;
        let owners = live.iter().map(controller).collect::<Result<Vec<_>>>()?;
        ensure!(owners.contains(&old) && owners.contains(&new), "{owners:?}");
        Ok(live)
    })
    .await?;
    assert_eq!(uids(&half), before);
    let refused = |set: &ClusterObjectSet| {
        let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|found| found.message.contains("no takeover today"))
    };
    Wait::new(&world.sets, &format!("{name}-1"))
        .within(LIMIT)
        .until("reports the rejected write", refused)
        .await?;

    bindings.delete(name, &DeleteParams::default()).await?;
    policies.delete(name, &DeleteParams::default()).await?;
    world.again().await?;
    world.installed("1.0.0").await?;
    let live = helm.live(&objects).await?;
    assert_eq!(uids(&live), before);
    for object in &live {
        assert_eq!(controller(object)?, new, "{}", object.name_any());
    }
    Ok(())
}

#[tokio::test]
async fn helm_releases_not_in_force_or_foreign_are_ignored() -> Result<()> {
    let world = World::new("helm-others").await?;
    let bundle = world.bundle("1.0.0");
    world.serve([("1.0.0", bundle.clone())], [Entry::new("1.0.0")]).await?;
    world.pause(true).await?;
    let helm = Helm::new(&world).await?;
    let objects = helm.objects(&bundle)?;
    let release = |version, status| {
        let (objects, chunk) = (objects.clone(), 1 << 20);
        Release { version, status, bundle_version: "1.0.0", objects, chunk }
    };
    // one that failed and one of Helm itself, in the same namespace and under the same name
    helm.store(&release(1, "failed")).await?;
    let change = |version: i64, change: &dyn Fn(&mut Secret)| -> Result<Secret> {
        let mut secret = helm.secrets_of(&release(version, "deployed"))?.remove(0);
        change(&mut secret);
        Ok(secret)
    };
    let foreign = change(2, &|secret| {
        secret.type_ = Some("helm.sh/release.v1".to_owned());
        secret.labels_mut().insert("owner".to_owned(), "helm".to_owned());
    })?;
    let unlabelled = change(3, &|secret| secret.metadata.labels = None)?;
    let former = change(4, &|secret| {
        if let Some(owner) = secret.owner_references_mut().first_mut() {
            owner.uid = "00000000-0000-0000-0000-000000000000".to_owned();
        }
    })?;
    for secret in [foreign, unlabelled, former] {
        helm.secrets.create(&PostParams::default(), &secret).await?;
    }
    world.pause(false).await?;
    world.installed("1.0.0").await?;
    let first = world.sets.get(&format!("{}-1", world.name)).await?;
    assert!(!first.labels().contains_key("olm.operatorframework.io/migrated-from-helm"));
    Ok(())
}
