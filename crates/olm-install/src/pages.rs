//! Custom resources of the cluster, read page by page, each as its text until it is needed.

use kube::Client;
use kube::api::ListParams;
use kube::core::{ObjectList, Request};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Objects in one answer of the apiserver; an object may be as large as 1.5 MiB, and several kinds are read at the same time.
const PAGE: u32 = 20;

/// An object as its text. As a tree of values it may take twenty times as much, so parse one at a time.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct ObjectText(pub(crate) Box<RawValue>);

/// Some of the objects of a kind.
#[derive(Debug)]
pub struct Page {
    pub objects: Vec<ObjectText>,
    /// The token for the next page; `None` for the last.
    pub next: Option<String>,
}

impl ObjectText {
    /// # Errors
    /// When it has too many levels: the apiserver accepts more.
    pub fn parse(&self) -> serde_json::Result<Value> {
        serde_json::from_str(self.0.get())
    }
}

/// Reads the first page of the objects at `url`, or the one of a token.
///
/// # Errors
/// When the apiserver does not list them.
pub async fn page(client: &Client, url: &str, token: Option<&str>) -> Result<Page, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    params.continue_token = token.map(str::to_owned);
    let request = Request::new(url).list(&params).map_err(kube::Error::BuildRequest)?;
    let list: ObjectList<ObjectText> = client.request(request).await?;
    let next = list.metadata.continue_.filter(|token| !token.is_empty());
    Ok(Page { objects: list.items, next })
}
