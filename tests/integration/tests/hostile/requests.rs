//! Requests for what catalogd makes of a catalog: summaries of its packages, types of GraphQL, what is searched over gRPC.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use http::{Request, Uri};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use olm_registry::proto::registry_client::RegistryClient;
use olm_registry::proto::{GetAllProvidersRequest, ListBundlesRequest};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::{Status, Streaming};

use crate::bundles::PACKAGE;
use crate::catalogs::push;
use crate::content::Layer;
use crate::shape::{Expect, Shape};
use crate::support::Registry;

const MIB: usize = 1 << 20;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What a client asks for, of a catalog that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Packages,
    GraphQl,
    /// All bundles over gRPC.
    Bundles,
    /// The providers of an API over gRPC.
    Providers,
}

impl Question {
    /// The answer of catalogd: whether it is a success, and the begin of an answer over HTTP or the error.
    pub(crate) async fn ask(
        self,
        http: &reqwest::Client,
        content: &str,
        grpc: &str,
    ) -> Result<(bool, String)> {
        let url = |path: &str| format!("{content}/catalogs/{PACKAGE}/api/v1/{path}");
        let request = match self {
            Self::Packages => http.get(url("packages")),
            Self::GraphQl => http.post(url("graphql")).body(r#"{"query": "{ summary { totalSchemas } }"}"#),
            Self::Bundles | Self::Providers => {
                let listed = tokio::time::timeout(TIMEOUT, list(grpc, self == Self::Bundles)).await??;
                return Ok(match listed {
                    Ok(count) => (true, format!("{count} answers")),
                    Err(status) => (false, status.message().to_owned()),
                });
            }
        };
        let answer = request.timeout(TIMEOUT).send().await?;
        let is_success = answer.status().is_success();
        let text = answer.text().await?;
        // GraphQL answers 200 with errors
        let is_success = is_success && !text.contains("\"errors\"");
        Ok((is_success, text.chars().take(300).collect()))
    }
}

/// Lists bundles, or providers, of the catalog over gRPC; gives the number of answers.
async fn list(address: &str, bundles: bool) -> Result<Result<usize, Status>> {
    let stream = TcpStream::connect(address).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut sender = sender.clone();
        async move { sender.send_request(request).await }
    });
    // the first label of the authority names the catalog
    let origin: Uri = format!("http://{PACKAGE}.olmv1-system.svc:50051").parse()?;
    let mut client = RegistryClient::with_origin(service, origin).max_decoding_message_size(usize::MAX);
    Ok(if bundles {
        match client.list_bundles(ListBundlesRequest {}).await {
            Ok(answer) => count(answer.into_inner()).await,
            Err(status) => Err(status),
        }
    } else {
        let [group, version, kind] = ["g", "v", "k"].map(str::to_owned);
        let request = GetAllProvidersRequest { group, version, kind, plural: String::new() };
        match client.get_channel_entries_that_provide(request).await {
            Ok(answer) => count(answer.into_inner()).await,
            Err(status) => Err(status),
        }
    })
}

async fn count<T>(mut stream: Streaming<T>) -> Result<usize, Status> {
    let mut count = 0;
    while stream.message().await?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// A catalog of these lines.
fn lines(registry: &Registry, text: &str) -> Result<String> {
    Ok(push(registry, [Layer::new().file("configs/a.json", text.as_bytes()).end()]))
}

/// A bundle in so many channels, with a message of 1 MiB about its deprecation, which each of them repeats.
fn repeated(registry: &Registry, channels: usize) -> Result<String> {
    let message = "m".repeat(MIB);
    let mut text = format!(
        r#"{{"schema":"olm.package","name":"{PACKAGE}","defaultChannel":"c0"}}
{{"schema":"olm.bundle","package":"{PACKAGE}","name":"b","image":"x.invalid/y:1","properties":[{{"type":"olm.package","value":{{"packageName":"{PACKAGE}","version":"1.0.0"}}}}]}}
{{"schema":"olm.deprecations","package":"{PACKAGE}","entries":[{{"reference":{{"schema":"olm.bundle","name":"b"}},"message":"{message}"}}]}}
"#
    );
    for at in 0..channels {
        let _ = writeln!(
            text,
            r#"{{"schema":"olm.channel","package":"{PACKAGE}","name":"c{at}","entries":[{{"name":"b"}}]}}"#
        );
    }
    lines(registry, &text)
}

/// Packages of so many entries each, none of a name that another one has.
fn entries(registry: &Registry, packages: usize, entries: usize) -> Result<String> {
    let mut text = String::new();
    for package in 0..packages {
        let _ = writeln!(text, r#"{{"schema":"olm.package","name":"p{package}"}}"#);
        let _ = write!(text, r#"{{"schema":"olm.channel","package":"p{package}","name":"c","entries":["#);
        for at in 0..entries {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(text, r#"{comma}{{"name":"{package}.{at}"}}"#);
        }
        text.push_str("]}\n");
    }
    lines(registry, &text)
}

/// Bundles that provide so many APIs each, none of a name that another one has.
fn apis(registry: &Registry, bundles: usize, apis: usize) -> Result<String> {
    let mut text = format!("{{\"schema\":\"olm.package\",\"name\":\"{PACKAGE}\"}}\n");
    for bundle in 0..bundles {
        let _ = write!(
            text,
            r#"{{"schema":"olm.bundle","package":"{PACKAGE}","name":"b{bundle}","image":"i","properties":["#
        );
        for at in 0..apis {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(
                text,
                r#"{comma}{{"type":"olm.gvk","value":{{"group":"g{bundle}.{at}","kind":"k{bundle}.{at}","version":"v{bundle}.{at}"}}}}"#
            );
        }
        text.push_str("]}\n");
    }
    lines(registry, &text)
}

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const PACKAGES: &[Shape] = &[
    Shape { name: "packages: a message of 1 MiB in 100 channels", short: true, expect: Expect::Refused("the limit of 16777216 bytes"),
        make: |registry| repeated(registry, 100) },
    Shape { name: "packages: a message of 1 MiB in 12 channels", short: false, expect: Expect::Served,
        make: |registry| repeated(registry, 12) },
];

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const GRAPHQL: &[Shape] = &[
    Shape { name: "graphql: 500,000 keys", short: true, expect: Expect::Served,
        make: |registry| {
            let mut text = String::new();
            for object in 0..100 {
                text.push_str("{\"schema\":\"a\"");
                for key in 0..5_000 {
                    let _ = write!(text, ",\"k{object}x{key}\":0");
                }
                text.push_str("}\n");
            }
            lines(registry, &text)
        } },
    Shape { name: "graphql: 40,000 schemas", short: false, expect: Expect::Served,
        make: |registry| {
            let mut text = String::new();
            for at in 0..40_000 {
                let _ = writeln!(text, "{{\"schema\":\"s{at}\",\"list\":[{{\"k\":0}}]}}");
            }
            lines(registry, &text)
        } },
];

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const BUNDLES: &[Shape] = &[
    Shape { name: "grpc: a message of 1 MiB in 300 channels", short: true, expect: Expect::Served,
        make: |registry| repeated(registry, 300) },
    Shape { name: "grpc: 80 MiB of channels", short: false, expect: Expect::Refused("bytes in channels and deprecations"),
        make: |registry| {
            let pad = "v".repeat(MIB);
            let text = format!("{{\"schema\":\"olm.channel\",\"package\":\"p\",\"name\":\"c\",\"entries\":[],\"more\":\"{pad}\"}}\n");
            let layer = Layer::new().noise(2 * MIB).blocks("configs/a.json", text.as_bytes(), 80);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "grpc: 500,000 entries", short: false, expect: Expect::Refused("the limit of 400000 entries"),
        make: |registry| entries(registry, 5, 100_000) },
    Shape { name: "grpc: 380,000 entries", short: false, expect: Expect::Served,
        make: |registry| entries(registry, 4, 95_000) },
];

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const PROVIDERS: &[Shape] = &[
    Shape { name: "grpc: 1,000,000 APIs of other names", short: true, expect: Expect::Refused("bytes in the names of bundles"),
        make: |registry| apis(registry, 50, 20_000) },
    Shape { name: "grpc: 200,000 APIs of other names", short: false, expect: Expect::Refused("no channel entries found that provide"),
        make: |registry| apis(registry, 10, 20_000) },
];
