//! Writes of single objects, with the warnings of the apiserver.
//!
//! Rule: classic-apis §5.3.

use http_body_util::BodyExt as _;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::client::Body;
use kube::core::{Request, Status};
use kube::{Api, Client};
use olm_core::Object;

use crate::context::MANAGER;

/// The answer to a write.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) object: Object,
    /// Texts of the `Warning` headers.
    pub(super) warnings: Vec<String>,
}

/// The endpoint of the kind of an object, in its namespace if it has one.
pub(super) fn api(client: &Client, object: &Object) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(object.group(), object.version(), object.kind());
    let resource = ApiResource::from_gvk(&kind);
    match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The object as the apiserver has it.
pub(super) async fn read(client: &Client, object: &Object) -> Result<Option<Object>, kube::Error> {
    let found = api(client, object).get_opt(object.name()).await?;
    found.map(|found| to_object(&found)).transpose()
}

pub(super) fn to_object<T: serde::Serialize>(value: &T) -> Result<Object, kube::Error> {
    let value = serde_json::to_value(value).map_err(kube::Error::SerdeError)?;
    match value {
        serde_json::Value::Object(members) => Ok(Object(members)),
        _ => Ok(Object::default()),
    }
}

pub(super) async fn create(client: &Client, object: &Object) -> Result<Written, kube::Error> {
    let body = serde_json::to_vec(&object.0).map_err(kube::Error::SerdeError)?;
    let request = Request::new(api(client, object).resource_url()).create(&params(), body);
    send(client, request.map_err(kube::Error::BuildRequest)?).await
}

pub(super) async fn replace(client: &Client, object: &Object) -> Result<Written, kube::Error> {
    let body = serde_json::to_vec(&object.0).map_err(kube::Error::SerdeError)?;
    let request = Request::new(api(client, object).resource_url()).replace(object.name(), &params(), body);
    send(client, request.map_err(kube::Error::BuildRequest)?).await
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

async fn send(client: &Client, request: http::Request<Vec<u8>>) -> Result<Written, kube::Error> {
    let response = client.send(request.map(Body::from)).await?;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if !parts.status.is_success() {
        let status = serde_json::from_slice::<Status>(&bytes).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&bytes);
            Status::failure(text.trim(), "").with_code(parts.status.as_u16())
        });
        return Err(kube::Error::Api(status.boxed()));
    }
    let headers = parts.headers.get_all(http::header::WARNING).iter();
    let warnings = headers.filter_map(|value| warning(value.to_str().ok()?)).collect();
    let members = serde_json::from_slice(&bytes).map_err(kube::Error::SerdeError)?;
    Ok(Written { object: Object(members), warnings })
}

/// The text of a `Warning` header with code 299: `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.strip_prefix("299 ")?.split_once('"')?.1;
    let (mut text, mut characters) = (String::new(), quoted.chars());
    while let Some(character) = characters.next() {
        match character {
            '"' => return Some(text),
            '\\' => text.extend(characters.next()),
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_header_is_read() {
        for (header, want) in [
            (r#"299 - "policy/v1beta1 is deprecated""#, Some("policy/v1beta1 is deprecated")),
            (r#"299 - "unknown field \"a\"" "Thu, 01 Jan 1970 00:00:00 GMT""#, Some(r#"unknown field "a""#)),
            (r#"199 - "other""#, None),
            (r#"299 - "no end"#, None),
            ("299 -", None),
        ] {
            assert_eq!(warning(header).as_deref(), want, "{header}");
        }
    }
}
