//! `/api/v1/packages`: one line a package, so that a user interface or a dependency check needs one small answer
//! instead of the whole catalog. Additive: the reference has no such endpoint.
//!
//! Made from the stored content at the first request, object by object, and kept until the content changes. What
//! cannot be read as its schema says is left out; nothing is judged here.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};
use olm_core::VersionRelease;
use olm_fbc::{Located, schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::OnceCell;

use super::body::{Body, compress_all};
use super::cache::Cache;
use super::conditions::{self, Validators, Verdict};
use super::encoding::{self, Encoding};
use super::{JSONL, respond, with_validators};
use crate::store::{COMPRESS_FROM, Content, Served, Store};

/// The summaries made so far, one for each content that is served.
#[derive(Debug, Default)]
pub(crate) struct Summaries(Mutex<BTreeMap<String, Arc<OnceCell<Bytes>>>>);

impl Summaries {
    /// The summary of a content; made once, however many ask for it at the same time.
    ///
    /// # Errors
    /// When the content cannot be read.
    async fn get(&self, store: &Store, content: &Arc<Content>) -> io::Result<Bytes> {
        let cell = {
            let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let digest = content.digest().to_string();
            if !made.contains_key(&digest) {
                let serving = store.serving();
                let digests: BTreeSet<String> =
                    serving.values().map(|served| served.content.digest().to_string()).collect();
                made.retain(|digest, _| digests.contains(digest));
            }
            Arc::clone(made.entry(digest).or_default())
        };
        let content = Arc::clone(content);
        let made = cell.get_or_try_init(|| async {
            let summary = tokio::task::spawn_blocking(move || summarise(&content)).await;
            summary.map_err(io::Error::other)?.map(Bytes::from)
        });
        made.await.cloned()
    }
}

/// Answers a GET or HEAD.
pub(crate) async fn answer(
    method: &Method,
    headers: &HeaderMap,
    served: &Served,
    store: &Store,
    summaries: &Summaries,
    cache: &Cache,
) -> Response<Body> {
    let made = summaries.get(store, &served.content).await.and_then(|summary| {
        let encoding = match encoding::negotiate(headers) {
            encoding if *method == Method::GET && summary.len() as u64 >= COMPRESS_FROM => encoding,
            _ => Encoding::Identity,
        };
        let name = format!("{}/packages{}", served.content.digest(), encoding.tag_suffix());
        let bytes = match encoding {
            Encoding::Identity => summary,
            encoding => cache.get_or_make(&name, || compress_all(&summary, encoding))?,
        };
        Ok((bytes, encoding, name))
    });
    let (bytes, encoding, name) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::error!(digest = %served.content.digest(), %error, "cannot summarise catalog content");
            return respond::internal();
        }
    };
    let validators = Validators { tag: format!("\"{name}\""), modified: served.last_unpacked };
    let status = match conditions::evaluate(headers, &validators) {
        Verdict::NotModified => StatusCode::NOT_MODIFIED,
        Verdict::Failed => StatusCode::PRECONDITION_FAILED,
        Verdict::Proceed => StatusCode::OK,
    };
    let mut response = with_validators(respond::bare(status), served, &validators);
    if status == StatusCode::OK {
        let to = response.headers_mut();
        to.insert(header::CONTENT_TYPE, JSONL);
        to.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        if let Some(encoded) = encoding.name() {
            to.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoded));
        }
        if *method != Method::HEAD {
            *response.body_mut() = Body::Full(bytes);
        }
    }
    response
}

/// One line of the answer.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    default_channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_version: Option<String>,
    channels: Vec<ChannelSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon: Option<IconReference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecation: Option<String>,
    /// Of the head of the default channel, else of the latest version.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    provided_apis: BTreeSet<Gvk>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ChannelSummary {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    head: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deprecation: Option<String>,
}

/// Where the icon is: its type and the query of `metas` that brings it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct IconReference {
    mediatype: String,
    metas: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct Gvk {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PackageObject {
    #[serde(default)]
    default_channel: String,
    #[serde(default)]
    icon: Option<IconObject>,
}

#[derive(Deserialize)]
struct IconObject {
    #[serde(default)]
    mediatype: String,
}

#[derive(Deserialize)]
struct ChannelObject {
    name: String,
    #[serde(default)]
    entries: Vec<EntryObject>,
}

#[derive(Deserialize)]
struct EntryObject {
    name: String,
    #[serde(default)]
    replaces: String,
    #[serde(default)]
    skips: Vec<String>,
}

/// The large values of a bundle stay unread text.
#[derive(Deserialize)]
struct BundleObject<'a> {
    name: String,
    #[serde(default, borrow)]
    properties: Vec<PropertyObject<'a>>,
}

#[derive(Deserialize)]
struct PropertyObject<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default, borrow)]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PackageValue {
    version: String,
    #[serde(default)]
    release: Option<String>,
}

#[derive(Deserialize)]
struct DeprecationsObject {
    #[serde(default)]
    entries: Vec<DeprecationObject>,
}

#[derive(Deserialize)]
struct DeprecationObject {
    reference: ReferenceObject,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct ReferenceObject {
    schema: String,
    #[serde(default)]
    name: String,
}

/// What is gathered about one package while its objects pass by.
#[derive(Default)]
struct Gathered {
    package: Option<PackageObject>,
    channels: Vec<(String, Vec<EntryObject>)>,
    bundles: BTreeMap<String, Facts>,
    deprecations: Vec<DeprecationObject>,
}

struct Facts {
    text: String,
    version: Option<VersionRelease>,
    apis: BTreeSet<Gvk>,
}

/// All summaries, in order of the names. Slow for large catalogs; not for an async thread.
///
/// # Errors
/// When the content cannot be read.
fn summarise(content: &Content) -> io::Result<Vec<u8>> {
    let index = content.index();
    let mut by_package: BTreeMap<&str, Vec<Located<'_>>> = BTreeMap::new();
    for object in index.objects() {
        let owner = match object.schema {
            schema::PACKAGE => object.name,
            schema::CHANNEL | schema::BUNDLE | schema::DEPRECATIONS => object.package,
            _ => continue,
        };
        if !owner.is_empty() {
            by_package.entry(owner).or_default().push(object);
        }
    }
    let mut out = Vec::new();
    let mut buffer = Vec::new();
    for (name, objects) in by_package {
        let mut gathered = Gathered::default();
        for object in objects {
            let length = usize::try_from(object.length).map_err(io::Error::other)?;
            buffer.resize(length, 0);
            content.jsonl().read_at(&mut buffer, object.offset)?;
            gathered.add(object.schema, &buffer);
        }
        serde_json::to_writer(&mut out, &gathered.summary(name))?;
        out.push(b'\n');
    }
    Ok(out)
}

impl Gathered {
    fn add(&mut self, kind: &str, json: &[u8]) {
        match kind {
            schema::PACKAGE => self.package = serde_json::from_slice(json).ok().or(self.package.take()),
            schema::CHANNEL => {
                if let Ok(ChannelObject { name, entries }) = serde_json::from_slice(json) {
                    self.channels.push((name, entries));
                }
            }
            schema::BUNDLE => {
                if let Ok(bundle) = serde_json::from_slice::<BundleObject<'_>>(json) {
                    self.bundles.insert(bundle.name.clone(), facts(&bundle));
                }
            }
            schema::DEPRECATIONS => {
                if let Ok(object) = serde_json::from_slice::<DeprecationsObject>(json) {
                    self.deprecations.extend(object.entries);
                }
            }
            _ => {}
        }
    }

    fn summary<'a>(&self, name: &'a str) -> Summary<'a> {
        let deprecation = |kind: &str, name: &str| {
            let found = self.deprecations.iter().find(|entry| {
                entry.reference.schema == kind && (kind == schema::PACKAGE || entry.reference.name == name)
            });
            found.map(|entry| entry.message.clone())
        };
        let channels: Vec<ChannelSummary> = self
            .channels
            .iter()
            .map(|(channel, entries)| {
                let head = self.head(entries);
                let head_version =
                    head.and_then(|head| self.bundles.get(head)).map(|facts| facts.text.clone());
                ChannelSummary {
                    name: channel.clone(),
                    head: head.map(str::to_owned),
                    head_version: head_version.filter(|version| !version.is_empty()),
                    deprecation: deprecation(schema::CHANNEL, channel),
                }
            })
            .collect();
        let default_channel =
            self.package.as_ref().map(|package| package.default_channel.clone()).unwrap_or_default();
        let latest = self.bundles.values().filter(|facts| facts.version.is_some());
        let latest = latest.max_by(|a, b| a.version.cmp(&b.version));
        let shown = channels.iter().find(|channel| channel.name == default_channel);
        let shown = shown.and_then(|channel| self.bundles.get(channel.head.as_deref()?)).or(latest);
        let icon = self.package.as_ref().and_then(|package| package.icon.as_ref());
        Summary {
            name,
            latest_version: latest.map(|facts| facts.text.clone()),
            provided_apis: shown.map(|facts| facts.apis.clone()).unwrap_or_default(),
            icon: icon.map(|icon| IconReference {
                mediatype: icon.mediatype.clone(),
                metas: super::metas::canonical_of(schema::PACKAGE, name),
            }),
            deprecation: deprecation(schema::PACKAGE, ""),
            default_channel,
            channels,
        }
    }

    /// The entry that no other replaces or skips; the highest version if there are several.
    fn head<'e>(&self, entries: &'e [EntryObject]) -> Option<&'e str> {
        let behind: BTreeSet<&str> = entries
            .iter()
            .flat_map(|entry| entry.skips.iter().chain(std::iter::once(&entry.replaces)))
            .map(String::as_str)
            .collect();
        let heads = entries.iter().map(|entry| entry.name.as_str()).filter(|name| !behind.contains(name));
        heads.max_by(|a, b| {
            let version = |name: &str| self.bundles.get(name).and_then(|facts| facts.version.as_ref());
            version(a).cmp(&version(b))
        })
    }
}

fn facts(bundle: &BundleObject<'_>) -> Facts {
    let values = |kind: &'static str| {
        let of_kind = bundle.properties.iter().filter(move |property| property.kind == kind);
        of_kind.filter_map(|property| property.value.map(RawValue::get))
    };
    let package =
        values(olm_fbc::property::PACKAGE).find_map(|value| serde_json::from_str::<PackageValue>(value).ok());
    let version = package
        .as_ref()
        .and_then(|value| VersionRelease::parse(&value.version, value.release.as_deref()).ok());
    Facts {
        text: package.map(|value| value.version).unwrap_or_default(),
        version,
        apis: values(olm_fbc::property::GVK).filter_map(|value| serde_json::from_str(value).ok()).collect(),
    }
}
