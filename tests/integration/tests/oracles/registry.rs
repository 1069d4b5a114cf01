//! catalogd's gRPC registry beside the real `opm serve`, message by message: every method, for every name that a catalog has and some
//! that it has not.
//!
//! Needs `opm` in the folder that `OLM_TOOLS` names (`make tools`); the sample catalogs, in `OLM_SHARED` or `../shared`, are
//! compared if they are there, generated ones always. Lists are compared without their order, which `opm` chooses at random; so is the
//! choice of one bundle among several (decision 51).

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use catalogd::grpc::{Registry, server};
use catalogd::store::{Served, Store};
use http::uri::PathAndQuery;
use http::{Request, Response};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use olm_fbc::{Ingest, IngestLimits, load_dir};
use olm_registry::proto;
use prost::Message;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::{Code, Status};
use tower::ServiceExt as _;

use crate::opm::{opm, sample};

/// How long `opm` may take to read a catalog.
const START: Duration = Duration::from_secs(120);
const GENERATED: u64 = 4;

/// A registry: `opm serve` on its port, or ours in process.
pub(crate) enum Server {
    Opm(http2::SendRequest<Body>),
    Own(Registry),
}

impl Server {
    async fn send(&self, request: Request<Body>) -> Response<Body> {
        match self {
            Self::Opm(sender) => sender.clone().send_request(request).await.unwrap().map(Body::new),
            Self::Own(registry) => {
                let service = server::service::<Body>(registry.clone()).unwrap();
                let answer: Result<_, Infallible> = service.oneshot(request).await;
                answer.unwrap()
            }
        }
    }

    /// All messages of an answer, or the error.
    pub(crate) async fn call<Q, A>(&self, method: &str, message: Q) -> Result<Vec<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let service = tower::service_fn(|request| async { Ok::<_, Infallible>(self.send(request).await) });
        let origin = "http://catalog.example.svc".parse().unwrap();
        let client = tonic::client::Grpc::with_origin(service, origin);
        let mut client = client.max_decoding_message_size(usize::MAX);
        client.ready().await.unwrap();
        let path: PathAndQuery = format!("/api.Registry/{method}").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<Q, A>::default();
        let answer = client.server_streaming(tonic::Request::new(message), path, codec).await?;
        let mut stream: Streaming<A> = answer.into_inner();
        let mut messages = Vec::new();
        while let Some(message) = stream.message().await? {
            messages.push(message);
        }
        Ok(messages)
    }
}

/// A running `opm serve`.
struct Opm {
    child: Child,
    server: Server,
}

impl Drop for Opm {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Opm {
    async fn start(program: &Path, catalog: &Path, scratch: &Path) -> Self {
        let port = olm_kit::free_port().unwrap();
        let log = scratch.join("opm.log");
        let mut child = Command::new(program)
            .arg("serve")
            .arg(catalog)
            .args(["--pprof-addr", "", "--cache-enforce-integrity=false", "--port", &port.to_string()])
            .arg("--cache-dir")
            .arg(scratch.join("cache"))
            .arg("--termination-log")
            .arg(scratch.join("end"))
            .stdin(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let stream = loop {
            if let Ok(stream) = tokio::net::TcpStream::connect(("127.0.0.1", port)).await {
                break stream;
            }
            let ended = child.try_wait().unwrap();
            let log = fs::read_to_string(&log).unwrap();
            let catalog = catalog.display();
            assert!(ended.is_none() && begun.elapsed() < START, "opm does not serve {catalog}: {log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        // else a request waits for the acknowledgement of its headers, 40 ms
        stream.set_nodelay(true).unwrap();
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { child, server: Server::Opm(sender) }
    }
}

/// Our registry with the catalog of a folder.
pub(crate) fn own(catalog: &Path, scratch: &Path) -> Server {
    let (store, _) = Store::open(&scratch.join("store")).unwrap();
    let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
    let staging = store.stage(store.lease(&digest)).unwrap();
    let mut ingest = Ingest::new(staging.spool().unwrap(), IngestLimits::default());
    let loaded = load_dir(catalog, IngestLimits::default()).unwrap();
    ingest.file("catalog.json", &mut &loaded.jsonl()[..]).unwrap();
    let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
    let served = Served { content, reference: String::new(), source: None, last_unpacked: 1 };
    store.publish("catalog", served).unwrap();
    Server::Own(Registry::new(store))
}

/// The bundle in a channel that a method without a rule may choose: package, channel, bundle.
type Choice = (String, String, String);

/// Compares the answers of both.
struct Comparison<'a> {
    theirs: &'a Server,
    ours: &'a Server,
    calls: BTreeMap<&'static str, usize>,
    errors: usize,
    chosen: usize,
}

fn texts<const N: usize>(parts: [&str; N]) -> [String; N] {
    parts.map(str::to_owned)
}

impl Comparison<'_> {
    async fn equal<Q, A>(&mut self, method: &'static str, message: Q) -> Vec<A>
    where
        Q: Message + Debug + Clone + Send + Sync + 'static,
        A: Message + Debug + Default + Send + Sync + 'static,
    {
        let theirs: Result<Vec<A>, Status> = self.theirs.call(method, message.clone()).await;
        let ours: Result<Vec<A>, Status> = self.ours.call(method, message.clone()).await;
        *self.calls.entry(method).or_default() += 1;
        match (theirs, ours) {
            (Ok(theirs), Ok(ours)) => {
                let sorted = |messages: &[A]| {
                    let mut found: Vec<_> = messages
                        .iter()
                        .map(|message| (message.encode_to_vec(), format!("{message:?}")))
                        .collect();
                    found.sort();
                    found
                };
                let (theirs, found) = (sorted(&theirs), sorted(&ours));
                assert_eq!(theirs.len(), found.len(), "messages of {method} {message:?}");
                for (theirs, ours) in theirs.iter().zip(&found) {
                    assert_eq!(theirs.1, ours.1, "{method} {message:?}");
                }
                ours
            }
            (Err(theirs), Err(ours)) => {
                self.errors += 1;
                let (their, our) = ((theirs.code(), theirs.message()), (ours.code(), ours.message()));
                assert_eq!(their, our, "{method} {message:?}");
                assert_eq!(ours.code(), Code::Unknown);
                Vec::new()
            }
            (theirs, ours) => {
                let shown = |answer: Result<Vec<A>, Status>| answer.map(|messages| messages.len());
                unreachable!("{method} {message:?}: {:?} and {:?}", shown(theirs), shown(ours))
            }
        }
    }

    /// As [`Self::equal`], where `opm` may choose any of these.
    async fn equal_choice<Q>(&mut self, method: &'static str, message: Q, choices: &BTreeSet<Choice>)
    where
        Q: Message + Debug + Clone + Send + Sync + 'static,
    {
        if choices.len() < 2 {
            self.equal::<Q, proto::Bundle>(method, message).await;
            return;
        }
        *self.calls.entry(method).or_default() += 1;
        self.chosen += 1;
        for server in [self.theirs, self.ours] {
            let found: Vec<proto::Bundle> = server.call(method, message.clone()).await.unwrap();
            let [found] = found.as_slice() else { unreachable!("{method} has one answer") };
            let choice: Choice =
                (found.package_name.clone(), found.channel_name.clone(), found.csv_name.clone());
            assert!(choices.contains(&choice), "{method} {message:?}: {choice:?} is none of {choices:?}");
            let (pkg_name, channel_name, csv_name) = choice;
            let request = proto::GetBundleRequest { pkg_name, channel_name, csv_name };
            let same: Vec<proto::Bundle> = server.call("GetBundle", request).await.unwrap();
            assert_eq!(same.first(), Some(found), "{method} {message:?}");
        }
    }

    async fn whole(&mut self) {
        let listed: Vec<proto::Bundle> = self.equal("ListBundles", proto::ListBundlesRequest {}).await;
        let names: Vec<proto::PackageName> = self.equal("ListPackages", proto::ListPackageRequest {}).await;
        let mut packages = Vec::new();
        for name in names.into_iter().map(|found| found.name).chain(texts(["nope", ""])) {
            packages.extend(
                self.equal::<_, proto::Package>("GetPackage", proto::GetPackageRequest { name }).await,
            );
        }
        let mut replaced: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for bundle in &listed {
            let names = bundle.skips.iter().chain([&bundle.csv_name, &bundle.replaces]).map(String::as_str);
            replaced.entry(&bundle.package_name).or_default().extend(names.chain(["nope"]));
        }
        self.bundles(&listed, &packages).await;
        let every: BTreeSet<&str> = replaced.values().flatten().copied().chain([""]).collect();
        for name in every {
            let request = proto::GetAllReplacementsRequest { csv_name: name.to_owned() };
            self.equal::<_, proto::ChannelEntry>("GetChannelEntriesThatReplace", request).await;
        }
        for package in &packages {
            for channel in package.channels.iter().map(|channel| channel.name.as_str()).chain(["nope"]) {
                for name in replaced.get(package.name.as_str()).into_iter().flatten() {
                    let follows = |bundle: &&proto::Bundle| {
                        (bundle.package_name.as_str(), bundle.channel_name.as_str())
                            == (&package.name, channel)
                            && (bundle.replaces == **name
                                || bundle.skips.iter().any(|skipped| skipped == name))
                    };
                    let choices = listed.iter().filter(follows).map(choice).collect();
                    let [csv_name, pkg_name, channel_name] = texts([name, &package.name, channel]);
                    let request = proto::GetReplacementRequest { csv_name, pkg_name, channel_name };
                    self.equal_choice("GetBundleThatReplaces", request, &choices).await;
                }
            }
        }
        let [csv_name, pkg_name, channel_name] = texts(["x", "nope", "nope"]);
        let request = proto::GetReplacementRequest { csv_name, pkg_name, channel_name };
        self.equal::<_, proto::Bundle>("GetBundleThatReplaces", request).await;
        self.providers(&listed, &packages).await;
    }

    async fn bundles(&mut self, listed: &[proto::Bundle], packages: &[proto::Package]) {
        let mut keys: Vec<Choice> = listed.iter().map(choice).collect();
        for package in packages {
            for channel in package.channels.iter().map(|channel| channel.name.as_str()).chain(["nope", ""]) {
                keys.push(texts([&package.name, channel, "nope"]).into());
                let [pkg_name, channel_name] = texts([&package.name, channel]);
                let request = proto::GetBundleInChannelRequest { pkg_name, channel_name };
                self.equal::<_, proto::Bundle>("GetBundleForChannel", request).await;
            }
        }
        keys.extend([texts(["nope", "nope", "nope"]).into(), texts(["", "", ""]).into()]);
        for (pkg_name, channel_name, csv_name) in keys {
            let request = proto::GetBundleRequest { pkg_name, channel_name, csv_name };
            self.equal::<_, proto::Bundle>("GetBundle", request).await;
        }
    }

    async fn providers(&mut self, listed: &[proto::Bundle], packages: &[proto::Package]) {
        let provided =
            listed.iter().flat_map(|bundle| bundle.provided_apis.iter().chain(&bundle.required_apis));
        let mut apis: BTreeSet<[&str; 3]> =
            provided.map(|api| [api.group.as_str(), &api.version, &api.kind]).collect();
        apis.extend([["nope", "v1", "Nope"], ["", "", ""]]);
        let heads: BTreeSet<Choice> = packages
            .iter()
            .flat_map(|package| package.channels.iter().map(move |channel| (package, channel)))
            .filter(|(package, channel)| channel.name == package.default_channel_name)
            .map(|(package, channel)| texts([&package.name, &channel.name, &channel.csv_name]).into())
            .collect();
        for [group, version, kind] in apis {
            let provides = |bundle: &&proto::Bundle| {
                bundle
                    .provided_apis
                    .iter()
                    .any(|api| [api.group.as_str(), &api.version, &api.kind] == [group, version, kind])
            };
            let choices =
                listed.iter().filter(provides).map(choice).filter(|found| heads.contains(found)).collect();
            let [group, version, kind, plural] = texts([group, version, kind, "ignored"]);
            let request = proto::GetAllProvidersRequest { group, version, kind, plural };
            for method in ["GetChannelEntriesThatProvide", "GetLatestChannelEntriesThatProvide"] {
                self.equal::<_, proto::ChannelEntry>(method, request.clone()).await;
            }
            self.equal_choice("GetDefaultBundleThatProvides", request, &choices).await;
        }
    }
}

fn choice(bundle: &proto::Bundle) -> Choice {
    (bundle.package_name.clone(), bundle.channel_name.clone(), bundle.csv_name.clone())
}

async fn compare(program: &Path, name: &str, catalog: &Path) {
    let scratch = tempfile::tempdir().unwrap();
    let opm = Opm::start(program, catalog, scratch.path()).await;
    let ours = own(catalog, scratch.path());
    let mut comparison =
        Comparison { theirs: &opm.server, ours: &ours, calls: BTreeMap::new(), errors: 0, chosen: 0 };
    comparison.whole().await;
    let calls: usize = comparison.calls.values().sum();
    assert_eq!(comparison.calls.len(), 10, "every method is called: {:?}", comparison.calls);
    let (errors, chosen) = (comparison.errors, comparison.chosen);
    println!(
        "{name}: {calls} calls equal, {errors} of them errors, {chosen} with a choice: {:?}",
        comparison.calls
    );
}

/// The program opm; reports that it is missing.
fn reported_opm() -> Option<PathBuf> {
    let program = opm();
    if program.is_none() {
        println!("SKIPPED: no opm in OLM_TOOLS; build it with `make tools`");
    }
    program
}

async fn compare_shared(name: &str) {
    let Some(program) = reported_opm() else { return };
    match sample() {
        Some(folder) => compare(&program, name, &folder.join(name)).await,
        None => println!("SKIPPED: the sample catalogs are not in OLM_SHARED or ../shared"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_answers_of_published_catalogs_are_those_of_opm() {
    compare_shared("catalog").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_answers_of_sample_bundles_are_those_of_opm() {
    compare_shared("bundles-catalog").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_answers_of_made_catalogs_are_those_of_opm() {
    let Some(program) = reported_opm() else { return };
    for seed in 0..GENERATED {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("catalog.json"), generated(seed)).unwrap();
        compare(&program, &format!("generated catalog {seed}"), folder.path()).await;
    }
}

/// splitmix64
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// A catalog that `opm` accepts, with all that a message shows.
fn generated(seed: u64) -> String {
    let mut random = Random(seed);
    let mut objects = Vec::new();
    for number in 0..1 + random.below(3) {
        package(&format!("p{number}"), &mut random, &mut objects);
    }
    objects.iter().map(|object| format!("{object}\n")).collect()
}

fn package(name: &str, random: &mut Random, objects: &mut Vec<Value>) {
    let bundles = 2 + random.below(5);
    let bundle = |at: u64| format!("{name}.v{at}");
    let mut package = json!({"schema": "olm.package", "name": name, "defaultChannel": "c0"});
    if random.one_in(2) {
        let data = base64::engine::general_purpose::STANDARD.encode("<svg>é</svg>");
        package["icon"] = json!({"base64data": data, "mediatype": "image/svg+xml"});
    }
    objects.push(package);
    let channels = 1 + random.below(3);
    let mut deprecations = Vec::new();
    let mut used = BTreeSet::new();
    for number in 0..channels {
        // the first channel has every bundle, as each must be in one
        let members: Vec<u64> = (0..bundles).filter(|_| number == 0 || random.one_in(2)).collect();
        if members.is_empty() {
            continue;
        }
        let entries: Vec<Value> = members
            .iter()
            .enumerate()
            .map(|(place, at)| {
                let mut entry = json!({"name": bundle(*at)});
                match place.checked_sub(1) {
                    Some(before) => entry["replaces"] = json!(bundle(members[before])),
                    None if random.one_in(3) => entry["replaces"] = json!(format!("{name}.gone")),
                    None => {}
                }
                if random.one_in(2) {
                    // an entry below one that is skipped is skipped, too: it has no other way to the head
                    let lowest = members.iter().take(random.below(place as u64 + 1) as usize);
                    let absent = (0..random.below(3)).map(|number| format!("x.v{}", number % 2));
                    let skips: Vec<String> = lowest.map(|at| bundle(*at)).chain(absent).collect();
                    entry["skips"] = json!(skips);
                }
                if random.one_in(3) {
                    entry["skipRange"] = json!(">=0.1.0 <1.2.0");
                }
                used.insert(*at);
                entry
            })
            .collect();
        let channel = format!("c{number}");
        if random.one_in(3) {
            let reference = json!({"schema": "olm.channel", "name": channel});
            deprecations.push(json!({"reference": reference, "message": format!("{channel} <ends>")}));
        }
        objects.push(json!({"schema": "olm.channel", "package": name, "name": channel, "entries": entries}));
    }
    for at in used {
        let name_of_bundle = bundle(at);
        if random.one_in(4) {
            let reference = json!({"schema": "olm.bundle", "name": name_of_bundle});
            deprecations.push(json!({"reference": reference, "message": "use another"}));
        }
        objects.push(bundle_object(name, &name_of_bundle, at, random));
    }
    if random.one_in(3) {
        deprecations.push(json!({"reference": {"schema": "olm.package"}, "message": "all of it"}));
    }
    if !deprecations.is_empty() {
        objects.push(json!({"schema": "olm.deprecations", "package": name, "entries": deprecations}));
    }
}

fn bundle_object(package: &str, name: &str, at: u64, random: &mut Random) -> Value {
    let property = |kind: &str, value: Value| json!({"type": kind, "value": value});
    let api = |kind: &str| json!({"group": "g.io", "version": "v1", "kind": kind});
    let inline = |manifest: &str| {
        property(
            "olm.bundle.object",
            json!({"data": base64::engine::general_purpose::STANDARD.encode(manifest)}),
        )
    };
    let version = random.pick(&["", "-rc.1", "+build.5"]);
    let mut properties = vec![property(
        "olm.package",
        json!({"packageName": package, "version": format!("1.{at}.0{version}")}),
    )];
    for kind in ["A", "B", "C"] {
        if random.one_in(2) {
            properties.push(property("olm.gvk", api(kind)));
        }
    }
    if random.one_in(2) {
        properties.push(property(
            "olm.package.required",
            json!({"packageName": "q", "versionRange": ">=1.0.0 <2.0.0"}),
        ));
    }
    if random.one_in(2) {
        properties.push(property("olm.gvk.required", api("Needed")));
    }
    if random.one_in(2) {
        let value = json!({"z": [1.50, 1e30, "<&>", null], "a": {"é": "\u{2028}"}});
        properties.push(property("custom.example.io", value));
    }
    if random.one_in(2) {
        properties.push(property("olm.csv.metadata", metadata(random)));
    }
    let mut image = format!("example.io/{package}/{name}:1");
    if random.one_in(3) {
        properties.push(inline("{ \"kind\" : \"Service\", \"apiVersion\": \"v1\" }\n"));
        properties.push(inline("apiVersion: v1\nkind: ConfigMap\ndata: {a: y, b: 1.0, c: \"<\"}\n"));
        properties.push(inline(&format!("kind: ClusterServiceVersion\nmetadata: {{name: {name}}}\n")));
        if random.one_in(2) {
            image.clear();
        }
    }
    for place in (1..properties.len()).rev() {
        properties.swap(place, random.below(place as u64 + 1) as usize);
    }
    let images = json!([{"name": "operator", "image": "example.io/operator:1"}, {"name": "", "image": "example.io/other"}]);
    let images = if random.one_in(2) { images } else { json!([]) };
    json!({"schema": "olm.bundle", "package": package, "name": name, "image": image, "properties": properties, "relatedImages": images})
}

/// Any subset of what the metadata of a ClusterServiceVersion may have.
fn metadata(random: &mut Random) -> Value {
    let descriptors = json!([{"path": "a", "displayName": "A", "description": "<a>", "x-descriptors": ["urn:x"], "value": {"b": "<", "a": 1}},
        {"path": "", "value": null}, {"path": "c", "value": "é\u{2029}"}]);
    let resources = json!([{"name": "", "kind": "Pod", "version": "v1"}]);
    let crd = json!({"name": "as.g.io", "version": "v1", "kind": "A", "displayName": "An A", "description": "it's \"A\"",
        "resources": resources, "specDescriptors": descriptors, "statusDescriptors": descriptors, "actionDescriptors": descriptors});
    let service = json!({"name": "v1.g.io", "group": "g.io", "version": "v1", "kind": "A", "deploymentName": "d", "containerPort": 8443,
        "displayName": "A", "description": "d", "resources": resources, "specDescriptors": descriptors, "statusDescriptors": descriptors});
    let all = json!({
        "annotations": {"z": "<script>&", "a": "{\"b\": [1]}"}, "apiServiceDefinitions": {"owned": [service], "required": [{"name": "n"}]},
        "crdDescriptions": {
            "owned": [crd, {"name": "b", "version": "v1", "kind": "B"}], "required": [{"name": "c", "version": "v1", "kind": "C"}],
        },
        "description": "# Title\n<b>bold</b> & \u{2028} \u{7f} \\ \"quoted\"", "displayName": "A & B",
        "installModes": [{"type": "OwnNamespace", "supported": true}, {"type": "AllNamespaces", "supported": false}],
        "keywords": ["one", "<two>"], "labels": {"b": "2", "a": "1"}, "links": [{"name": "n", "url": "https://example.io/?a=1&b=2"}, {}],
        "maintainers": [{"name": "n", "email": "n@example.io"}, {"email": "only"}], "maturity": "alpha", "minKubeVersion": "1.20.0",
        "nativeAPIs": [{"group": "", "version": "v1", "kind": "Pod"}], "provider": {"name": "P", "url": "https://example.io"},
    });
    let Value::Object(members) = all else { unreachable!("it is an object") };
    Value::Object(members.into_iter().filter(|_| !random.one_in(4)).collect())
}
