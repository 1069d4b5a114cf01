//! The controller as a confused deputy: attacks with a bundle that asks for more than its account has, with objects for other
//! namespaces, with revisions and extensions that name no account. Threats: docs/threat-model.md.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::ObjectMeta;
use olm_api::{ClusterObjectSet, annotations, condition, labels};
use olm_kit::{Entry, Options, SYSTEM_NAMESPACE, Stack, Wait};
use serde_json::{Value, json};

use crate::world::{LIMIT, World};

impl World {
    /// Installs a version as `installer`, which gets the roles that `kubectl olm rbac` prints.
    async fn install_as_installer(&self, version: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "installer", "namespace": self.name}});
        self.stack.cluster.apply(&account.to_string()).await?;
        self.want_version(version).await?;
        self.progressing("Retrying", "lacks rights").await?;
        self.stack.cluster.apply(&self.stack.roles(&self.name, None).await?).await?;
        self.installed(version).await?;
        Ok(())
    }

    async fn want_version(&self, version: &str) -> Result<()> {
        self.want_with(json!({"serviceAccount": {"name": "installer"}}), json!({"version": version})).await
    }

    /// Waits until the message of a revision's Progressing contains this.
    async fn until_message(&self, revision: &str, words: &str) -> Result<()> {
        Wait::new(&self.sets, revision)
            .within(LIMIT)
            .log(self.stack.operator_controller.log())
            .until(&format!("has {words:?}"), |set: &ClusterObjectSet| {
                let conditions = set.status.as_ref().map(|status| status.conditions.as_slice());
                condition::find(conditions.unwrap_or_default(), condition::PROGRESSING)
                    .is_some_and(|found| found.message.contains(words))
            })
            .await?;
        Ok(())
    }
}

fn rule(group: &str, resource: &str, verb: &str) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]})
}

#[tokio::test]
async fn bundle_cannot_grant_rights_that_its_account_lacks() -> Result<()> {
    let world = World::new("greedy").await?;
    let account = format!("{}-sa", world.name);
    let with = |version: &str, rules: Value| {
        let permissions = json!({"serviceAccountName": account, "rules": rules});
        (version.to_owned(), world.bundle(version).cluster_permissions([permissions]))
    };
    let (rbac, token) = ("rbac.authorization.k8s.io", "serviceaccounts/token");
    let cases = [
        ("2.0.0", "everything", json!([rule("*", "*", "*")]), "* *: *"),
        ("2.0.1", "other users", json!([rule("", "users", "impersonate")]), "users: impersonate"),
        ("2.0.2", "rights to give rights", json!([rule(rbac, "clusterroles", "escalate")]), ": escalate"),
        ("2.0.3", "rights to bind", json!([rule(rbac, "clusterroles", "bind")]), ": bind"),
        ("2.0.4", "secrets", json!([rule("", "secrets", "get")]), "secrets: get"),
        ("2.0.5", "tokens", json!([rule("", token, "create")]), "serviceaccounts/token: create"),
    ];
    let mut bundles = vec![with("1.0.0", json!([rule("", "nodes", "list")]))];
    let mut entries = vec![Entry::new("1.0.0")];
    for (version, _, rules, _) in &cases {
        bundles.push(with(version, rules.clone()));
        entries.push(Entry::new(version).replaces("1.0.0"));
    }
    let bundles = bundles.iter().map(|(version, bundle)| (version.as_str(), bundle.clone()));
    world.serve(bundles, entries).await?;
    world.install_as_installer("1.0.0").await?;

    let client = world.stack.cluster.client().await?;
    for (version, what, _, words) in cases {
        world.want_version(version).await?;
        let lacks = format!("service account {}/installer lacks rights", world.name);
        let extension = world
            .until(&format!("is refused {what}"), |extension| {
                crate::world::current(extension, condition::PROGRESSING)
                    .is_some_and(|found| found.message.contains(&lacks) && found.message.contains(words))
            })
            .await?;
        let installed = extension.status.and_then(|status| status.install).context("nothing installed")?;
        assert_eq!(installed.bundle.version, "1.0.0", "{what}");
    }
    assert_eq!(world.revisions().await?.len(), 1, "no revision was made for any of them");
    let of = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, world.name));
    let roles = Api::<ClusterRole>::all(client).list(&of).await?.items;
    let rules: Vec<_> = roles.into_iter().flat_map(|role| role.rules.unwrap_or_default()).collect();
    for rule in rules {
        let (verbs, resources) = (rule.verbs, rule.resources.unwrap_or_default());
        let greedy = |words: &[String]| {
            let excessive = ["*", "impersonate", "escalate", "bind", "secrets", "serviceaccounts/token"];
            words.iter().any(|word| excessive.contains(&word.as_str()))
        };
        ensure!(!greedy(&verbs) && !greedy(&resources), "{verbs:?} on {resources:?} was handed out");
    }
    Ok(())
}

#[tokio::test]
async fn bundle_objects_stay_in_the_namespace_and_set_no_owners() -> Result<()> {
    let world = World::new("abroad").await?;
    let other = |name: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"},
            "metadata": {"name": format!("{}-{name}", world.name), "namespace": "kube-system"}})
    };
    let mut owned = other("owned");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "kube-system",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true}]);
    owned["metadata"]["finalizers"] = json!(["example.com/never"]);
    let bundle = world.bundle("1.0.0").extra(other("abroad")).extra(owned);
    world.serve([("1.0.0", bundle)], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    let client = world.stack.cluster.client().await?;
    let here: Api<ConfigMap> = Api::namespaced(client.clone(), &world.name);
    let abroad: Api<ConfigMap> = Api::namespaced(client, "kube-system");
    for name in ["abroad", "owned"] {
        let name = format!("{}-{name}", world.name);
        assert!(abroad.get_opt(&name).await?.is_none(), "{name} is in kube-system");
        let metadata = here.get(&name).await?.metadata;
        assert_eq!(metadata.finalizers, None, "{name}");
        let owners = metadata.owner_references.unwrap_or_default();
        let kinds: Vec<_> = owners.iter().map(|owner| owner.kind.as_str()).collect();
        assert_eq!(kinds, ["ClusterObjectSet"], "{name}");
    }
    Ok(())
}

/// Where accounts are required, the controller writes nothing as itself: not for a revision made by hand, not for an extension
/// whose account was taken away.
#[tokio::test]
async fn account_that_is_required_has_no_substitute() -> Result<()> {
    let stack = Stack::start_with(&Options::default(), |program| match program.name() {
        "operator-controller" => program.flag("--service-account-mode", "Require"),
        _ => program,
    })
    .await?;
    let world = World::on(Box::leak(Box::new(stack)), "required").await?;
    let client = world.stack.cluster.client().await?;

    // by hand, without an extension and with one that is not there
    for (name, owner) in [("planted", None), ("planted-for", Some("no-such-extension"))] {
        let mut set = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": format!("{name}-1")},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": [
                {"name": "configuration", "objects": [{"object": {"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": "kube-system"}}}]}]},
        });
        if let Some(owner) = owner {
            set["metadata"]["labels"] =
                json!({labels::OWNER_KIND: labels::OWNER_KIND_CLUSTER_EXTENSION, labels::OWNER_NAME: owner});
        }
        world.sets.create(&PostParams::default(), &serde_json::from_value(set)?).await?;
        world
            .until_message(
                &format!("{name}-1"),
                "names no service account, and this cluster writes nothing without one",
            )
            .await?;
        let there: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
        assert!(there.get_opt(name).await?.is_none(), "{name} was written as the controller");
        world.sets.delete(&format!("{name}-1"), &DeleteParams::default()).await?;
        Wait::new(&world.sets, &format!("{name}-1")).within(LIMIT).to_be_gone().await?;
    }

    // an extension whose account is taken out of the spec: what was deleted stays away
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_as_installer("1.0.0").await?;
    world.want(json!({"version": "1.0.0"})).await?;
    world.progressing("Retrying", "this cluster installs nothing without one").await?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &world.name);
    let of = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, world.name));
    let map = maps.list(&of).await?.items.pop().and_then(|map| map.metadata.name).context("no ConfigMap")?;
    maps.delete(&map, &DeleteParams::default()).await?;
    world.until_message(&format!("{}-1", world.name), "names no service account").await?;
    assert!(maps.get_opt(&map).await?.is_none(), "the controller stood in");

    // and removal works all the same
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client, &world.name);
    ensure!(bindings.list(&of).await?.items.is_empty(), "something is left");
    Ok(())
}

/// Deletes an object as often as it is restored.
async fn delete_until_dropped(maps: &Api<ConfigMap>, map: &str) -> Result<()> {
    loop {
        maps.delete(map, &DeleteParams::default()).await?;
        Wait::new(maps, map).within(LIMIT).to_exist().await?;
    }
}

/// A revision that outlived its extension is written as the account of that extension, not as the controller, and not as a new
/// extension of the same name has.
#[tokio::test]
async fn orphaned_revision_is_written_as_its_account() -> Result<()> {
    let world = World::new("left").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_as_installer("1.0.0").await?;
    world.until_revisions_are_collected().await?;
    world.extensions.delete(&world.name, &DeleteParams::orphan()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    // it names no account, and is paused
    let successor = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": world.name, "annotations": {annotations::PAUSED: "true"}},
        "spec": {"namespace": world.name, "source": {"sourceType": "Catalog", "catalog": {"packageName": world.name}}}});
    world.extensions.create(&PostParams::default(), &serde_json::from_value(successor)?).await?;
    world
        .until("is paused", |extension| {
            crate::world::current(extension, condition::READY).is_some_and(|found| found.reason == "Paused")
        })
        .await?;

    let client = world.stack.cluster.client().await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &world.name);
    let account = accounts.get("installer").await?;
    accounts.delete("installer", &DeleteParams::default()).await?;
    let maps: Api<ConfigMap> = Api::namespaced(client, &world.name);
    let map = format!("{}-config", world.name);
    let (revision, missing) =
        (format!("{}-1", world.name), format!("service account {}/installer does not exist", world.name));
    // until the controller finds that the account is gone, it restores the object as that account
    tokio::select! {
        found = world.until_message(&revision, &missing) => found?,
        failed = delete_until_dropped(&maps, &map) => return failed,
    }
    assert!(maps.get_opt(&map).await?.is_none(), "the controller stood in");

    let again = ServiceAccount {
        metadata: ObjectMeta { name: account.metadata.name, ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &again).await?;
    Wait::new(&maps, &map).within(LIMIT).to_exist().await?;
    Ok(())
}

/// The names of content Secrets can be foreseen. What lies there is not believed because of its name.
#[tokio::test]
async fn content_planted_in_advance_is_not_used() -> Result<()> {
    let world = World::new("await").await?;
    world.serve([("1.0.0", world.bundle("1.0.0"))], [Entry::new("1.0.0")]).await?;
    world.install_any("1.0.0").await?;
    let client = world.stack.cluster.client().await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    let of = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, world.name));
    let content = secrets.list(&of).await?.items;
    ensure!(!content.is_empty(), "no content Secret");
    world.extensions.delete(&world.name, &DeleteParams::default()).await?;
    Wait::new(&world.extensions, &world.name).within(LIMIT).to_be_gone().await?;
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "forged", "namespace": world.name}});
    let mut names = Vec::new();
    for secret in content {
        let name = secret.metadata.name.context("no name")?;
        Wait::new(&secrets, &name).within(LIMIT).to_be_gone().await?;
        let keys = secret.data.unwrap_or_default().into_keys();
        let data: serde_json::Map<String, Value> =
            keys.map(|key| (key, json!(manifest.to_string()))).collect();
        let forged = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "immutable": true,
            "type": secret.type_, "stringData": data});
        secrets.create(&PostParams::default(), &serde_json::from_value(forged)?).await?;
        names.push(name);
    }

    world.want(json!({})).await?;
    let message = world.progressing("Retrying", "it exists and holds other content").await?;
    let words = format!("creating ref Secret {:?}: it exists and holds other content; delete it", names[0]);
    ensure!(message.contains(&words), "{message}");
    assert_eq!(world.revisions().await?, []);
    let maps: Api<ConfigMap> = Api::namespaced(client, &world.name);
    assert!(maps.get_opt("forged").await?.is_none());

    for name in &names {
        secrets.delete(name, &DeleteParams::default()).await?;
    }
    world.again().await?;
    world.installed("1.0.0").await?;
    Ok(())
}
