//! Parsing, file by file. Rules: bundle-rendering §2.

use serde_json::{Value, json};

use super::*;
use crate::fixture;

fn none() -> Value {
    json!({})
}

fn parse_with(extra: &[(&str, &str)]) -> Result<RegistryV1, ParseError> {
    let mut files = fixture::files(&none(), &[]);
    for (path, text) in extra {
        files.retain(|(known, _)| known != path);
        files.push(((*path).to_owned(), (*text).as_bytes().to_vec()));
    }
    RegistryV1::from_files(files)
}

fn without(path: &str) -> Result<RegistryV1, ParseError> {
    RegistryV1::from_files(
        fixture::files(&none(), &[]).into_iter().filter(|(known, _)| !known.starts_with(path)),
    )
}

#[test]
#[rustfmt::skip]
fn registry_errors() {
    let config = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}"#;
    let second = fixture::csv().to_string();
    for (parsed, want) in [
        (without("metadata/"), "open metadata/annotations.yaml: no such file or directory"),
        (without("manifests/"), "stat manifests: no such file or directory"),
        (without("manifests/csv"), "no ClusterServiceVersion found in \"manifests\""),
        (parse_with(&[("metadata/annotations.yaml", "annotations: [a")]),
            "error converting YAML to JSON: yaml: line 1: did not find expected ',' or ']'"),
        (parse_with(&[("metadata/annotations.yaml", "annotations: {operators.operatorframework.io.bundle.package.v1: 5}")]),
            "metadata/annotations.yaml: annotations.operators.operatorframework.io.bundle.package.v1 must be a string"),
        (parse_with(&[("manifests/sub/x.yaml", config)]),
            "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/sub\""),
        (parse_with(&[("manifests/empty/", "")]),
            "subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"manifests/empty\""),
        (
            parse_with(&[("manifests/x.yaml", "a: [b\n")]),
            "error parsing objects in \"manifests/x.yaml\": error parsing manifests/x.yaml: error converting YAML to JSON: yaml: line 1: did not find expected ',' or ']'",
        ),
        (
            parse_with(&[
                ("manifests/x.yml", "metadata: {name: a}"),
                ("manifests/y.json", "[]"),
                ("manifests/z.yaml", "text"),
            ]),
            "error parsing objects in \"manifests/x.yml\": unable to decode \"manifests/x.yml\": Object 'Kind' is missing in '{\"metadata\":{\"name\":\"a\"}}'; not readable either: \"manifests/y.json\", \"manifests/z.yaml\"",
        ),
        (parse_with(&[("manifests/second.yaml", &second)]),
            "more than one ClusterServiceVersion found in \"manifests\": demo.v1.0.0, demo.v1.0.0; a bundle holds exactly one"),
        (fixture::bundle(&json!({"spec": {"installModes": [{"type": "AllNamespaces", "supported": "yes"}]}}), &[]),
            "error parsing objects in \"manifests/csv.yaml\": spec.installModes[0].supported: got string, want boolean"),
        (fixture::bundle(&json!({"spec": {"webhookdefinitions": [{"containerPort": 4.5}]}}), &[]),
            "error parsing objects in \"manifests/csv.yaml\": spec.webhookdefinitions[0].containerPort: got number, want integer"),
        (fixture::bundle(&json!({"spec": {"install": {"spec": {"permissions": {}}}}}), &[]),
            "error parsing objects in \"manifests/csv.yaml\": spec.install.spec.permissions: got object, want array"),
        (fixture::bundle(&none(), &[fixture::patched(fixture::crd("b"), &json!({"spec": {"scope": 5}}))]),
            "error parsing objects in \"manifests/more-0.yaml\": spec.scope: got number, want string"),
        (parse_with(&[("metadata/properties.yaml", "properties: {}")]),
            "failed to unmarshal metadata/properties.yaml: properties must be a list of {type, value}"),
        (parse_with(&[("metadata/properties.yaml", "properties: [{type: 5}]")]),
            "failed to unmarshal metadata/properties.yaml: properties[0] must be an object whose type is a string"),
    ] {
        assert_eq!(parsed.unwrap_err().to_string(), want);
    }
    let parsed = fixture::bundle(&json!({"metadata": {"annotations": {"olm.properties": "{"}}}), &[]);
    let text = parsed.unwrap_err().to_string();
    assert!(text.starts_with("failed to unmarshal csv.metadata.annotations['olm.properties']: "), "{text}");
}

#[test]
fn lists_streams_and_stray_files() {
    let stream = "---\n# nothing\n---\nnull\n---\napiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n---\n\
                  apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - {apiVersion: v1, kind: Secret, metadata: {name: b}}\n";
    let parsed = parse_with(&[
        ("manifests/0.yaml", stream),
        ("manifests/README.md", "Hello: [world"),
        ("manifests/role.crd", r#"{"kind": "Role", "metadata": {"name": "c"}}"#),
        ("tests/scorecard/config.yaml", "]"),
        ("metadata/annotations.yaml.bak", "]"),
    ])
    .unwrap();
    let keys: Vec<_> = parsed.others.iter().map(|object| object.key().objref()).collect();
    let want =
        ["/v1, Kind=ConfigMap /a", "/v1, Kind=Secret /b", "rbac.authorization.k8s.io/v1, Kind=Role /c"];
    assert_eq!(keys, want);
    let want = [
        "manifests/README.md holds no manifest and has no manifest's name; it is left out",
        "manifests/role.crd: Role \"c\" has no apiVersion; rbac.authorization.k8s.io/v1 is taken",
    ];
    assert_eq!(parsed.warnings, want);
}

/// By kind alone, whatever the group.
#[test]
fn objects_are_sorted_by_kind() {
    let mut other = fixture::crd("other");
    other["apiVersion"] = "example.com/v7".into();
    let foreign = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let parsed = fixture::bundle(&none(), &[fixture::crd("plain"), other, foreign]).unwrap();
    let names =
        |objects: &[Object]| objects.iter().map(|object| object.name().to_owned()).collect::<Vec<_>>();
    let want = (vec!["as.example.com".into(), "plain".into(), "other".into()], vec!["t".into()]);
    assert_eq!((names(&parsed.crds), names(&parsed.others)), want);
    assert_eq!(parsed.csv.name, "demo.v1.0.0");

    let renamed = |api_version: &str| {
        let mut csv = fixture::csv();
        csv["apiVersion"] = api_version.into();
        parse_with(&[("manifests/csv.yaml", &csv.to_string())]).map(|bundle| bundle.csv.name)
    };
    assert_eq!(renamed("example.com/v1").unwrap(), "demo.v1.0.0");
}

#[test]
fn registry_ignores_the_order_of_files() {
    let more: Vec<_> = ["b", "a", "c"]
        .map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}))
        .to_vec();
    let mut files = fixture::files(&none(), &more);
    let straight = RegistryV1::from_files(files.clone()).unwrap();
    files.reverse();
    assert_eq!(RegistryV1::from_files(files).unwrap(), straight);
}

#[test]
fn properties_of_the_file_follow_those_of_the_csv() {
    let annotated = |text: &str| json!({"metadata": {"annotations": {"olm.properties": text}}});
    let merged = |patch: &Value, file: Option<&str>| {
        let mut files = fixture::files(patch, &[]);
        files.extend(file.map(|file| (PROPERTIES.to_owned(), file.as_bytes().to_vec())));
        let csv = RegistryV1::from_files(files).unwrap().csv;
        assert_eq!(
            csv.annotations.get("olm.properties").map(String::as_str),
            csv.raw.annotations().get("olm.properties").copied()
        );
        csv.annotations.get("olm.properties").cloned()
    };
    let csv = annotated(r#"[{"type":"a", "value": "1"}]"#);
    let want = r#"[{"type":"a","value":"1"},{"type":"b","value":"2"}]"#;
    assert_eq!(merged(&csv, Some("properties: [{type: b, value: '2'}]")).unwrap(), want);
    let want = r#"[{"type":"a", "value": "1"}]"#;
    assert_eq!(merged(&csv, None).unwrap(), want, "without a file nothing changes");
    assert_eq!(merged(&csv, Some("")).unwrap(), r#"[{"type":"a", "value": "1"}]"#);
    assert_eq!(merged(&none(), Some("properties: []")), None);
    assert_eq!(
        merged(&none(), Some("properties: [{type: one, value: {b: 1, a: <}}, {type: two}]")).unwrap(),
        r#"[{"type":"one","value":{"a":"\u003c","b":1}},{"type":"two","value":null}]"#
    );
    let kept_order = annotated(r#"[{"value": {"z": 1, "a": 2.50}, "type": "o"}]"#);
    let want = r#"[{"type":"o","value":{"z":1,"a":2.50}},{"type":"b","value":1}]"#;
    assert_eq!(merged(&kept_order, Some("properties: [{type: b, value: 1}]")).unwrap(), want);
}

#[test]
fn registry_rejects_large_bundles() {
    let too_large =
        "below manifests/ and metadata/; remove what the operator does not need, or split the bundle";
    let directory = tempfile::tempdir().unwrap();
    for folder in ["manifests", "metadata"] {
        fs::create_dir(directory.path().join(folder)).unwrap();
    }
    for more in [0, 1] {
        let mut files = fixture::files(&none(), &[]);
        let used: usize = files.iter().map(|(_, content)| content.len()).sum();
        let remaining = (28 << 20) - used;
        files.push(("manifests/comment.yaml".to_owned(), vec![b'#'; remaining + more]));
        for (path, content) in &files {
            fs::write(directory.path().join(path), content).unwrap();
        }
        for parsed in [RegistryV1::from_files(files), RegistryV1::load_dir(directory.path())] {
            let want = match more {
                0 => None,
                _ => Some(format!("the bundle has more than 29360128 bytes {too_large}")),
            };
            assert_eq!(parsed.err().map(|error| error.to_string()), want, "28 MiB and {more}");
        }
    }

    let with_files = |count: usize| {
        let mut files = fixture::files(&none(), &[]);
        files.extend((files.len()..count).map(|n| (format!("manifests/{n}.txt"), Vec::new())));
        RegistryV1::from_files(files).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with_files(10_000), Ok(()));
    assert_eq!(with_files(10_001), Err(format!("the bundle has more than 10000 files {too_large}")));
}

#[test]
fn registry_stops_when_cancelled() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/cases/webhooks/bundle");
    let cancellation = Cancellation::default();
    assert!(RegistryV1::load_dir_until(&folder, BundleLimits::default(), &cancellation).is_ok());
    drop(cancellation.drop_guard());
    let error = RegistryV1::load_dir_until(&folder, BundleLimits::default(), &cancellation).unwrap_err();
    assert!(matches!(error, ParseError::Cancelled), "{error}");
}

#[test]
fn keys_of_a_bundle_are_limited() {
    for (bytes, is_read) in [(4_096, true), (4_097, false)] {
        let object = format!("{{\"kind\": \"ConfigMap\", \"data\": [{{\"{}\": 1}}]}}", "k".repeat(bytes));
        let error = parse_with(&[("manifests/x.json", object.as_str())]).map_err(|error| error.to_string());
        let long = |error: String| {
            error.contains("a key of 4097 bytes")
                && error.ends_with("keys have at most 4096 bytes: shorten it")
        };
        assert_eq!(error.is_err_and(long), !is_read, "{bytes}");
    }
}

/// Counted over all files, in the order of their paths, and with what aliases expand to.
#[test]
fn nodes_are_limited_over_all_files() {
    let cancellation = Cancellation::default();
    let nodes_left = |files: &[(String, Vec<u8>)]| {
        let mut budget = NodeBudget::new(BundleLimits::default(), &cancellation);
        for (_, content) in files {
            assert!(budget.documents(content).is_ok());
        }
        budget.left()
    };
    let base = fixture::files(&none(), &[]);
    let config = |name: &str, data: &str| {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: [{data}]}}");
        (format!("manifests/{name}.yaml"), text.into_bytes())
    };
    let empty = nodes_left(&base) - nodes_left(&[base.clone(), vec![config("x", "")]].concat());
    let fitting = nodes_left(&base) - 2 * empty;
    let half = fitting / 2;
    for more in [0, 1] {
        let files = [
            base.clone(),
            vec![
                config("y", &"0,".repeat(half as usize)),
                config("z", &"0,".repeat((fitting - half + more) as usize)),
            ],
        ];
        let parsed = RegistryV1::from_files(files.concat()).map(|bundle| bundle.others.len());
        let want = match more {
            0 => Ok(2),
            _ => Err(
                "the bundle has more than 2000000 nodes in its files (values and keys; an object counts as ten, a list as three), counted up to \
                      \"manifests/z.yaml\"; remove what the operator does not need, or split the bundle",
            ),
        };
        assert_eq!(parsed.map_err(|error| error.to_string()), want.map_err(str::to_owned), "{more} more");
    }
    let list = "[0, 0, 0, 0, 0, 0, 0, 0, 0]";
    let aliases = format!(
        "a: &a [{}]\nb: &b [{}]\nc: [{}]\n",
        [list; 9].join(","),
        ["*a"; 150].join(","),
        ["*b"; 150].join(",")
    );
    for path in
        ["manifests/x.yaml", "manifests/README", "metadata/annotations.yaml", "metadata/properties.yaml"]
    {
        let error = parse_with(&[(path, &aliases)]).unwrap_err();
        assert!(matches!(&error, ParseError::TooManyNodes { path: at, .. } if at == path), "{path}: {error}");
    }
}

/// As Kubernetes reads them: an integer of 64 bits is exact, what Kubernetes declares as a number is a double.
#[test]
fn integers_of_manifests_keep_their_digits() {
    let list = "[9223372036854775807, -9223372036854775808, 9007199254740993, 18446744073709551615, 1.5e3, 9007199254740993.0]";
    let want: Value = serde_json::from_str(
        "[9223372036854775807, -9223372036854775808, 9007199254740993, 18446744073709552000, 1500, 9007199254740992]",
    )
    .unwrap();
    let schema = format!(
        "{{\"type\": \"integer\", \"default\": 9007199254740993, \"enum\": {list}, \"maxLength\": 9223372036854775807, \
         \"minimum\": -9223372036854775808, \"maximum\": 9223372036854775807, \"multipleOf\": 9007199254740993}}"
    );
    let crd = format!(
        "{{\"apiVersion\": \"apiextensions.k8s.io/v1\", \"kind\": \"CustomResourceDefinition\", \
         \"metadata\": {{\"name\": \"as.example.com\"}}, \"spec\": {{\"versions\": [{{\"name\": \"v1\", \
         \"schema\": {{\"openAPIV3Schema\": {schema}}}}}]}}}}"
    );
    let other = format!(
        "{{\"apiVersion\": \"example.com/v1\", \"kind\": \"A\", \"metadata\": {{\"name\": \"a\"}}, \"spec\": {list}}}"
    );
    // a comment makes it YAML
    for head in ["", "# YAML\n"] {
        let files =
            [("manifests/crd.yaml", format!("{head}{crd}")), ("manifests/a.yaml", format!("{head}{other}"))];
        let bundle = parse_with(&files.each_ref().map(|(path, text)| (*path, text.as_str()))).unwrap();
        assert_eq!(bundle.others[0].0["spec"], want);
        assert_eq!(
            bundle.crds[0].0["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            json!({
                "type": "integer", "default": 9_007_199_254_740_993_i64, "enum": want, "maxLength": i64::MAX,
                "minimum": i64::MIN as f64, "maximum": 9_223_372_036_854_776_000_u64,
                "multipleOf": 9_007_199_254_740_992_i64,
            })
        );
        let text = olm_core::go::json_string(&bundle.others[0].to_value());
        assert!(text.contains("[9223372036854775807,-9223372036854775808,9007199254740993,1844"), "{text}");
    }
}

#[test]
fn nodes_of_objects_and_lists_count_for_their_memory() {
    let cancellation = Cancellation::default();
    for (text, want) in [
        ("0", 1),
        ("[]", 3),
        ("[0, {}]", 14),
        (r#"{"a": [1]}"#, 15),
        (r#"["{[\"{"]"#, 4),
        ("a: {}\n---\nb: 1\n", 33),
    ] {
        let mut budget = NodeBudget::new(BundleLimits::default(), &cancellation);
        assert!(budget.documents(text.as_bytes()).is_ok(), "{text}");
        assert_eq!(BundleLimits::default().nodes - budget.left(), want, "{text}");
    }
}

#[test]
fn properties_annotation_is_limited() {
    let properties = format!("[{}{{}}]", "{},".repeat(500_000));
    let csv = json!({"metadata": {"annotations": {"olm.properties": properties}}});
    let text = fixture::bundle(&csv, &[]).unwrap_err().to_string();
    let want = "failed to unmarshal csv.metadata.annotations['olm.properties']: more than 500000 objects and lists; remove properties";
    assert_eq!(text, want);
}

#[test]
fn directories_are_read_like_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles/cases/webhooks/bundle");
    let loaded = RegistryV1::load_dir(&folder).unwrap();
    assert_eq!(
        (loaded.package_name.as_str(), loaded.csv.webhooks.len(), loaded.others.len()),
        ("ferry", 3, 4)
    );
    let text = RegistryV1::load_dir(&folder.join("manifests")).unwrap_err().to_string();
    assert_eq!(text, "open metadata/annotations.yaml: no such file or directory");
}

#[cfg(unix)]
#[test]
fn links_stay_inside_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("bundle");
    for (path, content) in fixture::files(&none(), &[]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "linked"}});
    fs::write(root.join("inside.yaml"), config.to_string()).unwrap();
    link("../inside.yaml", "manifests/linked.yaml");
    link("nowhere", "manifests/dangling.yaml");
    let parsed = RegistryV1::load_dir(&root).unwrap();
    assert_eq!(parsed.others.iter().map(Object::name).collect::<Vec<_>>(), ["linked"]);
    let socket = root.join("manifests/socket");
    std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let cause = std::error::Error::source(&RegistryV1::load_dir(&root).unwrap_err()).unwrap().to_string();
    assert_eq!(cause, "it is neither a file nor a directory");
    fs::remove_file(socket).unwrap();
    fs::write(folder.path().join("outside"), "secret").unwrap();
    link("../../outside", "metadata/properties.yaml");
    let error = RegistryV1::load_dir(&root).unwrap_err();
    assert_eq!(error.to_string(), "cannot read metadata/properties.yaml");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "it is a link that leads out of the bundle");
}
