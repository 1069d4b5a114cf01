//! The GraphQL schema of one catalog, and how its fields find their values (rules: catalogd §8.2, §8.4, §8.5).
//!
//! A schema of the catalog whose names clash with another's is left out with a line in the log; the reference refuses
//! the whole catalog. Objects are read by byte range at query time, and only the members that are asked for are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_graphql::dynamic::{
    Field, FieldFuture, FieldValue, InputValue, Object, ResolverContext, Schema, TypeRef,
};
use olm_fbc::Query;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::names::{root_field, type_name};
use super::shape::{Fields, Kind, Scalar, Shape};
use crate::store::Content;

/// Objects of one answer at most.
const MAX_PAGE: usize = 100;
/// Keys of the objects of a catalog that can be queried. Known catalogs have less than a hundred.
const MAX_FIELDS: usize = 10_000;
/// Bytes of one object; a larger one fails the query.
const MAX_OBJECT_BYTES: u64 = 16 << 20;
/// Bytes that one request may read.
const MAX_READ_BYTES: u64 = 512 << 20;
/// Bytes that one request may keep of what it has read.
const MAX_KEPT_BYTES: u64 = 32 << 20;
/// Types that GraphQL or the summary defines.
const RESERVED_TYPES: [&str; 9] = [
    "Query",
    "Mutation",
    "Subscription",
    "String",
    "Int",
    "Float",
    "Boolean",
    "CatalogSummary",
    "SchemaSummary",
];

/// What one request may still read and keep, all its root fields together.
pub(super) struct Budget {
    read: AtomicU64,
    kept: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { read: AtomicU64::new(MAX_READ_BYTES), kept: AtomicU64::new(MAX_KEPT_BYTES) }
    }
}

impl Budget {
    fn take(from: &AtomicU64, bytes: u64, limit: u64) -> Result<(), String> {
        let taken = from.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(()),
            Err(_) => {
                Err(format!("the answer needs more than {limit} bytes; ask for fewer with limit and offset"))
            }
        }
    }
}

/// Learns what all objects look like. Slow for large catalogs; not for an async thread.
///
/// # Errors
/// When the content cannot be read.
pub(super) fn learn(content: &Content) -> io::Result<BTreeMap<String, Shape>> {
    let mut shapes: BTreeMap<String, Shape> = BTreeMap::new();
    let (mut buffer, mut remaining) = (Vec::new(), MAX_FIELDS);
    for object in content.index().objects().filter(|object| !object.schema.is_empty()) {
        if remaining == 0 && !shapes.contains_key(object.schema) {
            continue;
        }
        let length = usize::try_from(object.length).map_err(io::Error::other)?;
        buffer.resize(length, 0);
        content.jsonl().read_at(&mut buffer, object.offset)?;
        if let Ok(members) = serde_json::from_slice::<Map<String, Value>>(&buffer) {
            shapes.entry(object.schema.to_owned()).or_default().learn(&members, &mut remaining);
        }
    }
    if remaining == 0 {
        let digest = content.digest();
        tracing::warn!(%digest, limit = MAX_FIELDS, "fields beyond the limit cannot be queried with GraphQL");
    }
    Ok(shapes)
}

/// Makes the schema; `content` is what its queries read.
///
/// # Errors
/// When GraphQL does not accept it, which is an error in here.
pub(super) fn build(content: &Arc<Content>, shapes: &BTreeMap<String, Shape>) -> Result<Schema, String> {
    let mut types: BTreeSet<String> = RESERVED_TYPES.iter().map(|name| (*name).to_owned()).collect();
    let mut roots: BTreeSet<String> = BTreeSet::from(["summary".to_owned()]);
    let mut query = Object::new("Query");
    let mut builder = Schema::build("Query", None, None);
    for (schema, shape) in shapes {
        let (root, name) = (root_field(schema), type_name(schema));
        let mut names = vec![name.clone()];
        names.extend(nested(&shape.fields).map(|(field, _)| nested_name(&name, field)));
        let distinct: BTreeSet<&String> = names.iter().collect();
        let clash = distinct.len() != names.len() || names.iter().any(|name| types.contains(name));
        if clash || roots.contains(&root) {
            tracing::warn!(digest = %content.digest(), schema, "GraphQL names clash; the schema cannot be queried");
            continue;
        }
        types.extend(names);
        roots.insert(root.clone());
        for (field, fields) in nested(&shape.fields) {
            builder = builder.register(nested_object(nested_name(&name, field), fields));
        }
        builder = builder.register(object(&name, &shape.fields));
        query = query.field(root_of(&root, schema, &name, content, &shape.fields));
    }
    query = query.field(summary(shapes));
    let schemas = Object::new("SchemaSummary");
    let schemas = ["name", "totalObjects", "totalFields"].into_iter().fold(schemas, |object, field| {
        let kind = if field == "name" { TypeRef::STRING } else { TypeRef::INT };
        object.field(Field::new(field, TypeRef::named(kind), move |ctx| {
            FieldFuture::from_value(member(&ctx, field).cloned())
        }))
    });
    let totals = Object::new("CatalogSummary")
        .field(Field::new("totalSchemas", TypeRef::named(TypeRef::INT), |ctx| {
            FieldFuture::from_value(member(&ctx, "totalSchemas").cloned())
        }))
        .field(Field::new("schemas", TypeRef::named_list("SchemaSummary"), |ctx| {
            let items = match member(&ctx, "schemas") {
                Some(async_graphql::Value::List(items)) => items.clone(),
                _ => Vec::new(),
            };
            let list = FieldValue::list(items.into_iter().map(FieldValue::value));
            FieldFuture::new(async move { Ok(Some(list)) })
        }));
    let schema = builder.register(schemas).register(totals).register(query).finish();
    schema.map_err(|error| error.to_string())
}

/// One member of a parent that is a plain value.
fn member<'a>(ctx: &'a ResolverContext<'_>, name: &str) -> Option<&'a async_graphql::Value> {
    match ctx.parent_value.as_value()? {
        async_graphql::Value::Object(members) => members.get(name),
        _ => None,
    }
}

fn nested(fields: &Fields) -> impl Iterator<Item = (&String, &Fields)> {
    fields.0.iter().filter_map(|(name, field)| match &field.kind {
        Kind::Objects(fields) => Some((name, fields)),
        Kind::Unknown | Kind::One(_) | Kind::List(_) => None,
    })
}

fn nested_name(parent: &str, field: &str) -> String {
    format!("{parent}{}", type_name(field))
}

/// Members of an object that were asked for, still as text.
type Raw = BTreeMap<String, Box<RawValue>>;

/// The type of a schema's objects.
fn object(name: &str, fields: &Fields) -> Object {
    fields.0.iter().fold(Object::new(name), |object, (field, facts)| {
        let kind = match &facts.kind {
            Kind::Unknown => TypeRef::named(TypeRef::STRING),
            Kind::One(scalar) => TypeRef::named(scalar.name()),
            Kind::List(scalar) => TypeRef::named_list(scalar.name()),
            Kind::Objects(_) => TypeRef::named_list(nested_name(name, field)),
        };
        let (keys, kind_of) = (facts.keys.clone(), facts.kind.clone());
        object.field(Field::new(field, kind, move |ctx| {
            let raw = ctx.parent_value.try_downcast_ref::<Raw>().ok();
            let text = raw.and_then(|raw| keys.iter().find_map(|key| raw.get(key)));
            let value = text.and_then(|text| serde_json::from_str::<Value>(text.get()).ok());
            let resolved = value.and_then(|value| resolve(value, &kind_of));
            FieldFuture::new(async move { Ok(resolved) })
        }))
    })
}

/// The type of the objects inside a list.
fn nested_object(name: String, fields: &Fields) -> Object {
    fields.0.iter().fold(Object::new(name), |object, (field, facts)| {
        let kind = match &facts.kind {
            Kind::List(scalar) => TypeRef::named_list(scalar.name()),
            Kind::One(scalar) => TypeRef::named(scalar.name()),
            Kind::Unknown | Kind::Objects(_) => TypeRef::named(TypeRef::STRING),
        };
        let (keys, kind_of) = (facts.keys.clone(), facts.kind.clone());
        object.field(Field::new(field, kind, move |ctx| {
            let members = ctx.parent_value.try_downcast_ref::<Map<String, Value>>().ok();
            let value = members.and_then(|members| keys.iter().find_map(|key| members.get(key)));
            let resolved = value.and_then(|value| resolve(value.clone(), &kind_of));
            FieldFuture::new(async move { Ok(resolved) })
        }))
    })
}

fn resolve<'a>(value: Value, kind: &Kind) -> Option<FieldValue<'a>> {
    let scalar = |scalar: Scalar, value: &Value| FieldValue::value(scalar.value(value));
    match (kind, value) {
        (_, Value::Null) => None,
        (Kind::Unknown, value) => Some(scalar(Scalar::String, &value)),
        (Kind::One(kind), value) => Some(scalar(*kind, &value)),
        (Kind::List(kind), Value::Array(items)) => {
            Some(FieldValue::list(items.iter().map(|item| scalar(*kind, item)).collect::<Vec<_>>()))
        }
        (Kind::Objects(_), Value::Array(items)) => {
            let items = items.into_iter().map(|item| match item {
                Value::Object(members) => FieldValue::owned_any(members),
                _ => FieldValue::NULL,
            });
            Some(FieldValue::list(items.collect::<Vec<_>>()))
        }
        (Kind::List(_) | Kind::Objects(_), _) => None,
    }
}

fn root_of(root: &str, schema: &str, name: &str, content: &Arc<Content>, fields: &Fields) -> Field {
    let (content, schema) = (Arc::clone(content), schema.to_owned());
    let keys: BTreeMap<String, BTreeSet<String>> =
        fields.0.iter().map(|(field, facts)| (field.clone(), facts.keys.clone())).collect();
    let field = Field::new(root, TypeRef::named_list(name), move |ctx| {
        let asked = |name: &str| ctx.args.get(name).and_then(|value| value.i64().ok());
        let limit = asked("limit").and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.filter(|limit| (1..=MAX_PAGE).contains(limit)).unwrap_or(MAX_PAGE);
        let offset = asked("offset").and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
        let selected = ctx.ctx.field();
        let keys: BTreeSet<&str> = selected
            .selection_set()
            .filter_map(|field| keys.get(field.name()))
            .flatten()
            .map(String::as_str)
            .collect();
        let budget = ctx.data::<Budget>();
        let read = budget
            .map_err(|error| error.message)
            .and_then(|budget| read(&content, &schema, offset, limit, &keys, budget));
        FieldFuture::new(async move {
            let objects = read.map_err(async_graphql::Error::new)?;
            Ok(Some(FieldValue::list(objects.into_iter().map(FieldValue::owned_any))))
        })
    });
    let int = |name: &str, default: i32, text: &str| {
        InputValue::new(name, TypeRef::named(TypeRef::INT)).default_value(default).description(text)
    };
    field.argument(int("limit", 100, "How many objects at most; 1 to 100")).argument(int(
        "offset",
        0,
        "How many objects to pass over",
    ))
}

/// Reads objects of one schema, in file order, and keeps the members that the query selects.
fn read(
    content: &Content,
    schema: &str,
    offset: usize,
    limit: usize,
    keys: &BTreeSet<&str>,
    budget: &Budget,
) -> Result<Vec<Raw>, String> {
    let query = Query { schema, ..Query::default() };
    let mut buffer = Vec::new();
    let mut objects = Vec::new();
    for object in content.index().find(&query).into_iter().skip(offset).take(limit) {
        if object.length > MAX_OBJECT_BYTES {
            return Err(format!(
                "invalid section length {}: an object may have {MAX_OBJECT_BYTES} bytes",
                object.length
            ));
        }
        Budget::take(&budget.read, object.length, MAX_READ_BYTES)?;
        buffer.resize(usize::try_from(object.length).unwrap_or_default(), 0);
        content.jsonl().read_at(&mut buffer, object.offset).map_err(|error| {
            tracing::error!(digest = %content.digest(), %error, "cannot read catalog content");
            "cannot read catalog content".to_owned()
        })?;
        let mut members: BTreeMap<String, &RawValue> =
            serde_json::from_slice(&buffer).map_err(|error| format!("cannot read object: {error}"))?;
        members.retain(|key, _| keys.contains(key.as_str()));
        let kept: usize = members.values().map(|value| value.get().len()).sum();
        Budget::take(&budget.kept, kept as u64, MAX_KEPT_BYTES)?;
        objects.push(members.into_iter().map(|(key, value)| (key, value.to_owned())).collect());
    }
    Ok(objects)
}

/// The root field that counts the schemas and their objects.
fn summary(shapes: &BTreeMap<String, Shape>) -> Field {
    let schemas: Vec<Value> = shapes
        .iter()
        .map(|(name, shape)| {
            serde_json::json!({ "name": name, "totalObjects": shape.objects, "totalFields": shape.fields.0.len() })
        })
        .collect();
    let value = serde_json::json!({ "totalSchemas": schemas.len(), "schemas": schemas });
    let value = async_graphql::Value::from_json(value).unwrap_or_default();
    Field::new("summary", TypeRef::named("CatalogSummary"), move |_| {
        FieldFuture::from_value(Some(value.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn graphql_answers_are_limited_in_bytes() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.stage(store.lease(&digest)).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        let line = r#"{"schema":"a","name":"b","asked":"12345678","other":"0"}"#;
        ingest.file("catalog.json", &mut [line; 3].join("\n").as_bytes()).unwrap();
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        let length = content.index().objects().next().unwrap().length;
        let keys = BTreeSet::from(["asked"]);
        for (objects, to_read, to_keep, want) in [
            (2, 2 * length, 20, Ok(2)),
            (3, 2 * length, 30, Err(MAX_READ_BYTES)),
            (3, 3 * length, 29, Err(MAX_KEPT_BYTES)),
            (3, 3 * length, 30, Ok(3)),
        ] {
            let budget = Budget { read: AtomicU64::new(to_read), kept: AtomicU64::new(to_keep) };
            let found = read(&content, "a", 0, objects, &keys, &budget).map(|found| found.len());
            let want = want.map_err(|limit| {
                format!("the answer needs more than {limit} bytes; ask for fewer with limit and offset")
            });
            assert_eq!(found, want, "{objects}");
        }
    }
}
