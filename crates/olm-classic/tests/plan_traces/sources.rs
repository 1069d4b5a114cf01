//! Recorded catalog sources: the status that is derived from spec and annotations is the recorded one.

use olm_api::classic::CatalogSource;
use olm_api::classic::catalog_source::ConfigMapReference;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_classic::catalog_source::{ConnectionState, SourceObserved, sync, template, validate};
use olm_core::KubernetesVersion;
use serde_json::{Value, json};

use crate::compare::differences;
use crate::scenario::scenarios;
use crate::world::typed;

/// The version of the apiserver of the records.
const SERVER: KubernetesVersion = KubernetesVersion { major: 1, minor: 36, patch: 3 };

/// Without times; conditions by type.
fn status_view(source: &CatalogSource, observed: SourceObserved<'_>) -> Value {
    let status = sync(source, observed, Timestamp::from_second(1_700_000_000).unwrap());
    let mut value = serde_json::to_value(status).unwrap();
    for (part, time) in [
        ("/connectionState", "lastConnect"),
        ("/registryService", "createdAt"),
        ("/configMapReference", "lastUpdateTime"),
    ] {
        if let Some(Value::Object(part)) = value.pointer_mut(part) {
            part.remove(time);
        }
    }
    if let Some(conditions) = value.get("conditions").and_then(Value::as_array).cloned() {
        let mut by_type = json!({});
        for condition in conditions {
            let of = |member: &str| condition[member].clone();
            by_type[condition["type"].as_str().unwrap()] =
                json!({"status": of("status"), "reason": of("reason"), "message": of("message")});
        }
        value["conditions"] = by_type;
    }
    value
}

#[test]
fn catalog_source_status_is_the_recorded_one() {
    let Some(scenarios) = scenarios() else { return };
    let (mut count, mut wrong) = (0, Vec::new());
    for scenario in &scenarios {
        for (snapshot, content) in scenario.outcome["snapshots"].as_object().into_iter().flatten() {
            let objects = content["objects"].as_array().unwrap().iter();
            for recorded in objects.filter(|it| it["kind"] == "CatalogSource") {
                count += 1;
                // the lab's registry has no name in the records
                let text = recorded.to_string().replace("<registry>", "registry.example.com");
                let recorded: Value = serde_json::from_str(&text).unwrap();
                let metadata = json!({
                    "name": recorded["name"], "namespace": recorded["namespace"],
                    "annotations": recorded.get("annotations").cloned().unwrap_or_else(|| json!({})),
                });
                let value = json!({"metadata": metadata, "spec": recorded["spec"]});
                let source: CatalogSource = typed("v1alpha1", "CatalogSource", value);
                let is_valid = validate(&source.spec).is_ok();
                let is_down = scenario.id == "cs-flap" && snapshot == "down";
                let state = if is_down { ConnectionState::TransientFailure } else { ConnectionState::Ready };
                let reference: Option<ConfigMapReference> = recorded["status"]
                    .get("configMapReference")
                    .map(|it| serde_json::from_value(it.clone()).unwrap());
                let observed = SourceObserved {
                    version: Some(SERVER),
                    config_map: reference.as_ref(),
                    is_served: is_valid,
                    problem: None,
                    connection: is_valid.then_some(state),
                };
                let mut ours = status_view(&source, observed);
                let mut recorded_status = recorded["status"].clone();
                // a cure is added to what the reference reports of an interval
                if recorded_status["reason"] == "InvalidIntervalError" {
                    let text = recorded_status["message"].as_str().unwrap();
                    assert!(ours["message"].as_str().unwrap().starts_with(text), "{ours}");
                    recorded_status["message"] = ours["message"].take();
                    ours["message"] = recorded_status["message"].clone();
                }
                // and a note where the reference has settings for its pod, and reports nothing
                if source.spec.grpc_pod_config.is_some() && recorded_status["message"].is_null() {
                    let note = ours.as_object_mut().unwrap().remove("message");
                    assert!(note.is_none_or(|it| it.as_str().unwrap().starts_with("spec.grpcPodConfig")));
                }
                let path = format!("{}/{snapshot}", scenario.id);
                differences(&path, &ours, &recorded_status, &mut wrong);
                // the image was written already
                let decision =
                    template(&source, Some(SERVER), Timestamp::from_second(1_700_000_000).unwrap());
                assert_eq!(decision.image, None, "{path}");
            }
        }
    }
    println!("{count} catalog sources compared");
    assert!(count > 50, "{count}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
