//! Reading what a report holds, in the order in which it counts: the summary's sources first, logs and profiles last.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, LogParams};
use kube::{Api, Client, ResourceExt as _};
use olm_api::condition;
use olm_runtime::client::ConnectionError;
use olm_runtime::error_text::chain;
use olm_runtime::tls::{CaPool, TlsSettings};
use serde_json::Value;

use super::archive::Files;
use super::redact;
use crate::cmd::output::{Table, counted, or_dash};
use crate::failure::{CommandError, print_note};
use crate::sources::is_loopback;

/// Bytes of all files together.
const MAX_BYTES: usize = 64 << 20;
/// Bytes of one log, its newest.
const MAX_LOG_BYTES: usize = 1 << 20;
/// Lines of one log that are asked for.
const MAX_LOG_LINES: i64 = 5000;
/// Objects of one kind.
const MAX_OBJECTS: u32 = 2000;
/// Lines of a table in the summary.
const MAX_ROWS: usize = 100;
/// Pods whose logs are read.
const MAX_PODS: usize = 20;
/// Length of a CPU profile.
const PROFILE_SECONDS: u64 = 5;

/// A kind whose objects are read.
struct Kind {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// Whether only those of OLM's namespace are read.
    is_namespaced: bool,
}

const fn olm(kind: &'static str, plural: &'static str) -> Kind {
    Kind { group: "olm.operatorframework.io", version: "v1", kind, plural, is_namespaced: false }
}

const fn own(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { group, version: "v1", kind, plural, is_namespaced: true }
}

const KINDS: [Kind; 7] = [
    olm("ClusterExtension", "clusterextensions"),
    olm("ClusterCatalog", "clustercatalogs"),
    olm("ClusterObjectSet", "clusterobjectsets"),
    own("apps", "Deployment", "deployments"),
    own("", "Pod", "pods"),
    own("", "Service", "services"),
    own("coordination.k8s.io", "Lease", "leases"),
];

/// Where the programs serve metrics and profiles.
pub(super) struct Endpoints {
    pub(super) urls: Vec<String>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) cas_dir: Option<PathBuf>,
}

pub(super) struct Collector {
    namespace: String,
    now: Timestamp,
    files: Files,
    /// The text of the summary.
    summary: String,
}

/// The reason of a request that failed.
fn reason(error: &kube::Error) -> String {
    match ConnectionError::behind(error) {
        Some(ConnectionError { url, why }) => format!("no answer from {url}: {why}"),
        None => chain(error),
    }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Status, reason and first line of the message of a condition.
fn condition_of(object: &Value, type_: &str) -> (String, String, String) {
    let found = items(object, "/status/conditions").find(|found| found["type"] == type_);
    let part = |key: &str| found.map(|found| text(found, key)).unwrap_or_default().to_owned();
    let first = part("/message").lines().next().unwrap_or_default().to_owned();
    (part("/status"), part("/reason"), first)
}

impl Collector {
    pub(super) fn new(namespace: String, now: Timestamp) -> Self {
        Self { namespace, now, files: Files::new(MAX_BYTES), summary: String::new() }
    }

    /// Reads everything. Returns the files, and the summary that belongs before them.
    pub(super) async fn collect(
        mut self,
        client: Result<Client, CommandError>,
        endpoints: &Endpoints,
    ) -> (Files, String) {
        self.summary = format!(
            "Report of kubectl olm {} ({}/{}), {}\nNamespace of the programs: {}\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH,
            self.now,
            self.namespace
        );
        match client {
            Ok(client) => self.cluster(&client).await,
            Err(failure) => self.files.miss("the cluster", &failure.to_string()),
        }
        self.endpoints(endpoints).await;
        let mut summary = redact::text(&self.summary);
        if !self.files.missing().is_empty() {
            summary.push_str("\nNot read\n");
        }
        for (what, why) in self.files.missing() {
            summary.push_str(&format!("  {what}: {}\n", why.replace('\n', " ")));
        }
        summary.push_str("\nFiles\n");
        for (path, size) in self.files.sizes() {
            summary.push_str(&format!("  {path} ({size} B)\n"));
        }
        (self.files, summary)
    }

    async fn cluster(&mut self, client: &Client) {
        print_note("reading versions");
        match client.apiserver_version().await {
            Ok(version) => {
                self.summary
                    .push_str(&format!("Kubernetes {} ({})\n", version.git_version, version.platform));
                self.files
                    .add_text("versions.json", &serde_json::to_string_pretty(&version).unwrap_or_default());
            }
            Err(error) => {
                self.files.miss("the version of the cluster", &reason(&error));
                // each further request would wait as long
                if ConnectionError::behind(&error).is_some() {
                    return self.files.miss("everything else", "the apiserver does not answer");
                }
            }
        }
        let mut pods = Vec::new();
        for kind in &KINDS {
            print_note(&format!("reading {}", kind.plural));
            let objects = self.objects(client, kind).await;
            self.table(kind, &objects);
            if kind.kind == "Pod" {
                pods = objects;
            }
        }
        print_note("reading events");
        self.events(client).await;
        for pod in pods.iter().take(MAX_PODS) {
            self.logs(client, pod).await;
        }
        if let Some(more) = pods.len().checked_sub(MAX_PODS).filter(|more| *more > 0) {
            self.files.miss(&format!("logs of {}", counted(more, "more pod")), "there are too many");
        }
    }

    /// Adds the objects of a kind, one file each. Returns them without secrets.
    async fn objects(&mut self, client: &Client, kind: &Kind) -> Vec<Value> {
        let types = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&types, kind.plural);
        let api: Api<DynamicObject> = match kind.is_namespaced {
            true => Api::namespaced_with(client.clone(), &self.namespace, &resource),
            false => Api::all_with(client.clone(), &resource),
        };
        let listed = match api.list(&ListParams::default().limit(MAX_OBJECTS)).await {
            Ok(listed) => listed,
            Err(error) => {
                self.files.miss(kind.plural, &reason(&error));
                return Vec::new();
            }
        };
        if listed.metadata.continue_.is_some_and(|token| !token.is_empty()) {
            self.files.miss(&format!("more than {MAX_OBJECTS} {}", kind.plural), "there are too many");
        }
        let mut all = Vec::new();
        for found in listed.items {
            let name = found.name_any();
            let mut object = serde_json::to_value(found).unwrap_or_default();
            object["apiVersion"] = Value::from(resource.api_version.as_str());
            object["kind"] = Value::from(kind.kind);
            redact::object(&mut object);
            let yaml = serde_saphyr::to_string(&object).unwrap_or_default();
            self.files.add_text(&format!("{}/{name}.yaml", kind.plural), &yaml);
            all.push(object);
        }
        all
    }

    /// Adds the objects to the summary.
    fn table(&mut self, kind: &Kind, objects: &[Value]) {
        let heads: &[&'static str] = match kind.kind {
            "ClusterExtension" => &["NAME", "PACKAGE", "VERSION", "READY", "REASON", "MESSAGE"],
            "ClusterCatalog" => &["NAME", "SERVING", "REASON", "MESSAGE"],
            "Deployment" => &["NAME", "READY", "IMAGES"],
            "Pod" => &["NAME", "PHASE", "RESTARTS", "IMAGES"],
            _ => &[],
        };
        self.summary.push_str(&format!("\n{}: {}\n", kind.kind, objects.len()));
        if heads.is_empty() {
            return;
        }
        let mut table = Table::new(heads.iter().copied());
        let images = |pointer: &str, object: &Value| {
            items(object, pointer).map(|container| text(container, "/image")).collect::<Vec<_>>().join(",")
        };
        for object in objects.iter().take(MAX_ROWS) {
            let name = text(object, "/metadata/name").to_owned();
            let cells = match kind.kind {
                "ClusterExtension" => {
                    let (ready, reason, message) = condition_of(object, condition::READY);
                    let package = text(object, "/spec/source/catalog/packageName").to_owned();
                    let version = or_dash(text(object, "/status/install/bundle/version"));
                    vec![name, package, version, or_dash(&ready), or_dash(&reason), message]
                }
                "ClusterCatalog" => {
                    let (serving, ..) = condition_of(object, condition::SERVING);
                    let (_, reason, message) = condition_of(object, condition::PROGRESSING);
                    vec![name, or_dash(&serving), or_dash(&reason), message]
                }
                "Deployment" => {
                    let count =
                        |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
                    let ready = format!("{}/{}", count("/status/readyReplicas"), count("/spec/replicas"));
                    vec![name, ready, images("/spec/template/spec/containers", object)]
                }
                _ => {
                    let restarts = items(object, "/status/containerStatuses")
                        .filter_map(|status| status["restartCount"].as_i64());
                    let restarts = restarts.sum::<i64>().to_string();
                    vec![
                        name,
                        text(object, "/status/phase").to_owned(),
                        restarts,
                        images("/spec/containers", object),
                    ]
                }
            };
            table.row(cells);
        }
        self.summary.push_str(&table.text("  "));
        if objects.len() > MAX_ROWS {
            self.summary.push_str(&format!("  … {} more\n", objects.len() - MAX_ROWS));
        }
    }

    /// Adds the events of OLM's objects and of its namespace, the newest last.
    async fn events(&mut self, client: &Client) {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Event"), "events");
        let mut found = Vec::new();
        let all = ListParams::default().limit(MAX_OBJECTS);
        let of_olm = all.clone().fields(&format!("involvedObject.apiVersion={}", olm_api::API_VERSION));
        // events of objects without a namespace are in `default`, which may have many others
        let elsewhere = (self.namespace != "default").then_some(("default", of_olm));
        for (namespace, params) in elsewhere.into_iter().chain([(self.namespace.as_str(), all)]) {
            let what = format!("events of namespace {namespace}");
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
            match api.list(&params).await {
                Ok(listed) => {
                    if listed.metadata.continue_.is_some_and(|token| !token.is_empty()) {
                        self.files.miss(&format!("more than {MAX_OBJECTS} {what}"), "there are too many");
                    }
                    found.extend(
                        listed.items.into_iter().filter_map(|event| serde_json::to_value(event).ok()),
                    );
                }
                Err(error) => self.files.miss(&what, &reason(&error)),
            }
        }
        let is_ours = |event: &Value| {
            text(event, "/involvedObject/apiVersion").starts_with("olm.operatorframework.io/")
                || text(event, "/metadata/namespace") == self.namespace
        };
        found.retain(is_ours);
        found.sort_by_cached_key(time_of);
        let mut table = Table::new(["LAST", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE"]);
        for event in &found {
            let object =
                format!("{}/{}", text(event, "/involvedObject/kind"), text(event, "/involvedObject/name"));
            let count =
                event["count"].as_i64().or_else(|| event.pointer("/series/count")?.as_i64()).unwrap_or(1);
            table.row([
                time_of(event),
                text(event, "/type").to_owned(),
                text(event, "/reason").to_owned(),
                object,
                count.to_string(),
                redact::text(text(event, "/message")),
            ]);
        }
        let warnings = found.iter().filter(|event| event["type"] == "Warning").count();
        self.summary.push_str(&format!("\nEvents: {}, warnings among them: {warnings}\n", found.len()));
        self.files.add_text("events.txt", &table.text(""));
    }

    async fn logs(&mut self, client: &Client, pod: &Value) {
        let name = text(pod, "/metadata/name");
        print_note(&format!("reading logs of pod {name}"));
        let api: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let containers = items(pod, "/spec/initContainers").chain(items(pod, "/spec/containers"));
        for container in containers.map(|container| text(container, "/name")) {
            let status =
                items(pod, "/status/initContainerStatuses").chain(items(pod, "/status/containerStatuses"));
            let mut status = status.filter(|status| text(status, "/name") == container);
            let has_restarted = status.any(|status| status["restartCount"].as_i64() > Some(0));
            for previous in [false, true] {
                if previous && !has_restarted {
                    continue;
                }
                let ending = if previous { ".previous.log" } else { ".log" };
                let path = format!("logs/{name}/{container}{ending}");
                let params = LogParams {
                    container: Some(container.to_owned()),
                    previous,
                    tail_lines: Some(MAX_LOG_LINES),
                    // whole lines of the end are kept; more than this is not read
                    limit_bytes: Some(8 * MAX_LOG_BYTES as i64),
                    timestamps: true,
                    ..LogParams::default()
                };
                match api.logs(name, &params).await {
                    Ok(log) => self.files.add_text(&path, newest(&log, MAX_LOG_BYTES)),
                    Err(error) => self.files.miss(&path, &reason(&error)),
                }
            }
        }
    }

    /// Adds metrics and profiles. A program serves them at two addresses: what one of them has is not missed at the other.
    async fn endpoints(&mut self, endpoints: &Endpoints) {
        if endpoints.urls.is_empty() {
            return self.files.miss(
                "metrics and profiles",
                "the apiserver passes no token on; forward a port and give --metrics-url",
            );
        }
        let access = endpoints.clients().and_then(|clients| Ok((clients, endpoints.token()?)));
        let (clients, token) = match access {
            Ok(found) => found,
            Err(why) => return self.files.miss("metrics and profiles", &why),
        };
        let profile = format!("/debug/pprof/profile?seconds={PROFILE_SECONDS}");
        let parts = [
            ("/metrics", "metrics.txt", "--metrics-bind-address"),
            ("/debug/pprof/heap", "heap.txt", "--pprof-bind-address"),
            (profile.as_str(), "profile.pb.gz", "--pprof-bind-address"),
        ];
        for (path, name, flag) in parts {
            let mut is_served = false;
            for (url, client) in &clients {
                let address = format!("{url}{path}");
                print_note(&format!("reading {address}"));
                let file = format!("metrics/{}/{name}", url.split_once("://").map_or(*url, |(_, host)| host));
                match read(client, &token, &address).await {
                    Ok(None) => continue,
                    Ok(Some(body)) if name.ends_with(".txt") => {
                        self.files.add_text(&file, &String::from_utf8_lossy(&body));
                    }
                    Ok(Some(body)) => self.files.add(&file, body),
                    Err(why) => self.files.miss(&address, &why),
                }
                is_served = true;
            }
            if !is_served {
                let why = format!("no --metrics-url serves it; a program does at its {flag}");
                self.files.miss(path, &why);
            }
        }
    }
}

/// What an address answers; `None` if it serves no such path.
async fn read(client: &reqwest::Client, token: &str, address: &str) -> Result<Option<Vec<u8>>, String> {
    let answer = client.get(address).bearer_auth(token).send().await;
    let mut answer = answer.map_err(|error| chain(&error))?;
    let status = answer.status();
    if status == reqwest::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(|error| chain(&error))? {
        if body.len() + chunk.len() > 16 * MAX_LOG_BYTES {
            return Err("the answer is too large".to_owned());
        }
        body.extend_from_slice(&chunk);
    }
    match status.is_success() {
        true => Ok(Some(body)),
        false => Err(format!("{status}: {}", String::from_utf8_lossy(&body).trim())),
    }
}

impl Endpoints {
    fn token(&self) -> Result<String, String> {
        let path = self.token_file.as_deref().ok_or("give --metrics-token-file")?;
        let token = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Ok(token.trim().to_owned())
    }

    /// The addresses, each with a client that reaches it.
    fn clients(&self) -> Result<Vec<(&str, reqwest::Client)>, String> {
        let urls = self.urls.iter().map(|url| url.trim_end_matches('/'));
        urls.map(|url| Ok((url, self.client(url)?))).collect()
    }

    fn client(&self, url: &str) -> Result<reqwest::Client, String> {
        let pool = CaPool::load(self.cas_dir.as_deref()).map_err(|error| chain(&error))?;
        let tls = pool.client_config(&TlsSettings::default()).map_err(|error| chain(&error))?;
        let timeout = Duration::from_secs(30 + PROFILE_SECONDS);
        let mut builder = reqwest::Client::builder().tls_backend_preconfigured(tls).timeout(timeout);
        if is_loopback(url) {
            builder = builder.no_proxy();
        }
        builder.build().map_err(|error| chain(&error))
    }
}

/// When an event last happened, RFC 3339.
fn time_of(event: &Value) -> String {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    times
        .iter()
        .map(|pointer| text(event, pointer))
        .find(|time| !time.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Whole lines of the end of a text.
fn newest(text: &str, most: usize) -> &str {
    let Some(from) = text.len().checked_sub(most).filter(|from| *from > 0) else { return text };
    let end = &text.as_bytes()[from..];
    let line = end.iter().position(|byte| *byte == b'\n').map_or(end.len(), |at| at + 1);
    text.get(from + line..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_log_keeps_its_newest_lines() {
        for (text, most, want) in [
            ("a\nb\n", 10, "a\nb\n"),
            ("aaa\nbb\nc\n", 6, "bb\nc\n"),
            ("aaa\nbb\nc\n", 5, "c\n"),
            ("ü\nüü\nü\n", 4, "ü\n"),
            ("no line", 3, ""),
        ] {
            assert_eq!(newest(text, most), want, "{text:?} {most}");
        }
    }
}
