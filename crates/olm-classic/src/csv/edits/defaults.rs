//! Values that the apiserver gives to fields of a Deployment that are not set.
//!
//! Fields of a pod template do not get new defaults from one version of Kubernetes to the next: those would restart the pods of every
//! Deployment. Volumes that only in-tree drivers of storage have are left out.

use serde_json::{Value, json};

/// The mode of files of a volume, 0644.
const FILE_MODE: u32 = 420;

/// Adds the defaults to the specification of a Deployment.
pub(super) fn add(spec: &mut Value) {
    fill(
        spec,
        &json!({
            "replicas": 1, "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10, "strategy": {"type": "RollingUpdate"},
        }),
    );
    if spec["strategy"]["type"] == "RollingUpdate" {
        fill(spec, &json!({"strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}));
    }
    if let Some(pod) = spec.pointer_mut("/template/spec") {
        add_to_pod(pod);
    }
}

/// Adds members that are absent, at every depth. A value that is no object stays.
fn fill(value: &mut Value, defaults: &Value) {
    let (Value::Object(members), Value::Object(defaults)) = (value, defaults) else { return };
    for (member, default) in defaults {
        fill(members.entry(member.clone()).or_insert_with(|| default.clone()), default);
    }
}

/// As [`fill`], of a member that is there.
fn fill_member(value: &mut Value, member: &str, defaults: &Value) {
    if let Some(member) = value.get_mut(member) {
        fill(member, defaults);
    }
}

fn items<'a>(value: &'a mut Value, member: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten()
}

fn add_to_pod(pod: &mut Value) {
    fill(
        pod,
        &json!({
            "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
        }),
    );
    // one of the two is the old name of the other
    for (from, to) in [("serviceAccountName", "serviceAccount"), ("serviceAccount", "serviceAccountName")] {
        if let Some(account) = pod.get(from).cloned() {
            fill(pod, &json!({ to: account }));
        }
    }
    for list in ["initContainers", "containers"] {
        items(pod, list).for_each(add_to_container);
    }
    items(pod, "volumes").for_each(add_to_volume);
}

fn add_to_container(container: &mut Value) {
    let policy = pull_policy(container["image"].as_str().unwrap_or_default());
    fill(
        container,
        &json!({
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": policy,
        }),
    );
    for port in items(container, "ports") {
        fill(port, &json!({"protocol": "TCP"}));
    }
    for variable in items(container, "env") {
        if let Some(from) = variable.get_mut("valueFrom") {
            fill_member(from, "fieldRef", &json!({"apiVersion": "v1"}));
            fill_member(from, "fileKeyRef", &json!({"optional": false}));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe) {
            let defaults = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
            fill(probe, &defaults);
            add_to_handler(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_mut("lifecycle").and_then(|it| it.get_mut(hook)) {
            add_to_handler(hook);
        }
    }
}

fn add_to_handler(handler: &mut Value) {
    fill_member(handler, "httpGet", &json!({"path": "/", "scheme": "HTTP"}));
    fill_member(handler, "grpc", &json!({"service": ""}));
}

/// An image without a tag is the latest one, unless a digest names it.
fn pull_policy(image: &str) -> &'static str {
    let name = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    if is_latest { "Always" } else { "IfNotPresent" }
}

fn add_to_volume(volume: &mut Value) {
    let mode = json!({"defaultMode": FILE_MODE});
    for source in ["secret", "configMap", "projected", "downwardAPI"] {
        fill_member(volume, source, &mode);
    }
    fill_member(volume, "hostPath", &json!({"type": ""}));
    if let Some(claim) = volume.pointer_mut("/ephemeral/volumeClaimTemplate") {
        fill_member(claim, "spec", &json!({"volumeMode": "Filesystem"}));
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        add_to_downward(downward);
    }
    for source in volume.get_mut("projected").into_iter().flat_map(|projected| items(projected, "sources")) {
        fill_member(source, "serviceAccountToken", &json!({"expirationSeconds": 3600}));
        if let Some(downward) = source.get_mut("downwardAPI") {
            add_to_downward(downward);
        }
    }
}

fn add_to_downward(source: &mut Value) {
    for item in items(source, "items") {
        fill_member(item, "fieldRef", &json!({"apiVersion": "v1"}));
    }
}
