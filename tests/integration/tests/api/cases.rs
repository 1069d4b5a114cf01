//! Tables of objects that are offered to the apiserver, and the expected causes of their rejection (`cases/*.yaml`).
//!
//! A case sets values in a base object by JSON pointer (`null` removes a member), or stands for several: each of `values` at the
//! pointer `at`. `rejected` has the end of the message, or several, by field; without it the apiserver must accept the object.
//! `{x*253}` in a string stands for 253 times `x`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow, bail};
use kube::api::{Api, DeleteParams, DynamicObject};
use olm_integration::{Causes, change_status, check, create, offer, offer_change, patched};
use serde::Deserialize;
use serde_json::Value;

/// An object, or a change of one, and the causes of its rejection: (field, end of the message).
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) object: Value,
    pub(crate) rejected: Causes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(default)]
    case: String,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    at: String,
    #[serde(default)]
    values: Vec<Value>,
    #[serde(default)]
    rejected: BTreeMap<String, Messages>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Messages {
    Single(String),
    Several(Vec<String>),
}

impl Case {
    pub(crate) fn new(name: &str, object: Value, rejected: &[(&str, &str)]) -> Self {
        let rejected = rejected.iter().map(|(field, end)| ((*field).to_owned(), (*end).to_owned())).collect();
        Self { name: name.to_owned(), object, rejected }
    }
}

/// The cases of a section of a file, as changes of `base`.
pub(crate) fn cases(file: &str, section: &str, base: &Value) -> Result<Vec<Case>> {
    let mut file: BTreeMap<String, Vec<Row>> =
        serde_saphyr::from_str(file).map_err(|error| anyhow!("{error}"))?;
    let rows = file.remove(section).with_context(|| format!("no section {section:?}"))?;
    let mut all = Vec::new();
    for Row { case, set, at, values, rejected } in rows {
        let causes: Causes = rejected
            .into_iter()
            .flat_map(|(field, messages)| {
                let messages = match messages {
                    Messages::Single(message) => vec![message],
                    Messages::Several(messages) => messages,
                };
                messages.into_iter().map(move |message| (field.clone(), message))
            })
            .collect();
        let mut add = |name, changes: &[(&str, Value)]| {
            all.push(Case { name, object: patched(base.clone(), changes), rejected: causes.clone() });
        };
        if at.is_empty() == case.is_empty() {
            bail!("{section}: a row has either `case` or `at`: {case:?} {at:?}");
        }
        if at.is_empty() {
            let changes: Vec<_> =
                set.iter().map(|(pointer, value)| (pointer.as_str(), expanded(value))).collect();
            add(case, &changes);
        }
        for value in &values {
            add(format!("{at}: {value}"), &[(&at, expanded(value))]);
        }
    }
    Ok(all)
}

/// The value with `{x*3}` in its strings replaced by `xxx`.
fn expanded(value: &Value) -> Value {
    let repeated = |text: &str| {
        let (before, rest) = text.split_once('{')?;
        let (pattern, after) = rest.split_once('}')?;
        let (part, count) = pattern.split_once('*')?;
        Some(format!("{before}{}{after}", part.repeat(count.parse().ok()?)))
    };
    match value {
        Value::String(text) => repeated(text).map_or_else(|| value.clone(), Value::String),
        Value::Array(items) => items.iter().map(expanded).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, member)| (key.clone(), expanded(member))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// Offers every object and reports all unexpected responses.
pub(crate) async fn offer_all(api: &Api<DynamicObject>, cases: Vec<Case>) -> Result<()> {
    let mut wrong = Vec::new();
    for Case { name, object, rejected } in &cases {
        wrong.extend(check(name, rejected, &offer(api, object.clone()).await?).err());
    }
    report(cases.len(), &wrong)
}

/// Offers every object as the next version of a stored one.
pub(crate) async fn offer_changes(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    file: &str,
    section: &str,
) -> Result<()> {
    let cases = cases(file, section, &serde_json::to_value(stored)?)?;
    let mut wrong = Vec::new();
    for Case { name, object, rejected } in &cases {
        let outcome = offer_change(api, stored, |changed| *changed = object.clone()).await?;
        wrong.extend(check(name, rejected, &outcome).err());
    }
    report(cases.len(), &wrong)
}

/// Writes every status to a new object, one after the other.
pub(crate) async fn write_statuses(api: &Api<DynamicObject>, object: Value, cases: Vec<Case>) -> Result<()> {
    let mut latest = create_accepted(api, object).await?;
    let mut wrong = Vec::new();
    for Case { name, object: status, rejected } in &cases {
        let outcome = change_status(api, &latest, |object| object["status"] = status.clone()).await?;
        wrong.extend(check(name, rejected, &outcome).err());
        latest = outcome.unwrap_or(latest);
    }
    api.delete(&kube::ResourceExt::name_any(&latest), &DeleteParams::default()).await?;
    report(cases.len(), &wrong)
}

/// Creates an object that must be accepted.
pub(crate) async fn create_accepted(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
    create(api, object).await?.map_err(|causes| anyhow!("{causes:?}"))
}

/// What the apiserver would store.
pub(crate) async fn accepted(api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
    offer(api, object).await?.map_err(|causes| anyhow!("{causes:?}"))
}

pub(crate) fn report(count: usize, wrong: &[impl ToString]) -> Result<()> {
    #[expect(clippy::print_stdout, reason = "the number of offered objects belongs into the log of a run")]
    {
        println!("{count} objects offered, {} unexpected responses", wrong.len());
    }
    if !wrong.is_empty() {
        let wrong: Vec<String> = wrong.iter().map(ToString::to_string).collect();
        bail!("{} of {count} cases:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(())
}
