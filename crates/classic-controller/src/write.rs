//! Writing objects of any kind so that they have what a decision names, and no request when they have it.

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Client, Resource};
use olm_classic::ownership::extension_conflict;
use olm_core::Object;
use olm_runtime::apply::{ErrorClass, classify};
use olm_runtime::watched::{self, Objects};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::context::MANAGER;

/// Kinds whose fields others write, too: what is not named stays.
const SHARED: [&str; 2] = ["Service", "Secret"];

/// The object as a typed cache has it.
pub(crate) fn object(typed: &impl Serialize) -> Object {
    let value = serde_json::to_value(typed).unwrap_or_default();
    Object::from_value(value).unwrap_or_default()
}

/// Shows an object as the apiserver answered it, before the watch does. One that was there before the write, and has gone since, stays so.
pub(crate) fn cache_answer<K>(objects: &Objects<K>, is_new: bool, answer: Option<Object>)
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let answer = answer.and_then(|answer| serde_json::from_value::<K>(answer.into_value()).ok());
    let Some(answer) = answer.map(watched::Object::new) else { return };
    if is_new {
        objects.insert(answer.key(), answer);
    } else {
        objects.update(answer.key(), answer);
    }
}

/// Whether `live` has all that `desired` names, so that nothing needs to be written. Fields that the apiserver or others added do not count.
pub(crate) fn has(live: &Object, desired: &Object) -> bool {
    let is_aggregated = |object: &Object| object.0.contains_key("aggregationRule");
    let body = desired.0.iter().filter(|(member, _)| !matches!(member.as_str(), "metadata" | "status"));
    let metadata = |member: &str| desired.metadata().and_then(|it| it.get(member));
    let has_metadata = |member: &str| {
        metadata(member)
            .is_none_or(|desired| includes(live.metadata().and_then(|it| it.get(member)), desired))
    };
    let owners = |object: &Object| -> Vec<Value> {
        let list = object.metadata().and_then(|it| it.get("ownerReferences")).and_then(Value::as_array);
        list.into_iter().flatten().map(|owner| owner["uid"].clone()).collect()
    };
    let live_owners = owners(live);
    body.into_iter().all(|(member, desired)| includes(live.0.get(member), desired))
        && has_metadata("labels")
        && has_metadata("annotations")
        && owners(desired).iter().all(|uid| live_owners.contains(uid))
        && (desired.kind() != "ClusterRole" || is_aggregated(live) == is_aggregated(desired))
}

/// Whether a value has what another one names; what is empty may be absent.
pub(crate) fn includes(live: Option<&Value>, desired: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    match (desired, live) {
        (desired, None | Some(Value::Null)) => is_empty(desired),
        (Value::Object(desired), Some(Value::Object(live))) => {
            desired.iter().all(|(member, desired)| includes(live.get(member), desired))
        }
        (Value::Array(desired), Some(Value::Array(live))) => {
            desired.len() == live.len()
                && desired.iter().zip(live).all(|(desired, live)| includes(Some(live), desired))
        }
        (desired, Some(live)) => desired == live,
    }
}

/// The object to replace `live` with: the body of `desired`, and labels, annotations and owners of both.
pub(crate) fn merged(live: &Object, desired: &Object) -> Object {
    let mut merged = desired.clone();
    if SHARED.contains(&desired.kind()) {
        merged = live.clone();
        for (member, value) in desired.0.iter().filter(|(member, _)| member.as_str() != "metadata") {
            overlay(merged.0.entry(member.clone()).or_insert(Value::Null), value);
        }
    }
    // those of an aggregated role are written by Kubernetes, and stay when it is not aggregated any more
    if let ("ClusterRole", None, Some(rules)) = (desired.kind(), desired.0.get("rules"), live.0.get("rules"))
    {
        merged.0.insert("rules".to_owned(), rules.clone());
    }
    let mut metadata = live.metadata().cloned().unwrap_or_default();
    metadata.remove("managedFields");
    for member in ["labels", "annotations"] {
        if let Some(desired) = desired.metadata().and_then(|it| it.get(member)) {
            overlay(metadata.entry(member).or_insert(Value::Null), desired);
        }
    }
    let owners = |metadata: Option<&Map<String, Value>>| -> Vec<Value> {
        metadata.and_then(|it| it.get("ownerReferences")?.as_array().cloned()).unwrap_or_default()
    };
    let mut all = owners(desired.metadata());
    let is_csv = |owner: &Value| owner["kind"] == "ClusterServiceVersion";
    let has_csv = all.iter().any(is_csv);
    let mut earlier = owners(Some(&metadata));
    // a newer version of an operator takes an object over from the one that it replaces
    earlier.retain(|owner| all.iter().all(|it| it["uid"] != owner["uid"]) && !(has_csv && is_csv(owner)));
    all.extend(earlier);
    if !all.is_empty() {
        metadata.insert("ownerReferences".to_owned(), all.into());
    }
    merged.0.insert("metadata".to_owned(), Value::Object(metadata));
    merged
}

/// Members of maps are added or replaced, everything else is replaced.
fn overlay(value: &mut Value, desired: &Value) {
    match (value, desired) {
        (Value::Object(value), Value::Object(desired)) => {
            for (member, desired) in desired {
                overlay(value.entry(member.clone()).or_insert(Value::Null), desired);
            }
        }
        (value, desired) => *value = desired.clone(),
    }
}

/// Sends writes as one identity.
#[derive(Clone)]
pub(crate) struct ObjectWriter {
    client: Client,
}

impl ObjectWriter {
    pub(crate) fn new(client: Client) -> Self {
        Self { client }
    }

    fn api(&self, object: &Object) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
        let resource = ApiResource::from_gvk(&gvk);
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    /// Creates the object, or replaces it if it lacks something; nothing if `live`, which may be cached, has all. Returns what the apiserver
    /// answered, `None` if it was not asked to write. An object of an extension of OLM v1 is not replaced: that is a conflict.
    pub(crate) async fn ensure(
        &self,
        desired: &Object,
        live: Option<&Object>,
    ) -> kube::Result<Option<Object>> {
        if let Some(live) = live {
            if has(live, desired) {
                return Ok(None);
            }
            return self.replace_own(live, desired).await.map(Some);
        }
        let rejection = match self.create(desired).await {
            // what is named may lack a required field that the object has: that is checked first
            Err(error) if matches!(classify(&error), ErrorClass::AlreadyExists | ErrorClass::Invalid) => {
                error
            }
            answer => return answer.map(Some),
        };
        let Some(live) = self.api(desired).get_opt(desired.name()).await? else { return Err(rejection) };
        let live = object(&live);
        if has(&live, desired) {
            return Ok(Some(live));
        }
        self.replace_own(&live, desired).await.map(Some)
    }

    async fn replace_own(&self, live: &Object, desired: &Object) -> kube::Result<Object> {
        match extension_conflict(live) {
            Some(conflict) => {
                Err(kube::Error::Api(Status::failure(&conflict, "Conflict").with_code(409).boxed()))
            }
            None => self.replace(live, desired).await,
        }
    }

    pub(crate) async fn create(&self, desired: &Object) -> kube::Result<Object> {
        let body: DynamicObject =
            serde_json::from_value(desired.to_value()).map_err(kube::Error::SerdeError)?;
        Ok(object(&self.api(desired).create(&posting(), &body).await?))
    }

    /// Replaces the object, in the state `live`.
    pub(crate) async fn replace(&self, live: &Object, desired: &Object) -> kube::Result<Object> {
        let body: DynamicObject =
            serde_json::from_value(merged(live, desired).into_value()).map_err(kube::Error::SerdeError)?;
        Ok(object(&self.api(desired).replace(live.name(), &posting(), &body).await?))
    }

    /// Merges a patch into the object that `target` names.
    pub(crate) async fn patch(&self, target: &Object, patch: &Value) -> kube::Result<Object> {
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        Ok(object(&self.api(target).patch(target.name(), &params, &Patch::Merge(patch)).await?))
    }

    /// Deletes this very object. `true`: it is gone, or goes; `false`: another object has its name by now.
    pub(crate) async fn delete(&self, object: &Object) -> kube::Result<bool> {
        let uid = object.metadata().and_then(|it| it.get("uid")?.as_str()).map(str::to_owned);
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            ..DeleteParams::background()
        };
        match self.api(object).delete(object.name(), &params).await {
            Err(error) if classify(&error) == ErrorClass::NotFound => Ok(true),
            Err(error) if classify(&error) == ErrorClass::Conflict => Ok(false),
            answer => answer.map(|_| true),
        }
    }
}

fn posting() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// An object without a body, which names another one.
pub(crate) fn named(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Object {
    let mut metadata = json!({ "name": name });
    if let Some(namespace) = namespace {
        metadata["namespace"] = namespace.into();
    }
    let members = [("apiVersion", api_version.into()), ("kind", kind.into()), ("metadata", metadata)];
    Object(members.into_iter().map(|(member, value)| (member.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::testing::{Apiserver, failure};

    #[test]
    fn answer_after_a_deletion_adds_no_row() {
        for (is_there, is_new, want) in
            [(false, true, Some("2")), (true, false, Some("2")), (false, false, None)]
        {
            let answer = |version: &str| {
                let metadata =
                    json!({"name": "c", "namespace": "ns", "uid": "u", "resourceVersion": version});
                Some(object_of(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})))
            };
            let objects: Objects<ConfigMap> = Objects::by_namespace();
            if is_there {
                cache_answer(&objects, true, answer("1"));
            }
            cache_answer(&objects, is_new, answer("2"));
            let found = objects.find("ns/c").and_then(|it| it.metadata.resource_version.clone());
            assert_eq!(found.as_deref(), want, "{is_there} {is_new}");
        }
    }

    fn object_of(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn write_leaves_objects_of_extensions_alone() {
        use olm_api::labels::{OWNER_KIND, OWNER_KIND_CLUSTER_EXTENSION, OWNER_NAME};
        let service = |labels: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "n", "labels": labels}});
        let live = service(json!({(OWNER_KIND): OWNER_KIND_CLUSTER_EXTENSION, (OWNER_NAME): "shop"}));
        let stored = live.clone();
        let server = Apiserver::new(move |method, _| match method {
            "POST" => failure(409, "AlreadyExists"),
            _ => (200, stored.clone()),
        });
        let writer = ObjectWriter::new(server.client());
        let desired = object_of(service(json!({"app": "web"})));
        for (cached, requests) in [(Some(object_of(live)), 0), (None, 2)] {
            let error = writer.ensure(&desired, cached.as_ref()).await.unwrap_err();
            let want = "Service web belongs to ClusterExtension shop of OLM v1; uninstall one of the two";
            assert_eq!(olm_runtime::apply::message(&error), want);
            assert_eq!(server.requests().len(), requests);
        }
    }

    #[tokio::test]
    async fn write_adds_to_an_object_that_no_cache_has() {
        let secret = |metadata: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls"});
        let mut stored = secret(json!({"name": "cert", "namespace": "n", "resourceVersion": "1"}));
        stored["data"] = json!({"tls.crt": "YQ==", "tls.key": "YQ=="});
        let desired = secret(json!({"name": "cert", "namespace": "n", "annotations": {"olmcahash": "1"}}));
        for (exists, requests) in [(true, 3), (false, 2)] {
            let stored = stored.clone();
            let server = Apiserver::new(move |method, _| match method {
                "POST" => failure(422, "Invalid"),
                "GET" if !exists => failure(404, "NotFound"),
                _ => (200, stored.clone()),
            });
            let written = ObjectWriter::new(server.client()).ensure(&object_of(desired.clone()), None).await;
            assert_eq!(written.is_ok(), exists, "{written:?}");
            assert_eq!(server.requests().len(), requests, "{:?}", server.requests());
            if let Err(error) = written {
                assert_eq!(classify(&error), ErrorClass::Invalid);
            }
        }
    }

    #[test]
    fn write_is_left_out_when_the_object_has_all() {
        let labelled = |labels: Value| json!({"metadata": {"labels": labels}});
        let owned = |uids: &[&str]| {
            let owners: Vec<Value> = uids.iter().map(|uid| json!({"uid": uid})).collect();
            json!({"metadata": {"ownerReferences": owners}})
        };
        for (live, desired, want) in [
            (json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": 1}}), true),
            (json!({"a": {"b": 1}}), json!({"a": {"b": 2}}), false),
            (json!({}), json!({"a": [], "b": {}, "c": null}), true),
            (json!({}), json!({"a": false}), false),
            (json!({"a": [{"p": 1, "default": 2}]}), json!({"a": [{"p": 1}]}), true),
            (json!({"a": [1, 2]}), json!({"a": [1]}), false),
            (json!({"status": 1}), json!({"status": 2}), true),
            (labelled(json!({"a": "1", "b": "2"})), labelled(json!({"a": "1"})), true),
            (labelled(json!({"b": "2"})), labelled(json!({"a": "1"})), false),
            (owned(&["1", "2"]), owned(&["2"]), true),
            (owned(&["1"]), owned(&["2"]), false),
            (json!({"kind": "ClusterRole", "aggregationRule": {}}), json!({"kind": "ClusterRole"}), false),
        ] {
            assert_eq!(
                has(&object_of(live.clone()), &object_of(desired.clone())),
                want,
                "{live} has {desired}"
            );
        }
    }

    #[test]
    fn write_replaces_the_body_and_keeps_metadata() {
        let live = |kind: &str| {
            object_of(json!({
                "kind": kind, "spec": {"own": 1, "old": 2},
                "metadata": {
                    "name": "n", "resourceVersion": "7", "labels": {"theirs": "1", "both": "1"},
                    "ownerReferences": [{"uid": "u1"}, {"uid": "u0", "kind": "ClusterServiceVersion"}], "managedFields": [],
                },
            }))
        };
        let desired = |kind: &str| {
            object_of(json!({
                "kind": kind, "spec": {"own": 3},
                "metadata": {"name": "n", "labels": {"both": "2"}, "ownerReferences": [{"uid": "u2", "kind": "ClusterServiceVersion"}]},
            }))
        };
        let metadata = json!({
            "name": "n", "resourceVersion": "7", "labels": {"theirs": "1", "both": "2"},
            "ownerReferences": [{"uid": "u2", "kind": "ClusterServiceVersion"}, {"uid": "u1"}],
        });
        for (kind, spec) in [("Deployment", json!({"own": 3})), ("Service", json!({"own": 3, "old": 2}))] {
            let got = merged(&live(kind), &desired(kind)).into_value();
            assert_eq!(got, json!({"kind": kind, "spec": spec, "metadata": metadata}), "{kind}");
        }
    }
}
