//! Decision 8: objects are written as the account that an extension names, after its missing rights were reported together.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use olm_api::{ClusterExtension, ClusterObjectSet, condition};
use olm_integration::package::serve_package;
use olm_kit::{BundleImage, Cluster, Crd, Options, Stack, Wait, eventually, unique};
use serde_json::{Value, json};

use crate::world::{LIMIT, World};

/// A package with a CRD, a Role, a ClusterRole with their bindings and a Deployment.
async fn world(prefix: &str) -> Result<World> {
    let world = World::new(prefix).await?;
    let account = format!("{}-sa", world.name);
    let rule =
        |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    let permission = |rule: Value| [json!({"serviceAccountName": account, "rules": [rule]})];
    let bundle = |version: &str| {
        world
            .bundle(version)
            .crds([Crd::new("Gadget", &format!("{}.example.com", world.name))])
            .permissions(permission(rule("configmaps", &["get", "update"])))
            .cluster_permissions(permission(rule("nodes", &["get", "list"])))
    };
    let (first, second) = (bundle("1.0.0"), bundle("2.0.0").deployment("another"));
    world.serve_chain([("1.0.0", first), ("2.0.0", second)]).await?;
    Ok(world)
}

impl World {
    async fn want_as(&self, account: &str, version: &str) -> Result<()> {
        self.want_with(json!({"serviceAccount": {"name": account}}), json!({"version": version})).await
    }

    async fn account(&self, name: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": self.name}});
        self.stack.cluster.apply(&account.to_string()).await?;
        Ok(())
    }
}

#[tokio::test]
async fn account_missing_rights_are_listed_and_granted_by_rbac() -> Result<()> {
    let world = world("account").await?;
    let name = &world.name;
    world.want_as("installer", "1.0.0").await?;
    let text = world.progressing("Retrying", "does not exist").await?;
    let absent = format!(
        "service account {name}/installer does not exist; create it, then apply `kubectl olm rbac {name}`\nbundle "
    );
    assert!(text.starts_with(&absent), "{text}");
    assert_eq!(world.revisions().await?, []);

    // the account alone is not enough; the change is noticed without a wait
    world.account("installer").await?;
    let lacks = format!("service account {name}/installer lacks rights; run `kubectl olm rbac {name} |");
    let extension = world.until("lacks rights", |extension| progressing(extension).contains(&lacks)).await?;
    let text = progressing(&extension);
    assert_eq!(text.lines().count(), 11, "{text}");
    assert!(text.contains("more rules") && !text.contains("apiGroups"), "{text}");
    assert!(text.contains("\nnodes: get, list in the cluster\n"), "{text}");
    // rights that the bundle's roles grant are among them: no unreported escalation
    let roles = world.stack.roles(name, None).await?;
    assert!(roles.contains(r#""resources":["nodes"],"verbs":["get","list"]"#), "{roles}");
    assert!(roles.contains(r#""resources":["clusterobjectsets/finalizers"],"verbs":["update"]"#), "{roles}");
    assert!(!roles.contains("escalate") && !roles.contains("bind\""), "{roles}");

    world.stack.cluster.apply(&roles).await?;
    world.installed("1.0.0").await?;

    // an upgrade with another Deployment needs one right more
    world.want_as("installer", "2.0.0").await?;
    let text = world.progressing("Retrying", &lacks).await?;
    let right = format!("\napps deployments \"another\": delete, patch in namespace {name}");
    assert!(text.contains(&right) && !text.contains("nodes"), "{text}");
    world.stack.cluster.apply(&world.stack.roles(name, None).await?).await?;
    world.installed("2.0.0").await?;

    // the account is gone, and everything can be removed all the same
    let client = world.stack.cluster.client().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    accounts.delete("installer", &DeleteParams::default()).await?;
    world.extensions.delete(name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, name).within(LIMIT).to_be_gone().await?;
    let deployments: Api<Deployment> = Api::namespaced(client, name);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={name}"));
    assert_eq!(deployments.list(&owned).await?.items.len(), 0);
    Ok(())
}

fn progressing(extension: &ClusterExtension) -> String {
    let conditions = extension.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    condition::find(conditions, condition::PROGRESSING).map(|found| found.message.clone()).unwrap_or_default()
}

#[tokio::test]
async fn account_of_the_extension_writes_all_objects() -> Result<()> {
    let world = world("acting").await?;
    let (name, client) = (&world.name, world.stack.cluster.client().await?);
    world.account("installer").await?;
    world.want_as("installer", "1.0.0").await?;
    world.progressing("Retrying", "lacks rights").await?;
    let roles = world.stack.roles(name, None).await?;
    world.stack.cluster.apply(&roles).await?;
    world.installed("1.0.0").await?;

    // without its rights, a deleted object is not restored and the revision reports the reason; the controller writes nothing itself
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), name);
    bindings.delete(&format!("{name}-installer"), &DeleteParams::default()).await?;
    let user = format!("system:serviceaccount:{name}:installer");
    // the authorizer learns through a watch that the right is gone
    let review = json!({"spec": {"user": user, "resourceAttributes": {"namespace": name, "resource": "configmaps", "verb": "create"}}});
    let review: SubjectAccessReview = serde_json::from_value(review)?;
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    eventually("the account may make no ConfigMaps", LIMIT, || async {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        anyhow::ensure!(answer.status.is_some_and(|status| !status.allowed), "it still may");
        Ok(())
    })
    .await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), name);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={name}"));
    let map = maps.list(&owned).await?.items.pop().context("no ConfigMap")?;
    let map = map.metadata.name.context("no name")?;
    maps.delete(&map, &DeleteParams::default()).await?;
    let set = format!("{name}-1");
    Wait::new(&world.sets, &set)
        .within(LIMIT)
        .until("names the account", |set: &ClusterObjectSet| {
            set.status.as_ref().is_some_and(|status| {
                status
                    .conditions
                    .iter()
                    .any(|found| found.message.contains(&user) && found.message.contains("forbidden"))
            })
        })
        .await?;
    assert!(maps.get_opt(&map).await?.is_none());

    world.stack.cluster.apply(&roles).await?;
    Wait::new(&maps, &map).within(LIMIT).to_exist().await?;
    Ok(())
}

/// rule: decision 8: a missing account must not hold a removal up
#[tokio::test]
async fn account_that_is_gone_does_not_block_removal() -> Result<()> {
    let world = world("orphaned").await?;
    let (name, client) = (&world.name, world.stack.cluster.client().await?);
    world.account("installer").await?;
    world.want_as("installer", "1.0.0").await?;
    world.progressing("Retrying", "lacks rights").await?;
    world.stack.cluster.apply(&world.stack.roles(name, None).await?).await?;
    world.installed("1.0.0").await?;
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> = Api::namespaced(client.clone(), name);
    accounts.delete("installer", &DeleteParams::default()).await?;
    Wait::new(&accounts, "installer").within(LIMIT).to_be_gone().await?;
    world.extensions.delete(name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, name).within(LIMIT).to_be_gone().await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, name);
    let owned = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={name}"));
    assert_eq!(maps.list(&owned).await?.items.len(), 0);
    Ok(())
}

#[tokio::test]
async fn account_can_be_required_or_ignored() -> Result<()> {
    for mode in ["Require", "Ignore"] {
        let stack = Stack::start_with(&Options::default(), |program| {
            if program.name() == "operator-controller" {
                program.flag("--service-account-mode", mode)
            } else {
                program
            }
        })
        .await?;
        let client = stack.cluster.client().await?;
        let extensions: Api<ClusterExtension> = Api::all(client.clone());
        let bundle = BundleImage::new("demo", "1.0.0").crds([]);
        serve_package(&stack.cluster, &stack.registry, "demo", [("1.0.0", bundle)]).await?;
        let namespace = r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "demo"}}"#;
        stack.cluster.apply(namespace).await?;
        let account =
            if mode == "Ignore" { json!({"serviceAccount": {"name": "no-such-account"}}) } else { json!({}) };
        let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": "demo"},
            "spec": {"namespace": "demo", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}}});
        if let (Some(spec), Value::Object(account)) = (extension["spec"].as_object_mut(), account) {
            spec.extend(account);
        }
        extensions.patch("demo", &PatchParams::apply("test"), &Patch::Apply(&extension)).await?;
        let wait = Wait::new(&extensions, "demo").within(LIMIT);
        if mode == "Ignore" {
            wait.until("is installed", |extension: &ClusterExtension| {
                extension.status.as_ref().is_some_and(|status| status.install.is_some())
            })
            .await?;
        } else {
            wait.until("is refused", |extension: &ClusterExtension| {
                progressing(extension)
                    .contains("spec.serviceAccount is not set, and this cluster installs nothing without one")
            })
            .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn account_policy_requires_the_right_to_impersonate() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install_olm().await?;
    let policy = olm_kit::repository().join("manifests/policies/clusterextension-service-account.yaml");
    cluster.apply(&std::fs::read_to_string(policy)?).await?;
    let admin = cluster.client().await?;
    let extensions = json!([{"apiGroups": ["olm.operatorframework.io"], "resources": ["clusterextensions"],
        "verbs": ["create", "get", "patch", "update", "delete"]}]);
    allow(&admin, "tenants", extensions).await?;
    let installer = json!([{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["installer"], "verbs": ["impersonate"]}]);
    allow(&admin, "trusted", installer).await?;
    let trusted = Cluster::client_from(&cluster.kubeconfig_as("ann", &["tenants", "trusted"])?).await?;
    let other = Cluster::client_from(&cluster.kubeconfig_as("bob", &["tenants"])?).await?;

    let name = unique("policy");
    let spec = |account: Option<&str>, version: &str| {
        let mut spec = json!({"namespace": "default", "source": {"sourceType": "Catalog",
            "catalog": {"packageName": "demo", "version": version}}});
        if let Some(account) = account {
            spec["serviceAccount"] = json!({"name": account});
        }
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name}, "spec": spec})
    };
    let patch = async |client: &Client, object: Value, params: PatchParams| -> Result<Option<String>> {
        let extensions: Api<ClusterExtension> = Api::all(client.clone());
        match extensions.patch(&name, &params, &Patch::Apply(&object)).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(status.message.clone())),
            Err(error) => Err(error.into()),
        }
    };
    let params = PatchParams::apply("one").force();
    let apply = async |client: &Client, object: Value| patch(client, object, params.clone()).await;
    let dry_run =
        async |client: &Client, object: Value| patch(client, object, params.clone().dry_run()).await;
    // the policy counts from a moment after its creation
    eventually("the policy is in force", LIMIT, || async {
        let refused = dry_run(&other, spec(Some("installer"), "1.x")).await?.context("not refused")?;
        anyhow::ensure!(
            refused.contains("you may not act as service account default/installer"),
            "{refused}"
        );
        // the authorizer learns of the roles through a watch
        let refused = dry_run(&trusted, spec(Some("installer"), "1.x")).await?;
        anyhow::ensure!(refused.is_none(), "{refused:?}");
        Ok(())
    })
    .await?;
    assert_eq!(apply(&other, spec(None, "1.x")).await?, None, "no account, no question");
    assert_eq!(apply(&trusted, spec(Some("installer"), "1.x")).await?, None);
    let refused = apply(&other, spec(Some("installer"), "2.x")).await?.unwrap_or_default();
    assert!(refused.contains("you may not act as"), "{refused}");
    let refused = apply(&other, spec(None, "1.x")).await?.unwrap_or_default();
    assert!(refused.contains("you may not take service account default/installer away"), "{refused}");
    let mut annotated = spec(Some("installer"), "1.x");
    annotated["metadata"]["annotations"] = json!({"note": "metadata passes"});
    assert_eq!(apply(&other, annotated).await?, None);
    assert_eq!(apply(&trusted, spec(None, "1.x")).await?, None);
    Ok(())
}

/// Grants rules to a group.
async fn allow(client: &Client, group: &str, rules: Value) -> Result<()> {
    let params = PatchParams::apply("test");
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": group}, "rules": rules});
    Api::<ClusterRole>::all(client.clone()).patch(group, &params, &Patch::Apply(&role)).await?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": group},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}]});
    Api::<ClusterRoleBinding>::all(client.clone()).patch(group, &params, &Patch::Apply(&binding)).await?;
    Ok(())
}
