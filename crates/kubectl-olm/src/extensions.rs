//! ClusterExtensions and their revisions, read once.

use std::fmt::Debug;
use std::path::Path;

use kube::api::ListParams;
use kube::core::Status;
use kube::{Api, Client, Resource, ResourceExt};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterExtension, ClusterObjectSet, Condition, condition, labels};
use olm_core::Object;
use olm_install::SYSTEM_NAMESPACE;
use olm_install::content::{ContentError, ContentReader};
use olm_install::resolution::revision;
use olm_runtime::error_text::chain;
use olm_runtime::watched::{self, Received};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cmd::bundle::document;
use crate::failure::{CommandError, is_kind_missing, print_note};
use crate::sources::Cluster;
use crate::{rights, similar};

/// The messages of `Progressing` and `Ready` begin with this while an extension is uninstalled.
pub(crate) const UNINSTALLING: &str = "uninstalling: ";

/// The extension of this name, if there is one.
pub(crate) async fn find(client: &Client, name: &str) -> Result<Option<ClusterExtension>, CommandError> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let found = api.get_opt(name).await;
    found.map_err(|error| CommandError::from_request("read ClusterExtensions", &error))
}

/// The extension of this name; an error with similar names if there is none.
pub(crate) async fn named(client: &Client, name: &str) -> Result<ClusterExtension, CommandError> {
    if let Some(found) = find(client, name).await? {
        return Ok(found);
    }
    let api: Api<ClusterExtension> = Api::all(client.clone());
    // a user who may read one of them need not be allowed to list all
    let listed = api.list_metadata(&ListParams::default()).await;
    let names = match listed {
        Ok(found) => found.items.iter().map(ResourceExt::name_any).collect(),
        Err(ref error @ kube::Error::Api(ref status)) if is_kind_missing(status) => {
            return Err(CommandError::from_request("read ClusterExtensions", error));
        }
        Err(_) => Vec::new(),
    };
    let hint = similar::hint(name, &names, "see `kubectl olm list`");
    Err(CommandError::NotFound(format!("there is no ClusterExtension {name:?}; {hint}")))
}

pub(crate) fn is_deleted(extension: &ClusterExtension) -> bool {
    extension.metadata.deletion_timestamp.is_some()
}

/// Refuses to change an extension that is being deleted.
pub(crate) fn refuse_deleted(extension: &ClusterExtension) -> Result<(), CommandError> {
    if !is_deleted(extension) {
        return Ok(());
    }
    let name = extension.name_any();
    Err(CommandError::NotFound(format!("{name} is being deleted; see `kubectl olm status {name}`")))
}

/// The objects of a kind that fit their type, in the order of the apiserver, and an error message about each of the others. What needs
/// all of them lists the kind itself, and fails.
pub(crate) async fn readable<K>(client: &Client, doing: &str) -> Result<(Vec<K>, Vec<String>), CommandError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let listed = Api::<Received<K>>::all(client.clone()).list(&ListParams::default()).await;
    let listed = listed.map_err(|error| CommandError::from_request(doing, &error))?;
    Ok(watched::readable(listed.items))
}

/// Names objects or files that were passed over, on standard error.
pub(crate) fn print_passed_over(errors: &[String]) {
    errors.iter().for_each(|error| print_note(&format!("passed over: {error}")));
}

/// All extensions, by name.
pub(crate) async fn all(client: &Client) -> Result<Vec<ClusterExtension>, CommandError> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let mut listed = api
        .list(&ListParams::default())
        .await
        .map_err(|error| CommandError::from_request("read ClusterExtensions", &error))?
        .items;
    listed.sort_by_key(ClusterExtension::name_any);
    Ok(listed)
}

/// All revisions, of every extension.
pub(crate) async fn revisions(
    client: &Client,
    of: Option<&str>,
) -> Result<Vec<ClusterObjectSet>, CommandError> {
    let api: Api<ClusterObjectSet> = Api::all(client.clone());
    let params = match of {
        Some(name) => ListParams::default().labels(&format!("{}={name}", labels::OWNER_NAME)),
        None => ListParams::default(),
    };
    let mut listed = api
        .list(&params)
        .await
        .map_err(|error| CommandError::from_request("read ClusterObjectSets", &error))?
        .items;
    listed.sort_by_key(|set| set.spec.revision);
    Ok(listed)
}

/// The revisions that belong to the extension.
pub(crate) fn revisions_of<'a>(
    extension: &'a ClusterExtension,
    revisions: &'a [ClusterObjectSet],
) -> impl Iterator<Item = &'a ClusterObjectSet> {
    let uid = extension.metadata.uid.as_deref().unwrap_or_default();
    revisions.iter().filter(move |set| revision::is_owned_by(set, uid))
}

/// A client, the extension of this name, and its revisions.
pub(crate) async fn with_revisions(
    cluster: &Cluster,
    name: &str,
) -> Result<(Client, ClusterExtension, Vec<ClusterObjectSet>), CommandError> {
    let client = cluster.client().await?;
    let extension = named(&client, name).await?;
    let all = revisions(&client, Some(name)).await?;
    let own = revisions_of(&extension, &all).cloned().collect();
    Ok((client, extension, own))
}

/// `Active`, `Archived`, or `deleting`.
pub(crate) fn state<'a>(set: &ClusterObjectSet, deleting: &'a str) -> &'a str {
    match (set.metadata.deletion_timestamp.is_some(), set.spec.lifecycle_state) {
        (true, _) => deleting,
        (false, LifecycleState::Active) => "Active",
        (false, LifecycleState::Archived) => "Archived",
    }
}

pub(crate) async fn objects(client: &Client, set: &ClusterObjectSet) -> Result<Vec<Object>, CommandError> {
    content_reader(client).objects(set).await.map_err(|error| unreadable(&error))
}

/// A reader of the content of revisions.
pub(crate) fn content_reader(client: &Client) -> ContentReader<'_> {
    ContentReader::new(client, SYSTEM_NAMESPACE)
}

pub(crate) fn unreadable(error: &ContentError) -> CommandError {
    CommandError::Unreachable(rights::in_words(&chain(error)))
}

/// The right that the user lacks to read the content of a revision, in words.
pub(crate) fn missing_right(error: &ContentError) -> Option<String> {
    let status = status_of(error).filter(|status| status.code == 403)?;
    Some(rights::in_words(&status.message))
}

/// Whether the Secret with the content of a revision does not exist.
pub(crate) fn is_content_gone(error: &ContentError) -> bool {
    status_of(error).is_some_and(|status| status.code == 404)
}

/// The apiserver's answer to the request for the Secret.
fn status_of(error: &ContentError) -> Option<&Status> {
    match error {
        ContentError::Secret { source, .. } => match source.as_ref() {
            kube::Error::Api(status) => Some(status),
            _ => None,
        },
        ContentError::Invalid(_) => None,
    }
}

/// The extension that a manifest describes. As with kubectl, an unknown field is an error: a misspelt range must not admit every version.
pub(crate) fn from_file(path: &Path) -> Result<ClusterExtension, CommandError> {
    let value = document(path)?;
    if value["kind"] != "ClusterExtension" {
        return Err(CommandError::content(path, "it is no ClusterExtension"));
    }
    // the error begins with the path of its field
    let extension: ClusterExtension = serde_path_to_error::deserialize(value.clone())
        .map_err(|error| CommandError::content(path, error))?;
    let mut known = json!({"apiVersion": "", "kind": "", "spec": extension.spec});
    for key in ["metadata", "status"] {
        known[key] = value[key].clone();
    }
    match unknown_field("", &value, &known) {
        Some(field) => Err(CommandError::content(path, format!("unknown field {field:?}"))),
        None => Ok(extension),
    }
}

/// The number of a revision, as a flag gives it.
pub(crate) fn revision_number(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "write a number that `kubectl olm history` shows".to_owned())
}

/// The path of a field that `known` lacks; one without a value does not count.
fn unknown_field(path: &str, given: &Value, known: &Value) -> Option<String> {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match known.get(key) {
                Some(known) => unknown_field(&path, value, known),
                None => (!is_empty(value)).then_some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => {
            let mut items = given.iter().zip(known).enumerate();
            items.find_map(|(at, (given, known))| unknown_field(&format!("{path}[{at}]"), given, known))
        }
        _ => None,
    }
}

pub(crate) fn condition_of<'a>(extension: &'a ClusterExtension, type_: &str) -> Option<&'a Condition> {
    extension.status.as_ref().and_then(|status| condition::find(&status.conditions, type_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_file_has_no_unknown_fields() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.yaml");
        let read = |catalog: &str, rest: &str| {
            let text = format!(
                "{{apiVersion: olm.operatorframework.io/v1, kind: ClusterExtension, metadata: {{name: x, extra: e}}, spec: {{namespace: ns, \
                 source: {{sourceType: Catalog, catalog: {{packageName: p{catalog}}}}}, \
                 config: {{configType: Inline, inline: {{any: {{thing: [1]}}}}}}}}{rest}}}"
            );
            std::fs::write(&path, text).unwrap();
            from_file(&path)
                .map(|extension| extension.name_any())
                .map_err(|error| (error.code(), error.to_string()))
        };
        let selector = |field: &str| {
            format!(", selector: {{matchExpressions: [{{key: k, operator: In, values: [v]{field}}}]}}")
        };
        let (known, unknown) = (selector(""), selector(", value: [w]"));
        for (catalog, rest, want) in [
            ("", "", None),
            (known.as_str(), "", None),
            (", version: 1.x, channels: []", ", status: {other: 1}", None),
            (", versions: 1.x", "", Some("spec.source.catalog.versions")),
            (unknown.as_str(), "", Some("spec.source.catalog.selector.matchExpressions[0].value")),
            ("", ", version: 1.x", Some("version")),
        ] {
            let want = want.map(|field| (2, format!("{}: unknown field {field:?}", path.display())));
            assert_eq!(read(catalog, rest).err(), want, "{catalog} {rest}");
        }
        let error = read(", version: 3", "").unwrap_err();
        let want = format!(
            "{}: spec.source.catalog.version: invalid type: integer `3`, expected a string",
            path.display()
        );
        assert_eq!(error, (2, want));
    }
}
