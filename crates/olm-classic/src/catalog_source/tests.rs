use std::time::Duration;

use olm_api::ConditionStatus;
use olm_api::classic::CatalogSource;
use olm_api::classic::catalog_source::ConfigMapReference;
use olm_api::k8s_openapi::jiff::Timestamp;
use olm_core::KubernetesVersion;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const SERVER: KubernetesVersion = KubernetesVersion { major: 1, minor: 25, patch: 4 };

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn source(spec: Value) -> CatalogSource {
    let metadata =
        json!({"name": "my.catalog", "namespace": "ns", "creationTimestamp": "1970-01-01T00:00:00Z"});
    let value = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource", "metadata": metadata, "spec": spec});
    serde_json::from_value(value).unwrap()
}

fn with_template(text: &str, image: &str) -> CatalogSource {
    let mut source = source(json!({"sourceType": "grpc", "image": image}));
    source.metadata.annotations = Some([(TEMPLATE_ANNOTATION.to_owned(), text.to_owned())].into());
    source
}

#[test]
#[rustfmt::skip]
fn validate_has_the_texts_of_the_reference() {
    for (spec, want) in [
        (json!({"sourceType": "grpc", "image": "i", "address": "a"}), Ok(Backing::Image("i"))),
        (json!({"sourceType": "grpc", "address": "a"}), Ok(Backing::Address("a"))),
        (json!({"sourceType": "configmap", "configMap": "c"}), Ok(Backing::ConfigMap("c"))),
        (json!({"sourceType": "internal", "configMap": "c", "image": "i"}), Ok(Backing::ConfigMap("c"))),
        (json!({"sourceType": "configmap"}), Err("configmap name unset: must be set for sourcetype: configmap")),
        (json!({"sourceType": "internal"}), Err("configmap name unset: must be set for sourcetype: internal")),
        (json!({"sourceType": "grpc"}), Err("image and address unset: at least one must be set for sourcetype: grpc")),
        (json!({"sourceType": "http", "image": "i"}), Err("unknown sourcetype: http")),
    ] {
        let source = source(spec.clone());
        let got = validate(&source.spec);
        assert!(got.as_ref().err().is_none_or(|error| error.fix().starts_with("set spec.")), "{spec}");
        assert_eq!(got.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{spec}");
    }
}

#[test]
fn sync_reports_service_and_connection() {
    let ready = SourceObserved {
        is_served: true,
        connection: Some(ConnectionState::Ready),
        ..SourceObserved::default()
    };
    let image = source(json!({"sourceType": "grpc", "image": "registry.example.com/c:v1"}));
    let status = sync(&image, ready, at(10));
    let connection = status.connection_state.clone().unwrap();
    assert_eq!(connection.address, "my-catalog.ns.svc:50051");
    assert_eq!((connection.last_observed_state.as_str(), connection.last_connect.is_some()), ("READY", true));
    let service = status.registry_service.clone().unwrap();
    assert_eq!((service.port.as_str(), service.service_name.as_str()), ("50051", "my-catalog"));
    assert_eq!((status.reason.as_str(), status.message.as_str()), ("", ""));
    let mut written = image.clone();
    written.status = Some(status.clone());
    assert_eq!(sync(&written, ready, at(99)), status, "nothing is written when nothing changed");
    let down = SourceObserved { connection: Some(ConnectionState::TransientFailure), ..ready };
    let status = sync(&written, down, at(99)).connection_state.unwrap();
    let got = (status.last_observed_state.as_str(), status.last_connect);
    assert_eq!(got, ("TRANSIENT_FAILURE", connection.last_connect));
    let by_address = sync(&source(json!({"sourceType": "grpc", "address": "a:1"})), ready, at(10));
    assert_eq!(by_address.connection_state.unwrap().address, "a:1");
    assert_eq!(by_address.registry_service.unwrap().port, "");
}

#[test]
#[rustfmt::skip]
fn sync_reports_what_is_wrong() {
    let interval = |text: &str| json!({"sourceType": "grpc", "image": "i", "updateStrategy": {"registryPoll": {"interval": text}}});
    let observed = SourceObserved { is_served: true, ..SourceObserved::default() };
    let broken = SourceObserved { problem: Some("disk full"), ..observed };
    let config_map = ConfigMapReference::default();
    let down = SourceObserved { connection: Some(ConnectionState::TransientFailure), ..broken };
    let with_map = SourceObserved { config_map: Some(&config_map), ..down };
    let forbidden = SourceObserved { problem: Some("forbidden"), connection: Some(ConnectionState::Connecting), ..observed };
    for (spec, observed, reason, message) in [
        (json!({"sourceType": "x"}), observed, "SpecInvalidError", "unknown sourcetype: x"),
        (json!({"sourceType": "configmap", "configMap": "c"}), observed, "ConfigMapError",
            "failed to get catalog config map c: configmaps ns/c not found"),
        (json!({"sourceType": "configmap", "configMap": "c"}), down, "ConfigMapError",
            "failed to get catalog config map c: configmaps ns/c not found"),
        (json!({"sourceType": "configmap", "configMap": "c"}), forbidden, "ConfigMapError",
            "failed to get catalog config map c: forbidden"),
        (json!({"sourceType": "grpc", "image": "i"}), broken, "RegistryServerError", "disk full"),
        (json!({"sourceType": "grpc", "address": "a:1"}), broken, "RegistryServerError", "disk full"),
        (json!({"sourceType": "grpc", "address": "a:1"}), down, "", "disk full"),
        (json!({"sourceType": "grpc", "image": "i"}), down, "", "disk full"),
        (json!({"sourceType": "configmap", "configMap": "c"}), with_map, "ConfigMapError", "disk full"),
        (
            interval("soon"),
            observed,
            "InvalidIntervalError",
            "error parsing spec.updateStrategy.registryPoll.interval. Using the default value of 15m0s instead. Error: time: \
             invalid duration \"soon\"; write it like 12h or 1m30s",
        ),
        (
            interval("soon"),
            down,
            "InvalidIntervalError",
            "error parsing spec.updateStrategy.registryPoll.interval. Using the default value of 15m0s instead. Error: time: \
             invalid duration \"soon\"; write it like 12h or 1m30s; disk full",
        ),
    ] {
        let mut source = source(spec.clone());
        let status = sync(&source, observed, at(1));
        assert_eq!((status.reason.as_str(), status.message.as_str()), (reason, message), "{spec}");
        source.status = Some(status);
        let fix = if reason == "SpecInvalidError" { "; set spec.sourceType to grpc or configmap" } else { "" };
        assert_eq!(catalog_wait(&source), Some(format!("{message}{fix}")), "{spec}");
    }
}

#[test]
fn sync_notes_that_pod_settings_have_no_effect() {
    let note = "spec.grpcPodConfig has no effect: the image is read without a registry pod";
    let settings = json!({"nodeSelector": {"zone": "a"}});
    let polled = json!({"registryPoll": {"interval": "often"}});
    for (spec, want) in [
        (json!({"sourceType": "grpc", "image": "i", "grpcPodConfig": settings}), ["", note]),
        (json!({"sourceType": "grpc", "image": "i", "grpcPodConfig": {}}), ["", ""]),
        (json!({"sourceType": "grpc", "address": "a:1", "grpcPodConfig": settings}), ["", ""]),
        (json!({"sourceType": "grpc", "image": "i"}), ["", ""]),
    ] {
        let observed = SourceObserved { is_served: true, ..SourceObserved::default() };
        let mut source = source(spec.clone());
        let status = sync(&source, observed, at(1));
        assert_eq!([status.reason.as_str(), &status.message], want, "{spec}");
        source.status = Some(status);
        assert_eq!(catalog_wait(&source), None, "{spec}");
    }
    let spec =
        json!({"sourceType": "grpc", "image": "i", "grpcPodConfig": settings, "updateStrategy": polled});
    let status = sync(&source(spec), SourceObserved::default(), at(1));
    assert_eq!(status.reason, "InvalidIntervalError");
    assert!(!status.message.contains(note), "{}", status.message);
}

#[test]
fn sync_records_the_config_map_that_was_read() {
    let source = source(json!({"sourceType": "configmap", "configMap": "c"}));
    let map = |version: &str| ConfigMapReference {
        name: "c".to_owned(),
        namespace: "ns".to_owned(),
        uid: "u".to_owned(),
        resource_version: version.to_owned(),
        ..ConfigMapReference::default()
    };
    let (first, second) = (map("1"), map("2"));
    let observed =
        |map| SourceObserved { config_map: Some(map), is_served: true, ..SourceObserved::default() };
    let mut written = source.clone();
    written.status = Some(sync(&source, observed(&first), at(1)));
    let again = sync(&written, observed(&first), at(2)).config_map_reference.unwrap();
    let changed = sync(&written, observed(&second), at(2)).config_map_reference.unwrap();
    let time = |it: &ConfigMapReference| it.last_update_time.as_ref().unwrap().0;
    assert_eq!((time(&again), time(&changed), changed.resource_version.as_str()), (at(1), at(2), "2"));
}

#[test]
fn health_is_what_is_served() {
    for (spec, is_served, want) in [
        (json!({"sourceType": "grpc", "address": "a"}), false, true),
        (json!({"sourceType": "grpc", "image": "i"}), false, false),
        (json!({"sourceType": "grpc", "image": "i"}), true, true),
        (json!({"sourceType": "configmap", "configMap": "c"}), true, true),
        (json!({"sourceType": "grpc"}), true, false),
    ] {
        assert_eq!(is_healthy(&source(spec.clone()), is_served), want, "{spec} {is_served}");
    }
}

#[test]
#[rustfmt::skip]
fn template_sets_image_and_conditions() {
    let resolved = "catalog image reference was successfully resolved";
    let (cannot, improper) =
        ("cannot construct catalog image reference, because", "one or more template(s) has improper syntax");
    let one = "variable(s) \"{kube_minor_version}\" could not be resolved";
    let (t, f) = (ConditionStatus::True, ConditionStatus::False);
    for (text, image, version, written, status, message, shown, stops) in [
        ("r.io/c:v{kube_major_version}.{kube_minor_version}", "old", Some(SERVER), Some("r.io/c:v1.25"), t, resolved.to_owned(),
            "r.io/c:v1.25", false),
        ("r.io/c:v{kube_patch_version}", "r.io/c:v4", Some(SERVER), None, t, resolved.to_owned(), "r.io/c:v4", false),
        ("r.io/c:v{kube_minor_version}", "old", None, None, f, format!("{cannot} {one}"), "r.io/c:v{kube_minor_version}", false),
        ("r.io/c:{foo}", "", Some(SERVER), None, f, format!("{cannot} {improper}"), "r.io/c:{foo}", true),
        ("r.io/c:{foo}{kube_minor_version}", "", None, None, f, format!("{cannot} {one} and {improper}"),
            "r.io/c:{foo}{kube_minor_version}", true),
    ] {
        let decision = template(&with_template(text, image), version, at(1));
        assert_eq!((decision.image.as_deref(), decision.stops), (written, stops), "{text}");
        let got: Vec<_> = decision
            .conditions
            .iter()
            .map(|it| (it.type_.as_str(), it.status, it.message.as_str()))
            .collect();
        assert_eq!(
            got,
            [("TemplatesHaveResolved", status, message.as_str()), ("ResolvedImage", status, shown)],
            "{text}"
        );
        let mut written = with_template(text, image);
        written.status = Some(sync(&written, SourceObserved { version, ..SourceObserved::default() }, at(1)));
        assert_eq!(template(&written, version, at(9)).conditions, decision.conditions, "{text}: times stay");
        written.metadata.annotations = None;
        assert_eq!(template(&written, version, at(9)).conditions, Vec::new(), "{text}: no template any more");
    }
    let invalid = template(&with_template("R.io/C c:v{kube_minor_version}", ""), Some(SERVER), at(1));
    assert!(invalid.stops && invalid.conditions[0].message.contains("is no image reference"), "{invalid:?}");
}

#[test]
fn polling_is_due_after_the_interval() {
    let of = |spec: Value| Polling::from_source(&source(spec));
    let polled = |text: &str| json!({"sourceType": "grpc", "image": "i", "updateStrategy": {"registryPoll": {"interval": text}}});
    assert_eq!(of(json!({"sourceType": "grpc", "image": "i"})), None);
    assert_eq!(of(json!({"sourceType": "grpc", "image": "i", "updateStrategy": {"registryPoll": {}}})), None);
    let by_address =
        json!({"sourceType": "grpc", "address": "a", "updateStrategy": {"registryPoll": {"interval": "5m"}}});
    assert_eq!(of(by_address), None);
    for text in ["soon", "0s", "-5m", "5"] {
        let polling = of(polled(text)).unwrap();
        assert_eq!((polling.interval, polling.error.is_some()), (FALLBACK_INTERVAL, true), "{text}");
    }
    for (text, milliseconds) in [("1ns", 1000), ("999ms", 1000), ("1.5s", 1500)] {
        let polling = of(polled(text)).unwrap();
        assert_eq!(polling, Polling { interval: Duration::from_millis(milliseconds), error: None }, "{text}");
    }
    let mut source = source(polled("30m0s"));
    let polling = Polling::from_source(&source).unwrap();
    for (second, chance, want) in [
        (1799, 0.0, Poll::After(Duration::from_secs(1))),
        (1800, 0.0, Poll::Now),
        (0, 0.0, Poll::After(FALLBACK_INTERVAL)),
        (0, 1.0, Poll::After(Duration::from_secs(990))),
        (0, f64::NAN, Poll::After(FALLBACK_INTERVAL)),
        (-50, 0.5, Poll::After(Duration::from_secs(945))),
        (-61, 0.5, Poll::Now),
    ] {
        assert_eq!(polling.poll(&source, at(second), chance), want, "{second} {chance}");
    }
    let mut status = sync(&source, SourceObserved::default(), at(1));
    status.latest_image_registry_poll =
        Some(olm_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1800)));
    source.status = Some(status);
    assert_eq!(polling.poll(&source, at(1801), 0.0), Poll::After(FALLBACK_INTERVAL));
    assert_eq!(polling.poll(&source, at(1799), 0.0), Poll::After(FALLBACK_INTERVAL));
    assert_eq!(polling.poll(&source, at(1739), 0.0), Poll::Now, "the clock was set back");
    source.status = None;
    source.metadata.creation_timestamp = None;
    assert_eq!(polling.poll(&source, at(0), 0.0), Poll::Now);
}

#[test]
fn solver_source_has_the_priority() {
    let of = |spec: Value| solver_source(&source(spec), Err("down".to_owned())).priority;
    assert_eq!(of(json!({"sourceType": "grpc", "priority": -400})), -400);
    assert_eq!(of(json!({"sourceType": "grpc"})), 0);
}

proptest! {
    #[test]
    fn catalog_source_rests_whatever_it_contains(
        source_type in "grpc|configmap|internal|.{0,4}", image in ".{0,20}", address in ".{0,4}", config_map in ".{0,4}",
        interval in "[0-9hms.-]{0,6}|.{0,6}", text in "(\\{kube_minor_version\\}|[a-z:./{}]){0,6}|.{0,20}",
        is_served in any::<bool>(), second in any::<i32>(), chance in any::<f64>(),
    ) {
        let spec = json!({
            "sourceType": source_type, "image": image, "address": address, "configMap": config_map,
            "updateStrategy": {"registryPoll": {"interval": interval}},
        });
        let mut source = source(spec);
        source.metadata.annotations = Some([(TEMPLATE_ANNOTATION.to_owned(), text)].into());
        let observed = SourceObserved { version: Some(SERVER), is_served, ..SourceObserved::default() };
        let mut writes = 0;
        for step in 0..4 {
            let now = at(i64::from(second) + step);
            let status = sync(&source, observed, now);
            let image = template(&source, Some(SERVER), now).image;
            if source.status.as_ref() != Some(&status) || image.is_some() {
                writes += 1;
            }
            source.status = Some(status);
            source.spec.image = image.unwrap_or(source.spec.image);
            if let Some(polling) = Polling::from_source(&source)
                && let Poll::After(time) = polling.poll(&source, now, chance)
            {
                prop_assert!(time <= FALLBACK_INTERVAL * 11 / 10);
            }
        }
        prop_assert!(writes <= 2, "{writes} writes, at last {:?}", source.status);
    }
}
