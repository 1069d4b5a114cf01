//! The verified outcomes of bundle-rendering §5.6, and the validator against a general one.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::modes::InstallMode::{self, AllNamespaces as A, OwnNamespace as O, SingleNamespace as S};

fn outcome(inline: &Value, modes: &[InstallMode]) -> Result<Config, String> {
    let modes = modes.iter().copied().collect();
    read_config(Some(inline), &modes, "install-ns", Gates::default()).map_err(|error| {
        let text = error.to_string();
        text.strip_prefix("invalid ClusterExtension configuration: invalid configuration: ")
            .unwrap_or(&text)
            .to_owned()
    })
}

#[test]
fn config_errors_are_those_of_the_reference() {
    let lines = |lines: &[&str]| {
        let listed: String = lines.iter().map(|line| format!("\n  - {line}")).collect();
        format!("multiple errors found:{listed}")
    };
    let pattern = r#"must match pattern "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$""#;
    #[rustfmt::skip]
    let cases: Vec<(Value, &[InstallMode], String)> = vec![
        (json!({}), &[O], r#"required field "watchNamespace" is missing"#.into()),
        (json!({"watchNamespace": null}), &[S], r#"required field "watchNamespace" is missing"#.into()),
        (json!({"watchNamespace": 123}), &[S], r#"invalid type for field "watchNamespace": got number, want string"#.into()),
        (json!({"watchNamespace": {"a": "b"}}), &[S], r#"invalid type for field "watchNamespace": got object, want string"#.into()),
        (json!({"watchNamespace": "A".repeat(68)}), &[S],
            lines(&[r#"field "watchNamespace" must have maximum length of 63 (len=68)"#, &format!(r#"field "watchNamespace" {pattern}"#)])),
        (
            json!({"watchNamespace": "other"}),
            &[O],
            r#"invalid format for field "watchNamespace": 'other' is not valid ownNamespaceInstallMode: invalid value "other": must be "install-ns" (the namespace where the operator is installed) because this operator only supports OwnNamespace install mode"#.into(),
        ),
        (
            json!({"watchNamespace": "install-ns"}),
            &[A, S],
            lines(&[
                r#"invalid value for field "watchNamespace""#,
                r#"invalid type for field "watchNamespace": got string, want null"#,
                r#"invalid format for field "watchNamespace": 'install-ns' is not valid singleNamespaceInstallMode: invalid value "install-ns": must be different from "install-ns" (the install namespace) because this operator uses SingleNamespace install mode to watch a different namespace"#,
            ]),
        ),
        (json!({"watchNamespace": "AA"}), &[A, S],
            lines(&[r#"invalid value for field "watchNamespace""#, r#"invalid type for field "watchNamespace": got string, want null"#,
                &format!(r#"field "watchNamespace" {pattern}"#)])),
        (json!({"watchNamespace": ""}), &[A, S],
            lines(&[r#"invalid value for field "watchNamespace""#, r#"invalid type for field "watchNamespace": got string, want null"#,
                "validation failed", r#"field "watchNamespace" must have minimum length of 1 (len=0)"#,
                &format!(r#"field "watchNamespace" {pattern}"#)])),
        (json!({"watchNamespace": "x"}), &[A],
            r#"unknown field "watchNamespace"; install modes [AllNamespaces] leave no namespace to choose"#.into()),
        (json!({"somekey": "v"}), &[A], r#"unknown field "somekey""#.into()),
        (json!({"a": 1, "b": 2}), &[A], r#"unknown field "a"; also unknown: "b""#.into()),
        (json!(true), &[A], "invalid type: got boolean, want object".into()),
        (json!({"deploymentConfig": {"selector": {}}}), &[A],
            r#"unknown field "selector"; selectors of a bundle's deployments cannot be changed"#.into()),
        (json!({"deploymentConfig": null}), &[A],
            r#"required field "deploymentConfig" is missing; deploymentConfig must be an object, not null"#.into()),
        (json!({"deploymentConfig": {"env": "x"}}), &[A],
            r#"invalid type for field "deploymentConfig.env": got string, want array"#.into()),
        (json!({"deploymentConfig": {"nodeSelector": {"a": 1}}}), &[A],
            r#"invalid type for field "deploymentConfig.nodeSelector.a": got number, want string"#.into()),
        (json!({"deploymentConfig": {"env": [{"value": "x"}]}}), &[A], "validation failed; deploymentConfig.env.0.name is missing".into()),
        (json!({"deploymentConfig": {"env": [{"name": 5}]}}), &[A],
            "validation failed; deploymentConfig.env.0.name: got number, want string".into()),
        (json!({"deploymentConfig": {"env": [{"name": 5, "value": 6}]}}), &[A],
            lines(&["validation failed", r#"invalid type for field "deploymentConfig.env.0.name": got number, want string"#,
                r#"invalid type for field "deploymentConfig.env.0.value": got number, want string"#])),
        (json!({"deploymentConfig": {"tolerations": [{"tolerationSeconds": "x"}]}}), &[A],
            "validation failed; deploymentConfig.tolerations.0.tolerationSeconds: got string, want integer".into()),
        (json!({"deploymentConfig": {"resources": {"limits": {"cpu": true}}}}), &[A],
            "validation failed; deploymentConfig.resources.limits.cpu must be one of: string, number".into()),
        (
            json!({"deploymentConfig": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}}),
            &[A],
            "validation failed; deploymentConfig.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.\
             nodeSelectorTerms is missing".into(),
        ),
        (
            json!({"deploymentConfig": {"resources": {"limits": {"cpu": "abc"}}}}),
            &[A],
            "invalid deploymentConfig: failed to unmarshal deploymentConfig: deploymentConfig.resources.limits.cpu: quantities \
             must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".into(),
        ),
    ];
    for (inline, modes, want) in cases {
        assert_eq!(outcome(&inline, modes).unwrap_err(), want, "{inline} with {modes:?}");
    }
}

#[test]
fn config_gate_removes_deployment_config() {
    let off = Gates { deployment_config: false, ..Gates::default() };
    let inline = json!({"deploymentConfig": {}});
    let error = read_config(Some(&inline), &[A].into_iter().collect(), "i", off).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid ClusterExtension configuration: invalid configuration: unknown field \"deploymentConfig\"; the feature \
         gate DeploymentConfig is off"
    );
}

#[test]
fn accepted_configurations() {
    let watch = |inline: Value, modes: &[InstallMode]| outcome(&inline, modes).unwrap().watch_namespace;
    assert_eq!(watch(json!({"watchNamespace": null}), &[A, O]), None);
    assert_eq!(watch(json!({"watchNamespace": "install-ns"}), &[A, O]), Some("install-ns".into()));
    assert_eq!(watch(json!({"watchNamespace": "w"}), &[O, S]), Some("w".into()));
    assert_eq!(watch(json!({}), &[A]), None);
    let got = outcome(
        &json!({"deploymentConfig": {"env": [{"name": "a", "bogus": 1, "value": "b"}], "resources": {"limits": {"cpu": 1}}}}),
        &[A],
    )
    .unwrap();
    assert_eq!(got.deployment.env, [json!({"name": "a", "value": "b"})]);
    assert_eq!(got.deployment.resources, Some(json!({"limits": {"cpu": 1}})));
    let want = ["deploymentConfig.env[0].bogus is not a field that Kubernetes declares; it is left out"];
    assert_eq!(got.warnings, want);
}

#[test]
fn config_help_that_is_long_is_cut() {
    let many: Map<String, Value> = (0..60).map(|index| (format!("field{index:02}"), Value::Null)).collect();
    let text = outcome(&Value::Object(many), &[A]).unwrap_err();
    let (first, help) = text.split_once("; ").unwrap();
    assert_eq!(first, r#"unknown field "field00""#);
    assert!(help.ends_with('…') && help.chars().count() <= 200, "{help}");
}

/// Values that are near a valid configuration: known names, sometimes of the wrong type.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-5_i64..5).prop_map(Value::from),
        Just(json!(1.5)),
        prop_oneof![Just("a"), Just("install-ns"), Just("Exists"), Just("500m"), Just("")]
            .prop_map(Value::from),
    ];
    #[rustfmt::skip]
    let names = prop_oneof![
        Just("watchNamespace"), Just("deploymentConfig"), Just("env"), Just("envFrom"), Just("name"),
        Just("value"), Just("valueFrom"), Just("resources"), Just("limits"), Just("tolerations"), Just("key"),
        Just("operator"), Just("tolerationSeconds"), Just("affinity"), Just("nodeAffinity"), Just("volumes"),
        Just("volumeMounts"), Just("mountPath"), Just("secretKeyRef"), Just("nodeSelector"),
        Just("annotations"), Just("items"), Just("requiredDuringSchedulingIgnoredDuringExecution"),
        Just("nodeSelectorTerms"), Just("matchExpressions"), Just("configMap"), Just("path"),
        Just("emptyDir"), Just("sizeLimit"), Just("bogus"),
    ];
    leaf.prop_recursive(6, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

static SCHEMA: LazyLock<Value> =
    LazyLock::new(|| config_schema(&[A, O, S].into_iter().collect(), Gates::default()));
static GENERAL: LazyLock<jsonschema::Validator> = LazyLock::new(|| jsonschema::draft7::new(&SCHEMA).unwrap());

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A general draft-07 validator is of the same opinion (it does not know the two formats, so none is in play).
    #[test]
    fn config_accepts_what_a_general_validator_accepts(value in any_value(), wrap in any::<bool>()) {
        let value = if wrap { json!({"deploymentConfig": value}) } else { value };
        let ours = validate::validate(&SCHEMA, &value, "install-ns").is_ok();
        prop_assert_eq!(ours, GENERAL.is_valid(&value), "{}", value);
    }
}
