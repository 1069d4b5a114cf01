//! ClusterExtension: operator-controller §1.1.

use anyhow::{Result, anyhow};
use kube::Client;
use kube::api::{Api, DynamicObject};
use olm_integration::Want::{Accepted, Refused};
use olm_integration::{Want, api, change_status, check, create, offer_change, with};
use olm_kit::unique;
use serde_json::{Value, json};

use crate::{cluster, offer_all, report};

pub(crate) fn extensions(client: &Client) -> Api<DynamicObject> {
    api(client, "ClusterExtension", "clusterextensions")
}

pub(crate) fn base() -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension",
        "metadata": {"name": "offered"},
        "spec": {
            "namespace": "default",
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}
        }
    })
}

const NAMESPACE: &str = "namespace must be a valid DNS1123 label";
const SUBDOMAIN: &str = "must be a valid DNS1123 subdomain. It must contain only lowercase alphanumeric characters, hyphens (-) or periods (.), start and end with an alphanumeric character, and be no longer than 253 characters";
const SOURCE_UNION: &str = "catalog is required when sourceType is Catalog, and forbidden otherwise";
const CONFIG_UNION: &str = "inline is required when configType is Inline, and forbidden otherwise";
const PACKAGE: &str = "spec.source.catalog.packageName";
const VERSION: &str = "spec.source.catalog.version";

#[tokio::test]
async fn package_names() -> Result<()> {
    const BAD: Want = Refused(&[(PACKAGE, SUBDOMAIN)]);
    let (_, client) = cluster().await?;
    let cases = [
        ("a", Accepted),
        ("1", Accepted),
        ("012-345", Accepted),
        ("abc-def", Accepted),
        ("some.package", Accepted),
        ("0my-1package-9name", Accepted),
        (&"x".repeat(253), Accepted),
        ("", BAD),
        ("-", BAD),
        ("A", BAD),
        ("my-$pecial", BAD),
        ("some_package", BAD),
        (".some.package", BAD),
        ("a.-b", BAD),
        ("a-", BAD),
        (&"x".repeat(254), Refused(&[(PACKAGE, "Too long: may not be more than 253 bytes")])),
    ];
    let case = |(name, want): (&str, Want)| {
        let object = with(base(), &[("/spec/source/catalog/packageName", json!(name))]);
        (format!("package {name}"), object, want)
    };
    offer_all(&extensions(&client), cases.into_iter().map(case).collect()).await
}

#[tokio::test]
async fn version_ranges() -> Result<()> {
    const BAD: Want = Refused(&[(VERSION, "invalid version expression")]);
    let (_, client) = cluster().await?;
    let exactly_64 = format!("1.2.3-{}", "a".repeat(58));
    let reference_accepts = [
        "1.2.3",
        "1.2.3-alpha",
        "1.2.3-alpha.1+metadata",
        "1.2.3+metadata",
        ">=1.2.3",
        "=>1.2.3",
        ">= v1.2.3",
        ">1.2.3",
        "<1.2.3",
        "<=1.2.3",
        "=<1.2.3",
        "=1.2.3",
        "!=1.2.3",
        "~1.2.3",
        "~>1.2.3",
        "^1.2.3",
        "v1.2.3",
        "1.x",
        "1.X",
        "1.*",
        "1.2.x",
        "1.2.X",
        "1.2.*",
        "1.x.x",
        ">=1.2.3 <2.3.4",
        ">=1.2.3,<2.3.4",
        ">=1.2.3, <2.3.4",
        "<1.2.3||>2.3.4",
        "<1.2.3 || >2.3.4",
        ">1.0.0,<1.2.3 || >2.1.0",
        "<1.2.3-abc+def >2.3.4-ghi+jkl",
        "*",
        "x",
        "1",
        "1.2",
        "^0 || ^3 || ^5",
        ">=1.0.0 <2.x",
        "1.0.0-01",
        "|",
        "1.*]",
        &exactly_64,
    ];
    // decision 3: the reference refuses these, its range library does not
    let library_accepts = [
        "1.2.3 - 2.3.4",
        "1.2 - 2",
        "v1 - v2",
        "1.0.0 - 2.0.0 || >=3",
        "1 - 2, 3 - 4",
        ">=1.0.0 1.2.*",
        ">=1 || *",
        "1.*.*",
        "*.*.*",
        "01.2.3",
        "1.02.3",
        "1.2.3 ,1.2.4",
        " 1.2.3 ",
        "x - *",
    ];
    let refused = [
        // Go clients leave an empty version out; who writes it gets this, as from the reference
        "",
        "invalid-semver",
        "1.2.3.4",
        "1.2.3.4.5",
        "1.2.3-beta!",
        "1.2.3.alpha",
        "1..2.3",
        "1.2.3-pre+bad_metadata",
        "1.2.-3",
        ".1.2.3",
        "<<1.2.3",
        ">>1.2.3",
        ">~1.2.3",
        "==1.2.3",
        "=!1.2.3",
        "!1.2.3",
        "1.Y",
        ">1.2.3 && <2.3.4",
        ">1.2.3;<2.3.4",
        "1.2.3 -2.3.4",
        "1.2.3- 2.3.4",
        ">1 - 2",
        "1 - 2 - 3",
        ">=1<2",
        "||",
        "1 ||",
        "|| 1",
        "1,,2",
        ",1",
        "1.xX",
        "1|2",
    ];
    let too_long = format!("1.2.3-{}", "a".repeat(59));
    let long = Refused(&[(VERSION, "Too long: may not be more than 64 bytes")]);
    let all = reference_accepts
        .into_iter()
        .chain(library_accepts)
        .map(|range| (range, Accepted))
        .chain(refused.into_iter().map(|range| (range, BAD)))
        .chain([(too_long.as_str(), long)]);
    let case = |(range, want): (&str, Want)| {
        let object = with(base(), &[("/spec/source/catalog/version", json!(range))]);
        (format!("version {range:?}"), object, want)
    };
    offer_all(&extensions(&client), all.map(case).collect()).await
}

#[tokio::test]
async fn namespaces() -> Result<()> {
    const BAD: Want = Refused(&[("spec.namespace", NAMESPACE)]);
    let (_, client) = cluster().await?;
    let cases = [
        ("justalphanumeric1", Accepted),
        ("hyphenated-name", Accepted),
        (&"x".repeat(63), Accepted),
        ("", BAD),
        ("dotted.name", BAD),
        ("with spaces", BAD),
        ("Capitals", BAD),
        ("-leading", BAD),
        ("trailing-", BAD),
        (&"x".repeat(64), Refused(&[("spec.namespace", "Too long: may not be more than 63 bytes")])),
    ];
    let case = |(name, want): (&str, Want)| {
        (format!("namespace {name}"), with(base(), &[("/spec/namespace", json!(name))]), want)
    };
    offer_all(&extensions(&client), cases.into_iter().map(case).collect()).await
}

#[tokio::test]
async fn everything_else() -> Result<()> {
    let (_, client) = cluster().await?;
    let mut all = vec![
        ("the smallest object".to_owned(), base(), Accepted),
        (
            "no spec".to_owned(),
            with(base(), &[("/spec", Value::Null)]),
            Refused(&[("spec", "Required value")]),
        ),
    ];
    let mut add = |case: &str, pointer: &str, value: Value, want: Want| {
        all.push((case.to_owned(), with(base(), &[(pointer, value)]), want));
    };
    add("no namespace", "/spec/namespace", Value::Null, Refused(&[("spec.namespace", "Required value")]));
    add("no source", "/spec/source", Value::Null, Refused(&[("spec.source", "Required value")]));
    add(
        "a source of no type",
        "/spec/source",
        json!({}),
        Refused(&[("spec.source.sourceType", "Required value")]),
    );
    add(
        "another source",
        "/spec/source/sourceType",
        json!("Image"),
        Refused(&[("spec.source.sourceType", "Unsupported value: \"Image\": supported values: \"Catalog\"")]),
    );
    add("no catalog", "/spec/source/catalog", Value::Null, Refused(&[("spec.source", SOURCE_UNION)]));
    add(
        "no package name",
        "/spec/source/catalog/packageName",
        Value::Null,
        Refused(&[("spec.source.catalog.packageName", "Required value")]),
    );
    let policy = "/spec/source/catalog/upgradeConstraintPolicy";
    add("self-certified", policy, json!("SelfCertified"), Accepted);
    add(
        "an unknown policy",
        policy,
        json!("Never"),
        Refused(&[(
            "spec.source.catalog.upgradeConstraintPolicy",
            "supported values: \"CatalogProvided\", \"SelfCertified\"",
        )]),
    );

    let channels = "/spec/source/catalog/channels";
    add("channels", channels, json!(["stable", "v1.2", "stable"]), Accepted);
    add("no channels", channels, json!([]), Accepted);
    add("256 channels", channels, json!(vec!["c"; 256]), Accepted);
    add(
        "257 channels",
        channels,
        json!(vec!["c"; 257]),
        Refused(&[("spec.source.catalog.channels", "must have at most 256 items")]),
    );
    add(
        "a channel in capitals",
        channels,
        json!(["ok", "Stable"]),
        Refused(&[("spec.source.catalog.channels[1]", "channels entries must be valid DNS1123 subdomains")]),
    );
    add(
        "a long channel",
        channels,
        json!(["x".repeat(254)]),
        Refused(&[("spec.source.catalog.channels[0]", "Too long: may not be more than 253 bytes")]),
    );

    let selector = "/spec/source/catalog/selector";
    add("a selector", selector, json!({"matchLabels": {"a": "b"}}), Accepted);
    add(
        "an odd operator is not the schema's business",
        selector,
        json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        Accepted,
    );
    add(
        "an expression without operator",
        selector,
        json!({"matchExpressions": [{"key": "a"}]}),
        Refused(&[("spec.source.catalog.selector.matchExpressions[0].operator", "Required value")]),
    );

    let account = "/spec/serviceAccount";
    add("an account", account, json!({"name": "installer.a"}), Accepted);
    add(
        "an empty account",
        account,
        json!({}),
        Refused(&[("spec.serviceAccount", "should have at least 1 properties")]),
    );
    add(
        "an account without a name",
        account,
        json!({"name": ""}),
        Refused(&[
            ("spec.serviceAccount.name", "should be at least 1 chars long"),
            ("spec.serviceAccount.name", SUBDOMAIN),
        ]),
    );
    add(
        "an account in capitals",
        account,
        json!({"name": "Installer"}),
        Refused(&[("spec.serviceAccount.name", SUBDOMAIN)]),
    );
    for elsewhere in
        ["kube-system/admin", "system:serviceaccount:kube-system:admin", "../admin", "a b", "a\nb"]
    {
        let refused = Refused(&[("spec.serviceAccount.name", SUBDOMAIN)]);
        add(elsewhere, account, json!({"name": elsewhere}), refused);
    }
    add(
        "a long account",
        account,
        json!({"name": "x".repeat(254)}),
        Refused(&[("spec.serviceAccount.name", "Too long: may not be more than 253 bytes")]),
    );

    let install = "/spec/install";
    for enforcement in ["None", "Strict"] {
        let value = json!({"preflight": {"crdUpgradeSafety": {"enforcement": enforcement}}});
        add(enforcement, install, value, Accepted);
    }
    add(
        "an empty install",
        install,
        json!({}),
        Refused(&[("spec.install", "at least one of [preflight] are required when install is specified")]),
    );
    add(
        "an empty preflight",
        install,
        json!({"preflight": {}}),
        Refused(&[("spec.install.preflight.crdUpgradeSafety", "Required value")]),
    );
    add(
        "no enforcement",
        install,
        json!({"preflight": {"crdUpgradeSafety": {}}}),
        Refused(&[("spec.install.preflight.crdUpgradeSafety.enforcement", "Required value")]),
    );
    let unknown = json!({"preflight": {"crdUpgradeSafety": {"enforcement": "Lax"}}});
    all.push((
        "an unknown enforcement".to_owned(),
        with(base(), &[(install, unknown)]),
        Refused(&[("spec.install.preflight.crdUpgradeSafety.enforcement", UNKNOWN_ENFORCEMENT)]),
    ));
    let mut add = |case: &str, pointer: &str, value: Value, want: Want| {
        all.push((case.to_owned(), with(base(), &[(pointer, value)]), want));
    };

    let config = "/spec/config";
    let inline = |value: Value| json!({"configType": "Inline", "inline": value});
    add("inline config", config, inline(json!({"key": "value"})), Accepted);
    add("nested config", config, inline(json!({"a": {"b": [1, 2.5, {"c": null}]}})), Accepted);
    add(
        "config that is no object",
        config,
        inline(json!(true)),
        Refused(&[("spec.config.inline", "must be of type object: \"boolean\"")]),
    );
    add(
        "empty config",
        config,
        inline(json!({})),
        Refused(&[("spec.config.inline", "should have at least 1 properties")]),
    );
    add(
        "config without its member",
        config,
        json!({"configType": "Inline"}),
        Refused(&[("spec.config", CONFIG_UNION)]),
    );
    add("config of no type", config, json!({}), Refused(&[("spec.config.configType", "Required value")]));
    add(
        "another config",
        config,
        json!({"configType": "Secret"}),
        Refused(&[("spec.config.configType", "supported values: \"Inline\"")]),
    );

    let deadline = "/spec/progressDeadlineMinutes";
    add("the shortest deadline", deadline, json!(10), Accepted);
    add("the longest deadline", deadline, json!(720), Accepted);
    add(
        "too short a deadline",
        deadline,
        json!(9),
        Refused(&[("spec.progressDeadlineMinutes", "should be greater than or equal to 10")]),
    );
    add(
        "too long a deadline",
        deadline,
        json!(721),
        Refused(&[("spec.progressDeadlineMinutes", "should be less than or equal to 720")]),
    );
    add(
        "a deadline in words",
        deadline,
        json!("soon"),
        Refused(&[("spec.progressDeadlineMinutes", "must be of type integer: \"string\"")]),
    );
    offer_all(&extensions(&client), all).await
}

const UNKNOWN_ENFORCEMENT: &str = "supported values: \"None\", \"Strict\", \"Warn\"";

#[tokio::test]
async fn defaults_are_filled_in_and_nothing_else() -> Result<()> {
    let (_, client) = cluster().await?;
    let stored = olm_integration::offer(&extensions(&client), base())
        .await?
        .map_err(|causes| anyhow!("{causes:?}"))?;
    let catalog = json!({"packageName": "demo", "upgradeConstraintPolicy": "CatalogProvided"});
    let want = json!({"namespace": "default", "source": {"sourceType": "Catalog", "catalog": catalog}});
    assert_eq!(stored.data["spec"], want);
    assert_eq!(stored.data.get("status"), None);

    // an explicit null is dropped; a schema with `nullable` would store it
    let null = with(
        base(),
        &[("/spec/source/catalog", json!({"packageName": "demo", "version": null, "channels": null}))],
    );
    let stored =
        olm_integration::offer(&extensions(&client), null).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    assert_eq!(stored.data["spec"], want);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_changed() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = extensions(&client);
    let name = unique("immutable");
    let with_account =
        with(base(), &[("/metadata/name", json!(name)), ("/spec/serviceAccount/name", json!("installer"))]);
    let stored = create(&api, with_account).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let cases: &[(&str, &str, Value, Want)] = &[
        ("nothing", "/spec/namespace", json!("default"), Accepted),
        (
            "namespace",
            "/spec/namespace",
            json!("other"),
            Refused(&[("spec.namespace", "namespace is immutable")]),
        ),
        (
            "package",
            "/spec/source/catalog/packageName",
            json!("other"),
            Refused(&[("spec.source.catalog.packageName", "packageName is immutable")]),
        ),
        (
            "account",
            "/spec/serviceAccount/name",
            json!("other"),
            Refused(&[("spec.serviceAccount.name", "name is immutable once set but may be cleared")]),
        ),
        ("no account any more", "/spec/serviceAccount", Value::Null, Accepted),
        ("version", "/spec/source/catalog/version", json!("1.x"), Accepted),
        ("channels", "/spec/source/catalog/channels", json!(["a"]), Accepted),
        ("policy", "/spec/source/catalog/upgradeConstraintPolicy", json!("SelfCertified"), Accepted),
        ("deadline", "/spec/progressDeadlineMinutes", json!(30), Accepted),
    ];
    let mut wrong = Vec::new();
    for (case, pointer, value, want) in cases {
        let answer = offer_change(&api, &stored, |object| {
            *object = with(object.take(), &[(pointer, value.clone())]);
        })
        .await?;
        wrong.extend(check(case, *want, &answer).err().map(|error| error.to_string()));
    }
    api.delete(&name, &kube::api::DeleteParams::default()).await?;
    report(cases.len(), &wrong)
}

#[tokio::test]
async fn status_rules() -> Result<()> {
    let (_, client) = cluster().await?;
    let api = extensions(&client);
    let name = unique("status");
    let object = with(base(), &[("/metadata/name", json!(name))]);
    let stored = create(&api, object).await?.map_err(|causes| anyhow!("{causes:?}"))?;
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "Succeeded", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let bundle =
        |name: &str, version: &str| json!({"install": {"bundle": {"name": name, "version": version}}});
    let release =
        |release: &str| json!({"install": {"bundle": {"name": "a", "version": "1.0.0", "release": release}}});
    let changed = |pointer: &str, value: Value| {
        let base = json!({"conditions": [condition("Installed")]});
        with(base, &[(&format!("/conditions/0/{pointer}"), value)])
    };
    let name_rule = Refused(&[("status.install.bundle.name", SUBDOMAIN)]);
    let version_rule = Refused(&[("status.install.bundle.version", "version must be well-formed semver")]);
    const RELEASE: Want = Refused(&[(
        "status.install.bundle.release",
        "release must be empty or consist of dot-separated identifiers (numeric without leading zeros, or alphanumeric)",
    )]);
    let cases = [
        ("conditions", json!({"conditions": [condition("Installed"), condition("Progressing")]}), Accepted),
        (
            "a condition twice",
            json!({"conditions": [condition("Installed"), condition("Installed")]}),
            Refused(&[("status.conditions[1]", "Duplicate value: {\"type\":\"Installed\"}")]),
        ),
        ("a long message", changed("message", json!("m".repeat(32_768))), Accepted),
        (
            "too long a message",
            changed("message", json!("m".repeat(32_769))),
            Refused(&[("status.conditions[0].message", "Too long: may not be more than 32768 bytes")]),
        ),
        (
            "a reason with a hyphen",
            changed("reason", json!("not-good")),
            Refused(&[(
                "status.conditions[0].reason",
                "should match '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$'",
            )]),
        ),
        (
            "no reason",
            changed("reason", json!("")),
            Refused(&[("status.conditions[0].reason", "should be at least 1 chars long")]),
        ),
        (
            "an odd status",
            changed("status", json!("Maybe")),
            Refused(&[("status.conditions[0].status", "supported values: \"True\", \"False\", \"Unknown\"")]),
        ),
        (
            "a negative generation",
            changed("observedGeneration", json!(-1)),
            Refused(&[("status.conditions[0].observedGeneration", "should be greater than or equal to 0")]),
        ),
        ("installed", bundle("demo.v1.0.0", "1.0.0"), Accepted),
        ("a short version", bundle("demo", "1"), Accepted),
        ("anything may follow the version", bundle("demo", "1.0.0 and more"), Accepted),
        ("a version in words", bundle("demo", "one"), version_rule),
        ("a bundle in capitals", bundle("Demo", "1.0.0"), name_rule),
        ("a bundle with a plus", bundle("demo.v1.0.0+1", "1.0.0"), name_rule),
        ("no release", release(""), Accepted),
        ("a release", release("1.alpha-2.0"), Accepted),
        ("a release with a leading zero", release("01"), RELEASE),
        ("a release with an empty part", release("1..2"), RELEASE),
        (
            "a long release",
            release(&"a".repeat(21)),
            Refused(&[("status.install.bundle.release", "Too long: may not be more than 20 bytes")]),
        ),
        (
            "revisions",
            json!({"activeRevisions": [{"name": "a-1"}, {"name": "a-2", "conditions": [condition("Available")]}]}),
            Accepted,
        ),
        (
            "a revision twice",
            json!({"activeRevisions": [{"name": "a-1"}, {"name": "a-1"}]}),
            Refused(&[("status.activeRevisions[1]", "Duplicate value: {\"name\":\"a-1\"}")]),
        ),
    ];
    let count = cases.len();
    let mut wrong = Vec::new();
    let mut latest = stored;
    for (case, status, want) in cases {
        let answer = change_status(&api, &latest, |object| object["status"] = status).await?;
        wrong.extend(check(case, want, &answer).err().map(|error| error.to_string()));
        if let Ok(object) = answer {
            latest = object;
        }
    }
    api.delete(&name, &kube::api::DeleteParams::default()).await?;
    report(count, &wrong)
}
