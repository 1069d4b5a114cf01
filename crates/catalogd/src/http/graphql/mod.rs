//! `/api/v1/graphql`: queries over one catalog, behind a feature gate (rule: catalogd §8, with the
//! defects of §12 row 12 fixed).
//!
//! The schema is made at the first query and kept until the content changes; whatever goes wrong here takes nothing
//! else down.

mod limits;
mod names;
mod schema;
mod shape;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::dynamic::Schema;
use async_graphql::parser::types::{ExecutableDocument, OperationType};
use async_graphql::{ServerError, Variables};
use http::header::{self, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::body::Body;
use super::respond;
use crate::per_content::PerContent;
use crate::store::{Content, Store};

const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_QUERY_BYTES: usize = 100_000;
const MAX_RUNNING: usize = 4;
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take to send its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// What a client sent, checked.
#[derive(Debug)]
pub(crate) struct Asked {
    document: ExecutableDocument,
    variables: Variables,
    operation: Option<String>,
}

/// The schemas made so far, one for each content that is served.
pub(crate) struct Schemas {
    made: PerContent<Schema>,
    running: Arc<Semaphore>,
}

impl Default for Schemas {
    fn default() -> Self {
        Self { made: PerContent::default(), running: Arc::new(Semaphore::new(MAX_RUNNING)) }
    }
}

/// Reads and checks a request body.
///
/// # Errors
/// The answer for the client.
pub(crate) async fn asked<B>(body: B) -> Result<Asked, Response<Body>>
where
    B: http_body::Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let refused = |text: &str| respond::error(StatusCode::BAD_REQUEST, text);
    let read = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect());
    let invalid = |reason: &str| refused(&format!("Invalid request body: {reason}"));
    let body = match read.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(invalid(&format!("it is larger than {MAX_BODY_BYTES} bytes")));
        }
        Ok(Err(error)) => return Err(invalid(&error.to_string())),
        Err(_) => return Err(invalid(&format!("it did not arrive within {} s", BODY_TIMEOUT.as_secs()))),
    };
    let members = match serde_json::Deserializer::from_slice(&body).into_iter::<Value>().next() {
        Some(Ok(Value::Object(members))) => members,
        Some(Ok(_)) => return Err(invalid("it is no JSON object with a field query")),
        Some(Err(error)) => return Err(invalid(&format!("it is no JSON: {error}"))),
        None => return Err(invalid("it is empty; send a JSON object with a field query")),
    };
    let member = |name: &str| {
        let exact = members.get(name);
        exact.or_else(|| {
            members.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        })
    };
    let query = match member("query") {
        Some(Value::String(query)) => query,
        None | Some(Value::Null) => return Err(refused("Query cannot be empty")),
        Some(_) => return Err(invalid("query is no string")),
    };
    if query.is_empty() {
        return Err(refused("Query cannot be empty"));
    }
    if query.len() > MAX_QUERY_BYTES {
        return Err(refused(&format!("Query too large: it has more than {MAX_QUERY_BYTES} bytes")));
    }
    let variables = Variables::from_json(member("variables").cloned().unwrap_or_default());
    let operation =
        member("operationName").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned);
    let document = limits::parse(query).map_err(|message| failed(&[message]))?;
    if operation.is_none() && limits::ambiguous(&document) {
        let message = "Must provide operation name if query contains multiple operations.";
        return Err(failed(&[message.to_owned()]));
    }
    let chosen = document.operations.iter().find(|(name, _)| {
        operation.as_deref().is_none_or(|chosen| name.is_some_and(|name| name.as_str() == chosen))
    });
    match chosen.map(|(_, operation)| operation.node.ty) {
        Some(OperationType::Mutation) => {
            return Err(failed(&["Schema is not configured for mutations".to_owned()]));
        }
        Some(OperationType::Subscription) => {
            return Err(failed(&["Schema is not configured for subscriptions".to_owned()]));
        }
        Some(OperationType::Query) => {}
        None => {
            return Err(failed(&[format!("Unknown operation named {:?}.", operation.unwrap_or_default())]));
        }
    }
    Ok(Asked { document, variables, operation })
}

impl Schemas {
    pub(crate) async fn handle(&self, store: &Store, content: &Arc<Content>, asked: Asked) -> Response<Body> {
        let making = self.made.get_or_make(store, content, |content| {
            schema::build(content, &schema::learn(content)?).map_err(io::Error::other)
        });
        let schema = match making.await {
            Ok(schema) => schema,
            Err(error) => {
                tracing::error!(digest = %content.digest(), %error, "cannot make a GraphQL schema");
                return respond::internal();
            }
        };
        let mut request = async_graphql::Request::new("").variables(asked.variables);
        request.set_parsed_query(asked.document);
        let mut request = request.data(schema::Budget::default());
        request.operation_name = asked.operation;
        // Resolvers read files.
        let handle = tokio::runtime::Handle::current();
        let running = in_place(&self.running, move || {
            handle.block_on(async { tokio::time::timeout(QUERY_TIMEOUT, schema.execute(request)).await })
        });
        match running.await {
            Ok(Ok(response)) => {
                let data = response.data.into_json().unwrap_or_default();
                let mut answer = json!({ "data": data });
                if !response.errors.is_empty() {
                    let mut errors = response.errors;
                    // they come in the order of a hash map
                    errors.sort_by_cached_key(|error| {
                        let places = error.locations.iter().map(|at| (at.line, at.column));
                        (places.collect::<Vec<_>>(), error.message.clone())
                    });
                    answer["errors"] = errors.iter().map(error_json).collect();
                }
                ok(&answer)
            }
            Ok(Err(_)) => failed(&[format!("query took longer than {} s", QUERY_TIMEOUT.as_secs())]),
            Err(error) => {
                tracing::error!(digest = %content.digest(), %error, "a GraphQL query ended badly");
                respond::internal()
            }
        }
    }
}

/// Runs work that may block in one of the places. It keeps its place until it has ended, also if its client has gone away meanwhile.
async fn in_place<T: Send + 'static>(
    places: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let place = Arc::clone(places).acquire_owned().await;
    let placed = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(placed).await
}

fn error_json(error: &ServerError) -> Value {
    let places: Vec<Value> =
        error.locations.iter().map(|at| json!({ "line": at.line, "column": at.column })).collect();
    let mut json_error = json!({ "message": error.message, "locations": places });
    if !error.path.is_empty() {
        json_error["path"] = serde_json::to_value(&error.path).unwrap_or_default();
    }
    json_error
}

/// 200 with nothing but errors.
fn failed(messages: &[String]) -> Response<Body> {
    let errors: Vec<Value> =
        messages.iter().map(|message| json!({ "message": message, "locations": [] })).collect();
    ok(&json!({ "data": null, "errors": errors }))
}

fn ok(answer: &Value) -> Response<Body> {
    let mut bytes = olm_core::go::json(answer);
    bytes.push(b'\n');
    let mut response = respond::bare(StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    *response.body_mut() = Body::Full(bytes.into());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn graphql_query_keeps_its_place_until_it_ends() {
        let places = Arc::new(Semaphore::new(1));
        let (begins, mut began) = tokio::sync::mpsc::unbounded_channel();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let first = in_place(&places, move || {
            begins.send(()).unwrap();
            wait.recv().unwrap();
        });
        tokio::select! {
            _ = first => panic!("it has not ended"),
            begun = began.recv() => begun.unwrap(),
        }
        assert_eq!(places.available_permits(), 0, "its client is gone, and it still runs");
        go.send(()).unwrap();
        in_place(&places, || ()).await.unwrap();
    }
}
