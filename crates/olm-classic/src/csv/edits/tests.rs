use super::*;

fn deployment(spec: Value) -> Object {
    let labels = json!({"app": "web", (SPEC_HASH): "h"});
    let annotations = json!({"of": "config"});
    let metadata = json!({"name": "web", "namespace": "n", "labels": labels, "annotations": annotations});
    Object::from_value(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}),
    )
    .unwrap()
}

fn desired() -> Object {
    deployment(json!({
        "revisionHistoryLimit": 1, "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"olm.targetNamespaces": "n"}},
            "spec": {"serviceAccountName": "web", "containers": [{
                "name": "manager", "image": "registry.test:5000/web:v1", "args": ["--a", "--b"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
                "livenessProbe": {"httpGet": {"port": 80}},
                "unknownField": 1,
            }]},
        },
    }))
}

/// As the apiserver stores it.
fn live() -> Value {
    let metadata = json!({
        "name": "web", "namespace": "n", "uid": "u", "resourceVersion": "9", "generation": 1,
        "labels": {"app": "web", (SPEC_HASH): "h", "operators.coreos.com/demo.n": ""},
        "annotations": {"of": "config", "deployment.kubernetes.io/revision": "1"},
    });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {
            "replicas": 1, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"creationTimestamp": null, "labels": {"app": "web"}, "annotations": {"olm.targetNamespaces": "n"}},
                "spec": {
                    "serviceAccountName": "web", "serviceAccount": "web", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                    "schedulerName": "default-scheduler", "terminationGracePeriodSeconds": 30, "securityContext": {},
                    "containers": [{
                        "name": "manager", "image": "registry.test:5000/web:v1", "imagePullPolicy": "IfNotPresent", "args": ["--a", "--b"],
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "B", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                        ],
                        "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                        "livenessProbe": {
                            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                            "successThreshold": 1, "failureThreshold": 3,
                        },
                        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    }],
                },
            },
        },
        "status": {"replicas": 1, "observedGeneration": 1},
    })
}

/// The fields that differ after a change of the stored Deployment.
fn fields(edit: impl FnOnce(&mut Value)) -> Vec<FieldChange> {
    let mut live = live();
    edit(&mut live);
    let found = edited(&[desired()], &[Object::from_value(live).unwrap()]);
    found.into_iter().flat_map(|edited| edited.fields).collect()
}

fn paths(edit: impl FnOnce(&mut Value)) -> Vec<String> {
    fields(edit).into_iter().map(|field| field.path).collect()
}

#[test]
fn edits_are_not_defaults_nor_what_others_own() {
    assert_eq!(fields(|_| {}), []);
    type Edit = fn(&mut Value);
    let others: [(&str, Edit); 4] = [
        ("status", |it| it["status"]["replicas"] = 3.into()),
        ("restart", |it| it["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] = "now".into()),
        ("label", |it| it["metadata"]["labels"]["theirs"] = "x".into()),
        ("annotation", |it| it["metadata"]["annotations"]["theirs"] = "x".into()),
    ];
    for (name, edit) in others {
        assert_eq!(fields(edit), [], "{name}");
    }
}

#[test]
fn edits_name_each_field() {
    const MANAGER: &str = "/spec/template/spec/containers/0";
    fn manager(live: &mut Value) -> &mut Value {
        live.pointer_mut(MANAGER).unwrap()
    }
    type Edit = fn(&mut Value);
    #[rustfmt::skip]
    let cases: [(Edit, &[&str]); 12] = [
        (|it| manager(it)["image"] = "web:v2".into(), &["spec.template.spec.containers[manager].image"]),
        (|it| it["spec"]["replicas"] = 3.into(), &["spec.replicas"]),
        (|it| it["metadata"]["labels"]["app"] = "x".into(), &["metadata.labels.app"]),
        (|it| it["metadata"]["annotations"] = json!({}), &["metadata.annotations.of"]),
        (|it| it["spec"]["template"]["metadata"]["annotations"]["a.b/c"] = "x".into(), &["spec.template.metadata.annotations[a.b/c]"]),
        (|it| it["spec"]["template"]["spec"]["nodeSelector"] = json!({"a": "b"}), &["spec.template.spec.nodeSelector"]),
        (|it| it["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 5.into(),
            &["spec.template.spec.terminationGracePeriodSeconds"]),
        (|it| manager(it)["env"] = json!([{"name": "A", "value": "2"}, {"name": "C", "value": "3"}]),
            &["spec.template.spec.containers[manager].env[A].value", "spec.template.spec.containers[manager].env[B]",
                "spec.template.spec.containers[manager].env[C]"]),
        (|it| manager(it)["args"] = json!(["--a"]), &["spec.template.spec.containers[manager].args[1]"]),
        (|it| manager(it)["resources"]["limits"]["memory"] = "2Gi".into(),
            &["spec.template.spec.containers[manager].resources.limits.memory"]),
        (|it| manager(it)["imagePullPolicy"] = "Always".into(), &["spec.template.spec.containers[manager].imagePullPolicy"]),
        (|it| { it["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "side", "image": "s"})) },
            &["spec.template.spec.containers[side]"]),
    ];
    for (edit, want) in cases {
        assert_eq!(paths(edit), want);
    }
    let replicas = fields(|it| it["spec"]["replicas"] = 3.into());
    assert_eq!((&replicas[0].old, &replicas[0].new), (&Some(json!(1)), &Some(json!(3))));
}

#[test]
fn edits_of_an_outdated_deployment_do_not_count() {
    let outdated = |it: &mut Value| {
        it["metadata"]["labels"][SPEC_HASH] = "older".into();
        it["spec"]["replicas"] = 3.into();
    };
    assert_eq!(fields(outdated), []);
    assert_eq!(edited(&[desired()], &[]), []);
}

#[test]
fn edits_are_listed_up_to_a_number() {
    let found = edited(
        &[desired()],
        &[{
            let mut live = live();
            live["spec"]["replicas"] = 3.into();
            live["spec"]["paused"] = true.into();
            live["metadata"]["labels"]["app"] = "x".into();
            Object::from_value(live).unwrap()
        }],
    );
    assert_eq!(found[0].paths(5), "metadata.labels.app, spec.paused, spec.replicas");
    assert_eq!(found[0].paths(1), "metadata.labels.app and 2 more");
}

#[test]
fn repaired_deployment_keeps_a_restart() {
    let mut live = live();
    live["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] = "now".into();
    live["spec"]["replicas"] = 3.into();
    let repaired = repaired(&desired(), &Object::from_value(live).unwrap());
    let mut want = desired().into_value();
    want["spec"]["template"]["metadata"]["annotations"][RESTARTED_AT] = "now".into();
    assert_eq!(repaired.into_value(), want);
}

#[test]
fn defaults_depend_on_other_fields() {
    let pod = |pod: Value| {
        let mut spec = json!({"template": {"spec": pod}});
        defaults::add(&mut spec);
        spec["template"]["spec"].take()
    };
    for (image, want) in [
        ("a", "Always"),
        ("r.test:5000/a", "Always"),
        ("r.test/a:latest", "Always"),
        ("r.test/a:v1", "IfNotPresent"),
        ("r.test:5000/a@sha256:0", "IfNotPresent"),
    ] {
        let made = pod(json!({"containers": [{"name": "c", "image": image}]}));
        assert_eq!(made["containers"][0]["imagePullPolicy"], want, "{image}");
    }
    let made = pod(
        json!({"volumes": [{"name": "v", "secret": {"secretName": "s", "defaultMode": 256}}, {"name": "e", "emptyDir": {}}]}),
    );
    assert_eq!(
        made["volumes"],
        json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": 256}}, {"name": "e", "emptyDir": {}}])
    );
    let mut recreated = json!({"strategy": {"type": "Recreate"}});
    defaults::add(&mut recreated);
    assert_eq!(recreated["strategy"], json!({"type": "Recreate"}));
}
