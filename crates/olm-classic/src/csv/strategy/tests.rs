//! Deployments and what is around them, where the records have no case.

use super::*;

fn csv(deployments: Value) -> ClusterServiceVersion {
    serde_json::from_value(json!({
        "metadata": {"name": "demo.v1", "namespace": "a", "uid": "u", "annotations": {"of": "csv", "both": "csv"}},
        "spec": {"displayName": "d", "install": {"strategy": "deployment", "spec": {"deployments": deployments}}},
    }))
    .unwrap()
}

fn deployment(name: &str, pod: Value) -> Value {
    json!({"name": name, "label": {"own": "label"}, "spec": {
        "selector": {"matchLabels": {"app": "m"}},
        "template": {"metadata": {"annotations": {"of": "pod", "both": "pod"}}, "spec": pod},
    }})
}

fn pod(object: &Object) -> &Value {
    &object.0["spec"]["template"]["spec"]
}

#[test]
fn strategy_errors_name_field_and_fix() {
    let with = |install: Value| {
        let mut csv = csv(json!([]));
        csv.spec.install = serde_json::from_value(install).unwrap();
        check(&csv).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let deployments =
        |deployments: Value| with(json!({"strategy": "deployment", "spec": {"deployments": deployments}}));
    assert_eq!(
        with(json!({"strategy": ""})),
        "spec.install.strategy is \"\"; only \"deployment\" is supported"
    );
    assert_eq!(with(json!({"strategy": "deployment"})), "spec.install.spec is missing");
    assert_eq!(
        deployments(json!([{"name": "", "spec": {}}])),
        "spec.install.spec.deployments[0] has no name"
    );
    let repeated =
        "spec.install.spec.deployments has \"m\" more than once; give each Deployment its own name";
    assert_eq!(deployments(json!([{"name": "m", "spec": {}}, {"name": "m", "spec": {}}])), repeated);
    let no_spec = "spec of deployment \"m\" in spec.install.spec.deployments is not an object";
    assert_eq!(deployments(json!([{"name": "m", "spec": null}])), no_spec);
    assert_eq!(deployments(json!([])), "");
}

#[test]
fn deployment_gets_annotations_of_csv_and_config() {
    let csv = csv(json!([deployment("m", json!({"containers": [{"name": "c"}]}))]));
    let config: SubscriptionConfig =
        serde_json::from_value(json!({"annotations": {"of": "config", "new": "config"}})).unwrap();
    let made = deployments(&csv, &Settings { config: Some(&config), ..Settings::default() }).unwrap();
    let annotations = &made[0].0["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(*annotations, json!({"of": "csv", "both": "csv", "new": "config"}));
    assert_eq!(made[0].0["metadata"]["annotations"], json!({"of": "config", "new": "config"}));
    assert_eq!((made[0].labels()["own"], made[0].labels()["olm.owner"]), ("label", "demo.v1"));
}

#[test]
fn deployment_loses_annotations_that_config_had() {
    let csv = csv(json!([deployment("m", json!({"containers": [{"name": "c"}]}))]));
    let config: SubscriptionConfig =
        serde_json::from_value(json!({"annotations": {"stays": "1", "goes": "1"}})).unwrap();
    let made = |config: &SubscriptionConfig| {
        let settings = Settings { config: Some(config), ..Settings::default() };
        deployments(&csv, &settings).unwrap().remove(0)
    };
    let mut live = made(&config);
    live.set_annotation("deployment.kubernetes.io/revision", "1");
    live.set_annotation("both", "a person");
    let fewer = serde_json::from_value(json!({"annotations": {"stays": "2"}})).unwrap();
    let mut left = live.clone();
    remove_withdrawn(&mut left, &made(&fewer));
    let annotations = json!({"both": "a person", "deployment.kubernetes.io/revision": "1", "stays": "1"});
    assert_eq!(left.0["metadata"]["annotations"], annotations);
    assert_eq!(left.0["spec"], live.0["spec"]);
    let mut same = live.clone();
    remove_withdrawn(&mut same, &live);
    assert_eq!(same, live);
}

#[test]
fn deployment_gets_proxy_unless_one_is_overridden() {
    let csv = csv(json!([deployment(
        "m",
        json!({"containers": [{"name": "c", "env": [{"name": "NO_PROXY", "value": "own"}]}]})
    )]));
    let proxy =
        || ["HTTP_PROXY", "NO_PROXY", "OTHER"].map(|name| (name.to_owned(), "cluster".to_owned())).into();
    let env = |config: Option<&SubscriptionConfig>| {
        let made = deployments(&csv, &Settings { config, proxy: proxy(), ..Settings::default() }).unwrap();
        let env = pod(&made[0])["containers"][0]["env"].as_array().unwrap().clone();
        env.iter()
            .map(|it| format!("{}={}", it["name"].as_str().unwrap(), it["value"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(env(None), ["NO_PROXY=cluster", "HTTP_PROXY=cluster", "OPERATOR_CONDITION_NAME=demo.v1"]);
    let config = serde_json::from_value(json!({"env": [{"name": "HTTPS_PROXY", "value": "mine"}]})).unwrap();
    assert_eq!(env(Some(&config)), ["NO_PROXY=own", "HTTPS_PROXY=mine", "OPERATOR_CONDITION_NAME=demo.v1"]);
}

#[test]
fn proxy_variables_are_the_fields_that_are_set() {
    let all = json!({"httpProxy": "http://p", "httpsProxy": "https://p", "noProxy": ".svc", "other": "x"});
    for (status, want) in [
        (all, &[("HTTPS_PROXY", "https://p"), ("HTTP_PROXY", "http://p"), ("NO_PROXY", ".svc")][..]),
        (json!({"httpProxy": "http://p", "noProxy": ""}), &[("HTTP_PROXY", "http://p")]),
        (json!({}), &[]),
        (Value::Null, &[]),
    ] {
        let found = proxy_variables(&status);
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, want, "{status}");
    }
}

#[test]
fn deployment_gets_a_bounded_number_of_settings() {
    let pod = json!({"containers": [{"name": "c"}, {"name": "d"}]});
    let csv = csv(json!([deployment("l", pod.clone()), deployment("m", pod)]));
    let variables = |count: usize| (0..count).map(|it| json!({"name": format!("V{it}")})).collect::<Vec<_>>();
    for (variables, tolerations, is_made) in [
        (variables(2_500), vec![], true),
        (variables(2_501), vec![], false),
        (variables(2_499), variables(3), false),
    ] {
        let config = SubscriptionConfig { env: variables, tolerations, ..SubscriptionConfig::default() };
        let made = deployments(&csv, &Settings { config: Some(&config), ..Settings::default() });
        assert_eq!(made.is_ok(), is_made, "{} variables", config.env.len());
        if let Err(error) = made {
            let text = error.to_string();
            assert!(text.starts_with("spec.config of the Subscription to demo.v1 adds 1000"), "{text}");
        }
    }
}

#[test]
#[rustfmt::skip]
fn deployment_affinity_parts_are_kept_replaced_or_erased() {
    let node = |key: &str| json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}]});
    for (before, config, want) in [
        (json!({"nodeAffinity": node("a")}), json!({"nodeAffinity": node("b")}), json!({"nodeAffinity": node("b")})),
        (json!({"nodeAffinity": node("a")}), json!({"nodeAffinity": {}}), Value::Null),
        (json!({"nodeAffinity": node("a")}), json!({}), Value::Null),
        (Value::Null, json!({"nodeAffinity": node("b"), "podAffinity": {}}), json!({"nodeAffinity": node("b"), "podAffinity": {}})),
        (Value::Null, json!({}), Value::Null),
    ] {
        let mut template = json!({"containers": []});
        if !before.is_null() {
            template["affinity"] = before.clone();
        }
        let config_: SubscriptionConfig = serde_json::from_value(json!({"affinity": config})).unwrap();
        let settings = Settings { config: Some(&config_), ..Settings::default() };
        let made = deployments(&csv(json!([deployment("m", template)])), &settings).unwrap();
        assert_eq!(pod(&made[0]).get("affinity").unwrap_or(&Value::Null), &want, "{before} {config}");
    }
}

#[test]
fn certificate_takes_the_place_of_same_path_and_volume() {
    let mut pod = json!({
        "volumes": [{"name": "webhook-cert", "emptyDir": {}}, {"name": "x", "emptyDir": {}}],
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "c", "volumeMounts": [
            {"name": "x", "mountPath": "/tmp/k8s-webhook-server/serving-certs"}, {"name": "apiservice-cert", "mountPath": "/o"},
        ]}, {"name": "d"}],
    });
    serving::mount_certificate(pod.as_object_mut().unwrap(), "sec");
    let volume = |name: &str, certificate: &str, key: &str| json!({"name": name, "secret": {"secretName": "sec", "items": [{"key": "tls.crt", "path": certificate}, {"key": "tls.key", "path": key}]}});
    // as the reference's own function does it
    let webhook = json!({"name": "webhook-cert", "mountPath": "/tmp/k8s-webhook-server/serving-certs"});
    assert_eq!(
        pod,
        json!({
            "volumes": [
                volume("webhook-cert", "tls.crt", "tls.key"), {"name": "x", "emptyDir": {}},
                volume("apiservice-cert", "apiserver.crt", "apiserver.key"),
            ],
            "initContainers": [{"name": "i"}],
            "containers": [
                {"name": "c", "volumeMounts": [webhook, {"name": "apiservice-cert", "mountPath": "/o"}]},
                {"name": "d", "volumeMounts": [{"name": "apiservice-cert", "mountPath": "/apiserver.local.config/certificates"}, webhook]},
            ],
        })
    );
}

#[test]
fn obsolete_deployments_are_those_of_the_csv_only() {
    let csv = csv(json!([deployment("m", json!({"containers": []}))]));
    let owned = |name: &str| {
        let mut object = managed("apps/v1", "Deployment", "a", name);
        set_owner(&mut object, &csv);
        object
    };
    let mut foreign = owned("foreign");
    foreign.set_label("olm.owner", "other.v1");
    let live = [owned("m"), owned("old"), foreign];
    let names: Vec<_> = obsolete(&csv, &live).iter().map(|object| object.name()).collect();
    assert_eq!(names, ["old"]);
    let mut invalid = csv.clone();
    invalid.spec.install.spec = None;
    assert_eq!(obsolete(&invalid, &live), Vec::<&Object>::new());
}

#[test]
fn service_has_a_port_for_each_webhook_and_api() {
    let mut csv = csv(json!([deployment("my.m", json!({"containers": [], "serviceAccountName": "sa"}))]));
    let webhook = |port: Value, target: Value| {
        let mut webhook = json!({"generateName": "w", "type": "MutatingAdmissionWebhook", "deploymentName": "my.m", "sideEffects": "None", "admissionReviewVersions": ["v1"], "reinvocationPolicy": "Never"});
        if !port.is_null() {
            webhook["containerPort"] = port;
        }
        if !target.is_null() {
            webhook["targetPort"] = target;
        }
        webhook
    };
    csv.spec.webhook_definitions = serde_json::from_value(json!([
        webhook(Value::Null, json!("https")),
        webhook(json!(8443), Value::Null)
    ]))
    .unwrap();
    csv.spec.api_service_definitions = serde_json::from_value(json!({"owned": [
        {"name": "as", "group": "x", "version": "v1", "kind": "A", "deploymentName": "my.m", "containerPort": 5443},
        {"name": "bs", "group": "y", "version": "v1", "kind": "B", "deploymentName": "absent"},
    ]}))
    .unwrap();
    let objects = serving::objects(&csv, "my.m", "h");
    let names: Vec<_> = objects.iter().map(|it| format!("{} {}", it.kind(), it.name())).collect();
    assert_eq!(
        names,
        [
            "Service my-m-service",
            "Secret my-m-service-cert",
            "Role my-m-service-cert",
            "RoleBinding my-m-service-cert",
            "ClusterRoleBinding my-m-service-system:auth-delegator",
            "RoleBinding my-m-service-auth-reader",
        ]
    );
    let port =
        |port: i32, target: Value| json!({"name": port.to_string(), "port": port, "targetPort": target});
    let ports = json!([port(443, json!("https")), port(5443, json!(5443)), port(8443, json!(8443))]);
    assert_eq!(objects[0].0["spec"], json!({"ports": ports, "selector": {"app": "m"}}));
    assert!(serving::objects(&csv, "absent", "h").is_empty(), "a Deployment that the strategy does not have");
    let webhook =
        serving::webhook_configuration(&csv, &csv.spec.webhook_definitions[1], &json!({}), "ca").unwrap();
    assert_eq!(
        (webhook.kind(), &webhook.0["metadata"]["generateName"]),
        ("MutatingWebhookConfiguration", &json!("w-"))
    );
    let entry = &webhook.0["webhooks"][0];
    assert_eq!(
        (&entry["reinvocationPolicy"], entry.get("namespaceSelector")),
        (&json!("Never"), Some(&json!({})))
    );
    let service =
        serving::api_service(&csv, &csv.spec.api_service_definitions.as_ref().unwrap().owned[0], "ca");
    assert_eq!((service.name(), &service.0["spec"]["service"]["port"]), ("v1.x", &json!(5443)));
}

#[test]
fn conversion_ends_with_the_last_csv_that_has_it() {
    let converting = |name: &str, crds: Value| {
        let mut csv = csv(json!([]));
        csv.metadata.name = Some(name.to_owned());
        csv.spec.webhook_definitions = serde_json::from_value(json!([
            {"generateName": "c", "type": "ConversionWebhook", "deploymentName": "m.n", "sideEffects": "None",
                "admissionReviewVersions": ["v1"], "conversionCRDs": crds},
            {"generateName": "v", "type": "ValidatingAdmissionWebhook", "deploymentName": "m.n", "sideEffects": "None",
                "admissionReviewVersions": ["v1"]},
        ]))
        .unwrap();
        csv
    };
    let old = converting("demo.v1", json!(["as.x", "bs.x"]));
    let abandoned = |others: &[ClusterServiceVersion]| {
        let found = serving::abandoned(&old, others);
        found.into_iter().map(|(crd, service)| format!("{crd} {service}")).collect::<Vec<_>>()
    };
    assert_eq!(abandoned(&[]), ["as.x m-n-service", "bs.x m-n-service"]);
    let mut new = converting("demo.v2", json!(["bs.x"]));
    assert_eq!(abandoned(&[old.clone(), new.clone()]), ["as.x m-n-service"], "its successor has the other");
    new.metadata.deletion_timestamp = serde_json::from_value(json!("2024-01-01T00:00:00Z")).unwrap();
    assert_eq!(abandoned(&[new]), ["as.x m-n-service", "bs.x m-n-service"], "it goes, too");
}
