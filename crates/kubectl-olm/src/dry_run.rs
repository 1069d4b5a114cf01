//! Server-side dry runs of the writes of a revision, under the controller's field manager, so that defaults, admission and the fields
//! of other managers count.
//!
//! As in the controller, `olm_rollout` decides whether an object may be written, and compares the two sides.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::ClusterObjectSet;
use olm_core::{Object, ObjectKey};
use olm_install::resolution::revision::is_active;
use olm_rollout::{
    FieldChange, Protection, Revision, Sibling, Step, changes, conflicting_owner, decide_object, forecast,
    keys, relinquished,
};
use olm_runtime::error_text::chain;
use serde::Serialize;
use serde_json::Value;

use crate::kinds::{Kinds, NoResource, api};
use crate::rights::{self, in_words};

/// Dry runs at the same time.
const PARALLEL_REQUESTS: usize = 8;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ObjectPreview {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) action: Action,
    /// Fields that would differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<Field>,
    /// The reason for which it would be refused or is unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// The key of the object in the revision's Secrets: the hash of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) hash: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Action {
    /// It is not there and would be created.
    Add,
    Change,
    Remove,
    /// It would be left behind, because of its deletion policy.
    Keep,
    Same,
    Refuse,
    Unknown,
}

/// A field with its path.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Field {
    pub(crate) path: String,
    /// Before; absent when the field is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<Value>,
    /// After; absent when the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new: Option<Value>,
}

impl ObjectPreview {
    pub(crate) fn new(object: &Object, action: Action) -> Self {
        Self {
            api_version: object.api_version().to_owned(),
            kind: object.kind().to_owned(),
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
            action,
            fields: Vec::new(),
            message: String::new(),
            hash: None,
        }
    }

    /// A change from one side to the other, or none.
    pub(crate) fn changed(old: &Object, new: &Object) -> Self {
        let field = |FieldChange { path, old, new }| Field { path, old, new };
        let fields: Vec<Field> = changes(old, new).into_iter().map(field).collect();
        let action = if fields.is_empty() { Action::Same } else { Action::Change };
        Self { fields, ..Self::new(new, action) }
    }

    fn with_message(object: &Object, action: Action, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::new(object, action) }
    }

    /// Without the version annotation of every object: it differs between any two bundles.
    pub(crate) fn without_stamp(mut self) -> Self {
        let stamp = format!("metadata.annotations[{}]", keys::BUNDLE_VERSION);
        self.fields.retain(|field| field.path != stamp);
        if self.action == Action::Change && self.fields.is_empty() {
            self.action = Action::Same;
        }
        self
    }

    pub(crate) fn title(&self) -> String {
        title(&self.kind, self.namespace.as_deref(), &self.name)
    }
}

/// What tables and trees call an object.
pub(crate) fn title(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// The writer of the dry runs.
pub(crate) struct DryRun<'a> {
    pub(crate) client: &'a Client,
    pub(crate) extension: &'a str,
    /// UID of the extension, which controls the objects of a Helm release.
    pub(crate) uid: &'a str,
    pub(crate) revision: Revision,
    pub(crate) siblings: Vec<Sibling>,
}

/// The extension's revision, beside the one that is written.
pub(crate) fn sibling(set: &ClusterObjectSet) -> Sibling {
    Sibling { uid: set.uid().unwrap_or_default(), number: set.spec.revision, retired: !is_active(set) }
}

/// The identity of an object in all versions of its kind.
pub(crate) fn identity(key: &ObjectKey) -> (String, String, Option<String>, String) {
    (key.group.clone(), key.kind.clone(), key.namespace.clone(), key.name.clone())
}

impl DryRun<'_> {
    /// Applies the objects. Returns their previews, in their order.
    pub(crate) async fn apply(&self, kinds: &mut Kinds, objects: &[Object]) -> Vec<ObjectPreview> {
        let brought: BTreeSet<(String, String)> = objects.iter().filter_map(defined).collect();
        let mut requests = Vec::new();
        for object in objects {
            let kind = kinds.resource_of(object).await;
            let own = brought.contains(&(object.group().to_owned(), object.kind().to_owned()));
            requests.push(self.apply_object(object, kind, own));
        }
        futures::stream::iter(requests).buffered(PARALLEL_REQUESTS).collect().await
    }

    async fn apply_object(
        &self,
        content: &Object,
        kind: Result<(ApiResource, bool), NoResource>,
        own: bool,
    ) -> ObjectPreview {
        let (resource, namespaced) = match kind {
            Ok(kind) => kind,
            Err(NoResource::NotServed(_)) if own => {
                let why = "the cluster does not serve its kind yet; the revision brings it";
                return ObjectPreview::with_message(content, Action::Add, why);
            }
            Err(NoResource::NotServed(why)) => {
                return ObjectPreview::with_message(content, Action::Refuse, why);
            }
            Err(NoResource::Unknown(why)) => {
                return ObjectPreview::with_message(content, Action::Unknown, in_words(&why));
            }
        };
        let api = api(self.client, content, &resource, namespaced);
        let live = match api.get_opt(content.name()).await.map(|live| live.map(plain)) {
            Ok(live) => live.flatten(),
            Err(error) => {
                let why = in_words(&chain(&error));
                return ObjectPreview::with_message(content, Action::Unknown, why);
            }
        };
        if let Some(why) = live.as_ref().and_then(|live| self.foreign(content, live)) {
            return ObjectPreview::with_message(content, Action::Refuse, why);
        }
        match (self.result(&api, content, live.as_ref()).await, live) {
            (Ok(_), None) => ObjectPreview::new(content, Action::Add),
            (Ok(result), Some(live)) => {
                let mut preview = ObjectPreview::changed(&live, &result);
                if own {
                    preview.message =
                        "judged by the schema that is served now; its CRD is part of the revision".to_owned();
                }
                preview
            }
            (Err(error), _) => {
                let action = if is_missing_right(&error) { Action::Unknown } else { Action::Refuse };
                ObjectPreview::with_message(content, action, in_words(&message(&error)))
            }
        }
    }

    /// The reason for which the controller would not write the object.
    fn foreign(&self, content: &Object, live: &Object) -> Option<String> {
        let step =
            match decide_object(content, Some(live), &self.revision, &self.siblings, Protection::Prevent) {
                Ok(step) => step,
                Err(problem) => return Some(problem.to_string()),
            };
        let owner = conflicting_owner(live);
        match (step, owner) {
            (Step::Refuse, Some(owner)) if owner.uid == self.uid => None,
            (Step::Refuse, Some(owner)) => {
                Some(format!("it exists already and belongs to {} {}", owner.kind, owner.name))
            }
            (Step::Refuse, None) => Some("it exists already and was not made by this extension".to_owned()),
            (Step::Wait, _) => Some("it is being deleted".to_owned()),
            (Step::Create | Step::Nothing | Step::Apply { .. } | Step::Adopt | Step::Leave, _) => None,
        }
    }

    /// The object after the write.
    async fn result(
        &self,
        api: &Api<DynamicObject>,
        content: &Object,
        live: Option<&Object>,
    ) -> Result<Object, kube::Error> {
        let desired = forecast(content, self.extension, self.revision.number, live);
        let params = PatchParams { dry_run: true, force: true, ..PatchParams::apply(keys::FIELD_MANAGER) };
        let answer = api.patch(content.name(), &params, &Patch::Apply(&desired)).await?;
        let Some(answer) = plain(answer) else { return Ok(desired) };
        let Some(left) = live.and_then(|live| relinquished(&desired, live, &answer)) else {
            return Ok(answer);
        };
        let Ok(left) = serde_json::from_value(left.into_value()) else { return Ok(answer) };
        let params = PostParams { dry_run: true, field_manager: Some(keys::FIELD_MANAGER.to_owned()) };
        let replaced = api.replace(content.name(), &params, &left).await?;
        Ok(plain(replaced).unwrap_or(answer))
    }

    /// Removes objects that are not part of the revision.
    pub(crate) async fn remove(&self, kinds: &mut Kinds, objects: &[Object]) -> Vec<ObjectPreview> {
        let mut found = Vec::new();
        for object in objects {
            let (resource, namespaced) = match kinds.resource_of(object).await {
                Ok(kind) => kind,
                // it has no objects
                Err(NoResource::NotServed(_)) => continue,
                Err(NoResource::Unknown(why)) => {
                    found.push(ObjectPreview::with_message(object, Action::Unknown, in_words(&why)));
                    continue;
                }
            };
            let live = api(self.client, object, &resource, namespaced).get_opt(object.name()).await;
            let is_own = |live: &Object| {
                conflicting_owner(live).is_some_and(|owner| {
                    owner.uid == self.uid || self.siblings.iter().any(|sibling| sibling.uid == owner.uid)
                })
            };
            match live.map(|live| live.and_then(plain)) {
                Ok(Some(live)) if is_own(&live) => {
                    let keep =
                        object.annotations().get(keys::DELETION_POLICY) == Some(&keys::DELETION_POLICY_KEEP);
                    found.push(ObjectPreview::new(object, if keep { Action::Keep } else { Action::Remove }));
                }
                Ok(_) => {}
                Err(error) => {
                    let why = in_words(&chain(&error));
                    found.push(ObjectPreview::with_message(object, Action::Unknown, why));
                }
            }
        }
        found
    }
}

/// The kind that a CRD defines.
fn defined(object: &Object) -> Option<(String, String)> {
    if object.kind() != "CustomResourceDefinition" {
        return None;
    }
    let value = object.to_value();
    let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/spec/group")?, text("/spec/names/kind")?))
}

fn plain(object: DynamicObject) -> Option<Object> {
    Object::from_value(serde_json::to_value(object).ok()?).ok()
}

/// Whether the user lacks the right, which does not mean that the controller lacks it.
fn is_missing_right(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            rights::is_missing_right(&status.message)
                || status.message.contains("attempting to grant RBAC permissions not currently held")
        }
        kube::Error::Api(status) => status.code == 401 || status.code == 429 || status.code >= 500,
        _ => true,
    }
}

fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stand_in;
    use serde_json::json;

    #[test]
    fn dry_run_reads_the_kind_of_a_crd() {
        let object = |value: Value| Object::from_value(value).unwrap();
        let crd =
            json!({"kind": "CustomResourceDefinition", "spec": {"group": "g.io", "names": {"kind": "Foo"}}});
        assert_eq!(defined(&object(crd)), Some(("g.io".to_owned(), "Foo".to_owned())));
        assert_eq!(defined(&object(json!({"kind": "Foo"}))), None);
    }

    #[tokio::test]
    async fn dry_run_of_an_unknown_kind_is_unknown() {
        let client = stand_in::cluster(|request| {
            Some(match request.contains("/absent.io/") {
                true => (404, "404 page not found\n".to_owned()),
                false => stand_in::failure(503, "the server is away"),
            })
        });
        let object = |group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Foo", "metadata": {"name": "x"}});
        let objects = ["absent.io", "away.io"].map(|group| Object::from_value(object(group)).unwrap());
        let revision = olm_rollout::future_revision("x", 1);
        let dry_run = DryRun { client: &client, extension: "x", uid: "u", revision, siblings: Vec::new() };
        let mut kinds = Kinds::new(&client);
        let actions = |previews: Vec<ObjectPreview>| previews.iter().map(|it| it.action).collect::<Vec<_>>();
        let applied = dry_run.apply(&mut kinds, &objects).await;
        assert_eq!(applied[0].message, "the cluster serves no Foo (absent.io/v1)");
        assert_eq!(actions(applied), [Action::Refuse, Action::Unknown]);
        assert_eq!(actions(dry_run.remove(&mut kinds, &objects).await), [Action::Unknown]);
    }

    #[test]
    fn dry_run_rejection_by_missing_rights() {
        let error = |code: u16, message: &str| {
            kube::Error::Api(kube::core::Status::failure(message, "x").with_code(code).boxed())
        };
        for (code, message, want) in [
            (
                403,
                "deployments.apps \"x\" is forbidden: User \"u\" cannot patch resource \"deployments\" in API group \"apps\"",
                true,
            ),
            (403, "admission webhook \"w\" denied the request: no", false),
            (403, "admission webhook \"w\" denied the request: User \"u\" cannot edit x", false),
            (403, "pods \"x\" is forbidden: exceeded quota: q", false),
            (422, "Deployment.apps \"x\" is invalid", false),
            (500, "etcd is away", true),
        ] {
            assert_eq!(is_missing_right(&error(code, message)), want, "{message}");
        }
    }
}
