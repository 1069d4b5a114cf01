//! `plan` and `diff` against a real stack: what they print is what then happens, and printing it changes nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::discovery::{self, Scope};
use kube::{Api, ResourceExt as _};
use olm_api::condition;
use olm_core::Object;
use olm_integration::package::serve_package;
use olm_kit::{BundleImage, Ca, Options, RunDir, Stack, Wait, eventually};
use serde_json::{Value, json};

use crate::support::olm;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

struct Cli {
    stack: Stack,
    home: RunDir,
    /// Flags with which catalogd and the registry are reached.
    reach: Vec<String>,
}

impl Cli {
    async fn new() -> Result<Self> {
        let stack =
            Stack::start_with(&Options { audit: true, ..Options::default() }, |program| program).await?;
        let ca = Ca::shared()?;
        let reach = [
            ("--ca-file", ca.certificate().display().to_string()),
            ("--catalogd-url", stack.catalogd.content_url()),
            ("--catalogd-cas-dir", ca.dir().display().to_string()),
        ];
        let reach = reach.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect();
        Ok(Self { stack, home: RunDir::new("planning")?, reach })
    }

    /// Exit code, standard output and standard error.
    async fn run(&self, arguments: &[&str]) -> Result<(i32, String, String)> {
        let kubeconfig = self.stack.cluster.kubeconfig().display().to_string();
        let mut all: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        all.extend(["--kubeconfig".to_owned(), kubeconfig]);
        if arguments[0] == "plan" || arguments.contains(&"--planned") {
            all.extend(self.reach.iter().cloned());
        }
        let home = self.home.path().to_owned();
        let run = move || olm(&home, &all.iter().map(String::as_str).collect::<Vec<_>>());
        // the stack's own tasks continue meanwhile
        tokio::task::spawn_blocking(run).await?
    }

    /// The document of a verb that ends with this code.
    async fn document(&self, code: i32, arguments: &[&str]) -> Result<Value> {
        let (found, text, error) = self.run(&[arguments, &["-o", "json"]].concat()).await?;
        anyhow::ensure!(found == code, "{arguments:?}: {found}: {text}{error}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Every object of the extension's namespace and its cluster roles, by title.
    async fn objects(
        &self,
        titles: &[(String, String, Option<String>, String)],
    ) -> Result<BTreeMap<String, Object>> {
        let client = self.stack.cluster.client().await?;
        let mut found = BTreeMap::new();
        for (version, kind, namespace, name) in titles {
            let types = kube::core::TypeMeta { api_version: version.clone(), kind: kind.clone() };
            let (resource, capabilities) =
                discovery::oneshot::pinned_kind(&client, &kube::core::GroupVersionKind::try_from(&types)?)
                    .await?;
            let api: Api<DynamicObject> = match (namespace, capabilities.scope) {
                (Some(namespace), Scope::Namespaced) => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
                _ => Api::all_with(client.clone(), &resource),
            };
            if let Some(object) = api.get_opt(name).await? {
                found.insert(format!("{kind} {name}"), Object::from_value(serde_json::to_value(object)?)?);
            }
        }
        Ok(found)
    }
}

fn deployment(image: &str, variables: Value) -> Value {
    json!({"name": "ctrl", "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "ctrl"}},
        "template": {
            "metadata": {"labels": {"app": "ctrl"}},
            "spec": {"serviceAccountName": "demo-sa", "containers": [{"name": "main", "image": image, "env": variables}]},
        },
    }})
}

fn bundle(version: &str) -> BundleImage {
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": version}});
    let rules = |verbs: Value| json!({"serviceAccountName": "demo-sa", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
    let plain = BundleImage::new("demo", version).crds([]).without_config_map();
    match version {
        "1.0.0" => plain
            .deployments([deployment(
                "example.invalid/main:v1",
                json!([{"name": "KEPT", "value": "1"}, {"name": "DROPPED", "value": "1"}]),
            )])
            .cluster_permissions([rules(json!(["get"]))])
            .extra(map("both"))
            .extra(map("old")),
        "1.1.0" => plain
            .deployments([deployment("example.invalid/main:v2", json!([{"name": "KEPT", "value": "2"}]))])
            .cluster_permissions([rules(json!(["get", "list"]))])
            .extra(map("both"))
            .extra(map("new")),
        _ => plain
            .deployments([deployment("example.invalid/main:v2", json!([{"name": "KEPT", "value": "2"}]))])
            .cluster_permissions([rules(json!(["get", "list"]))])
            .extra(map("both"))
            .extra(map("taken"))
            .extra(map("denied")),
    }
}

/// The objects of a plan: version, kind, namespace and name.
fn named(plan: &Value) -> Vec<(String, String, Option<String>, String)> {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let objects = plan["objects"].as_array().into_iter().flatten();
    objects
        .map(|object| {
            let namespace = object["namespace"].as_str().map(str::to_owned);
            (text(object, "apiVersion"), text(object, "kind"), namespace, text(object, "name"))
        })
        .collect()
}

/// Titles of the objects with this action.
fn titles_with<'a>(plan: &'a Value, action: &str) -> Vec<&'a str> {
    let objects = plan["objects"].as_array().into_iter().flatten();
    let mut names: Vec<_> = objects
        .filter(|object| object["action"] == action)
        .filter_map(|object| object["name"].as_str())
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_plan_matches_what_follows_and_changes_nothing() -> Result<()> {
    let cli = Cli::new().await?;
    let cluster = &cli.stack.cluster;
    let client = cluster.client().await?;
    let bundles = ["1.0.0", "1.1.0", "1.2.0"].map(|version| (version, bundle(version)));
    serve_package(cluster, &cli.stack.registry, "demo", bundles).await?;

    // before there is an extension, from its manifest
    let manifest = cli.home.path().join("demo.yaml");
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
        "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": "1.0.0"}}}});
    std::fs::write(&manifest, extension.to_string())?;
    let file = manifest.display().to_string();
    let plan = cli.document(2, &["plan", "-f", &file]).await?;
    let refused = plan["refused"].to_string();
    assert!(refused.contains("namespaces \\\"demo\\\" not found"), "{refused}");
    cluster.apply(r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}"#).await?;
    let plan = cli.document(1, &["plan", "-f", &file]).await?;
    assert!(plan.get("from").is_none(), "{plan}");
    assert_eq!(plan["to"]["revision"], 1);
    assert!(titles_with(&plan, "Add").contains(&"ctrl"), "{plan}");
    assert_eq!(
        plan["images"],
        json!([{"container": "Deployment demo/ctrl: main", "new": "example.invalid/main:v1"}])
    );
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "demo");
    assert!(deployments.get_opt("ctrl").await?.is_none(), "a plan changes nothing");
    let (code, _, error) = cli.run(&["plan", "demo"]).await?;
    assert_eq!((code, error.contains("there is no ClusterExtension \"demo\"")), (2, true), "{error}");

    let install = ["install", "demo", "--namespace", "demo", "--version", "1.0.0", "--wait"];
    let (code, _, error) = cli.run(&install).await?;
    assert_eq!(code, 0, "{error}");
    let (code, text, error) = cli.run(&["plan", "demo"]).await?;
    assert_eq!((code, text.ends_with("\nNothing would change.\n")), (0, true), "{text}{error}");
    let (code, text, error) = cli.run(&["diff", "demo"]).await?;
    assert_eq!((code, text.as_str()), (0, "live -> demo-1\nNo difference.\n"), "{error}");
    let (code, text, error) = cli.run(&["diff", "demo", "--planned"]).await?;
    assert_eq!((code, text.as_str()), (0, "demo-1 -> demo-1\nNo difference.\n"), "{error}");
    let (code, _, error) = cli.run(&["diff", "demo", "--any-version"]).await?;
    assert_eq!((code, error.contains("need --planned")), (2, true), "{error}");
    let (code, text, _) = cli.run(&["diff", "demo", "--planned", "--version", "7.0.0"]).await?;
    assert_eq!((code, text.contains("no bundles found")), (2, true), "{text}");
    let planned = cli.document(1, &["diff", "demo", "--planned", "--version", "1.1.0"]).await?;

    // an upgrade
    let settled = cluster.audit_length()?;
    let plan = cli.document(1, &["plan", "demo", "--version", "1.1.0"]).await?;
    let kept = named(&plan).len() - titles_with(&plan, "Remove").len();
    // the record of a request may come after its answer
    let asked = eventually("each object was tried", LIMIT, || async {
        let asked = cluster.audited(settled, |_| true)?;
        let dry = asked.iter().filter(|request| request.writes() && request.uri.contains("dryRun=All"));
        let dry = dry.count();
        anyhow::ensure!(dry >= kept, "{dry} dry runs for {kept} objects");
        Ok(asked)
    })
    .await?;
    // controllers of the control plane, which also write after any installation, have names of their own
    let of_kubernetes = |agent: &str| agent.starts_with("kube-") || agent.starts_with("kwok");
    let written: Vec<_> = asked
        .iter()
        .filter(|request| request.writes() && !request.uri.contains("dryRun=All"))
        .filter(|request| !of_kubernetes(&request.agent))
        .filter(|request| {
            !request.resource.starts_with("leases")
                && !request.resource.contains("status")
                && !request.resource.starts_with("events")
        })
        .filter(|request| !request.resource.contains("reviews") && !request.resource.starts_with("endpoint"))
        .collect();
    assert!(written.is_empty(), "{written:#?}");

    assert_eq!((&plan["from"]["version"], &plan["to"]["version"]), (&json!("1.0.0"), &json!("1.1.0")));
    assert!(plan["because"].as_str().is_some_and(|why| why.contains("replaces")), "{plan}");
    assert_eq!(titles_with(&plan, "Refuse"), Vec::<&str>::new(), "{plan}");
    assert!(
        titles_with(&plan, "Add").contains(&"new") && titles_with(&plan, "Remove").contains(&"old"),
        "{plan}"
    );
    assert_eq!(
        plan["images"],
        json!([{"container": "Deployment demo/ctrl: main", "old": "example.invalid/main:v1", "new": "example.invalid/main:v2"}])
    );
    assert_eq!(
        plan["permissions"],
        json!([{"to": "ServiceAccount demo/demo-sa", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}])
    );
    let titles = named(&plan);
    let before = cli.objects(&titles).await?;
    let (code, _, error) = cli.run(&["upgrade", "demo", "--version", "1.1.0", "--wait"]).await?;
    assert_eq!(code, 0, "{error}");
    eventually("what goes is gone", LIMIT, || async {
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await?, "demo");
        anyhow::ensure!(maps.get_opt("old").await?.is_none(), "old is still there");
        Ok(())
    })
    .await?;
    let after = cli.objects(&titles).await?;
    for object in plan["objects"].as_array().context("no objects")? {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let title = format!("{} {}", text("kind"), text("name"));
        match object["action"].as_str().unwrap_or_default() {
            "Add" => assert!(!before.contains_key(&title) && after.contains_key(&title), "{title}"),
            "Remove" => assert!(before.contains_key(&title) && !after.contains_key(&title), "{title}"),
            "Same" | "Change" => {
                let (old, new) =
                    (before.get(&title).context("not there")?, after.get(&title).context("gone")?);
                // a count that kube-controller-manager keeps, and the stamp that every upgrade changes
                let really: Vec<Value> = olm_rollout::changes(old, new)
                    .into_iter()
                    .filter(|change| !change.path.contains("deployment.kubernetes.io/revision"))
                    .filter(|change| !change.path.contains("olm.operatorframework.io/bundle-version"))
                    .map(|change| {
                        let mut field = json!({"path": change.path});
                        for (key, value) in [("old", change.old), ("new", change.new)] {
                            if let Some(value) = value {
                                field[key] = value;
                            }
                        }
                        field
                    })
                    .collect();
                let planned = object.get("fields").cloned().unwrap_or_else(|| json!([]));
                assert_eq!(planned, json!(really), "{title}");
            }
            other => panic!("{title}: {other}"),
        }
    }
    let roles: Api<ClusterRole> = Api::all(client.clone());
    assert!(!roles.list(&ListParams::default()).await?.items.is_empty());

    // two revisions, by what they hold
    let difference = cli.document(1, &["diff", "demo", "--revision", "1", "--revision", "2"]).await?;
    let has = |action: &str, title: &str| titles_with(&difference, action).contains(&title);
    assert!(has("Add", "new") && has("Remove", "old"), "{difference}");
    assert_eq!(planned, difference, "the plan is what was created");
    let back = cli.document(1, &["diff", "demo", "--to-revision", "1"]).await?;
    assert_eq!((&back["from"], &back["to"]), (&json!("demo-2"), &json!("demo-1")));
    let down = cli.document(1, &["plan", "demo", "--version", "1.0.0", "--policy", "SelfCertified"]).await?;
    let kinds: Vec<_> =
        down["notices"].as_array().into_iter().flatten().map(|notice| &notice["kind"]).collect();
    assert_eq!(kinds, ["GoesDown", "Forced", "Held"], "{down}");
    let (code, text, error) =
        cli.run(&["plan", "demo", "--version", "1.0.0", "--policy", "SelfCertified"]).await?;
    assert!(
        code == 1 && text.contains("\nGoes down:   1.0.0 is lower than the installed 1.1.0\n"),
        "{text}{error}"
    );
    let (code, _, error) = cli.run(&["diff", "demo", "--revision", "7", "--revision", "2"]).await?;
    assert_eq!((code, error.contains("demo has no revision 7")), (2, true), "{error}");

    // drift, while it is not corrected
    let pause =
        |value: Value| json!({"metadata": {"annotations": {"olm.operatorframework.io/paused": value}}});
    let extensions: Api<olm_api::ClusterExtension> = Api::all(client.clone());
    extensions.patch("demo", &PatchParams::default(), &Patch::Merge(pause(json!("true")))).await?;
    Wait::new(&extensions, "demo")
        .within(LIMIT)
        .until("is paused", |extension: &olm_api::ClusterExtension| {
            let conditions =
                extension.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            condition::find(conditions, condition::READY).is_some_and(|found| found.reason == "Paused")
        })
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "demo");
    let other = json!({"data": {"a": "another client's", "theirs": "stays"}});
    eventually("drift is shown", LIMIT, || async {
        maps.patch("both", &PatchParams::default(), &Patch::Merge(&other)).await?;
        let drift = cli.document(1, &["diff", "demo"]).await?;
        anyhow::ensure!(titles_with(&drift, "Change") == ["both"], "{drift}");
        let fields =
            drift["objects"].as_array().into_iter().flatten().find(|object| object["name"] == "both");
        let want = json!([{"path": "data.a", "old": "another client's", "new": "1.1.0"}]);
        anyhow::ensure!(fields.is_some_and(|object| object["fields"] == want), "{drift}");
        Ok(())
    })
    .await?;
    extensions.patch("demo", &PatchParams::default(), &Patch::Merge(pause(Value::Null))).await?;
    eventually("it is put right", LIMIT, || async {
        let (code, text, _) = cli.run(&["diff", "demo"]).await?;
        anyhow::ensure!(code == 0, "{text}");
        Ok(())
    })
    .await?;

    // what would be rejected is named: a foreign object, and one that admission denies
    maps.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": "taken"}}))?)
        .await?;
    for policy in [
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "deny"},
            "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]},
                     "validations": [{"expression": "object.metadata.name != 'denied'", "message": "not in this cluster"}]}}),
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "deny"},
            "spec": {"policyName": "deny", "validationActions": ["Deny"]}}),
    ] {
        cluster.apply(&policy.to_string()).await?;
    }
    eventually("the preview has the errors", LIMIT, || async {
        let plan = cli.document(2, &["plan", "demo", "--version", "1.2.0"]).await?;
        let refused = plan["refused"].to_string();
        anyhow::ensure!(
            refused.contains("ConfigMap demo/taken: it exists already and was not made by this extension"),
            "{refused}"
        );
        anyhow::ensure!(
            refused.contains("ConfigMap demo/denied: ") && refused.contains("not in this cluster"),
            "{refused}"
        );
        Ok(())
    })
    .await?;
    // a rollout that cannot begin: nothing is installed, and the dry run shows why
    let stuck = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "stuck"},
        "spec": {"namespace": "nowhere", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": "1.0.0"}}}});
    cluster.apply(&stuck.to_string()).await?;
    eventually("the plan of its revision names what blocks", LIMIT, || async {
        let plan = cli.document(2, &["plan", "stuck"]).await?;
        let refused = plan["refused"].to_string();
        anyhow::ensure!(plan.get("from").is_none() && plan["to"]["revision"] == 1, "{plan}");
        anyhow::ensure!(plan["unfinished"].is_string(), "{plan}");
        anyhow::ensure!(refused.contains("namespaces \\\"nowhere\\\" not found"), "{refused}");
        Ok(())
    })
    .await?;
    let (code, text, _) = cli.run(&["plan", "demo", "--version", "7.x"]).await?;
    assert_eq!((code, text.contains("Refused:")), (2, true), "{text}");
    assert!(maps.get("taken").await?.owner_references().is_empty());
    Ok(())
}
