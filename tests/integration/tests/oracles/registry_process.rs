//! The gRPC registry of a running catalogd: the Service that makes a catalog an address, and a client of Go that calls it there.
//!
//! The client (`hack/oracles/registry-client`) has the transport and the messages of OLM Classic's own clients.

use std::fmt::Debug;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_api::ClusterCatalog;
use olm_api::annotations::GRPC_SERVICE;
use olm_api::condition;
use olm_kit::{
    CatalogImage, Cluster, Program, Registry, SYSTEM_NAMESPACE, Tools, Wait, eventually, free_port,
};
use olm_registry::proto;
use prost::Message;
use serde_json::{Value, json};

use crate::registry::{Server, own};

const LIMIT: Duration = Duration::from_secs(60);

const CATALOG: &str = r#"{"schema":"olm.package","name":"kiln","defaultChannel":"stable"}
{"schema":"olm.channel","package":"kiln","name":"stable","entries":[{"name":"kiln.v1.0.0"},{"name":"kiln.v1.1.0","replaces":"kiln.v1.0.0"}]}
{"schema":"olm.bundle","package":"kiln","name":"kiln.v1.0.0","image":"registry.example.com/kiln:1","properties":[{"type":"olm.package","value":{"packageName":"kiln","version":"1.0.0"}}]}
{"schema":"olm.bundle","package":"kiln","name":"kiln.v1.1.0","image":"registry.example.com/kiln:2","properties":[{"type":"olm.package","value":{"packageName":"kiln","version":"1.1.0"}},{"type":"olm.gvk","value":{"group":"example.com","kind":"Kiln","version":"v1"}}]}
"#;

/// Calls each method, in the words of the client, at an address and under an authority.
fn calls(address: &str, authority: &str, lines: &[&str]) -> Result<Vec<Value>> {
    let program = Tools::locate()?.program("oracle-registry-client")?;
    let mut client = Command::new(program)
        .args([address, authority])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    client.stdin.take().context("no input")?.write_all((lines.join("\n") + "\n").as_bytes())?;
    let output = client.wait_with_output()?;
    ensure!(output.status.success(), "the client ended with {}", output.status);
    let answers = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(answers.map(serde_json::from_slice).collect::<Result<_, _>>()?)
}

/// The messages of an answer of the client.
fn messages<A: Message + Default>(answer: &Value) -> Result<Vec<A>> {
    let list = answer["messages"].as_array().with_context(|| format!("no messages: {answer}"))?;
    let decode = |text: &Value| {
        let text = text.as_str().context("no text")?;
        Ok(A::decode(&*base64::prelude::BASE64_STANDARD.decode(text)?)?)
    };
    list.iter().map(decode).collect()
}

/// Whether the client's answer is that of the service in this process.
async fn equal<Q, A>(answer: &Value, ours: &Server, method: &str, request: Q) -> Result<usize>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + PartialEq + Debug + Send + Sync + 'static,
{
    let found: Vec<A> = messages(answer)?;
    let want: Vec<A> = ours.call(method, request).await?;
    ensure!(found == want, "{method}: {found:?}, not {want:?}");
    Ok(found.len())
}

async fn create(cluster: &Cluster, name: &str, reference: &str) -> Result<()> {
    let api: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let catalog: ClusterCatalog = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": name, "annotations": {GRPC_SERVICE: "true"}},
        "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
    }))?;
    api.create(&PostParams::default(), &catalog).await?;
    Wait::new(&api, name).within(LIMIT).for_condition(condition::SERVING, "True").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_of_a_process_answers_a_client_of_go() -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.install_crds().await?;
    cluster
        .apply(&format!("{{apiVersion: v1, kind: Namespace, metadata: {{name: {SYSTEM_NAMESPACE}}}}}"))
        .await?;
    let registry = Registry::start().await?;
    let image = registry.push("kiln", "1", &CatalogImage::from_text(CATALOG).image()).await?;
    let address = format!("127.0.0.1:{}", free_port()?);
    let catalogd = Program::catalogd(&cluster)?.flag("--grpc-bind-address", &address).start().await?;
    let services: Api<Service> = Api::namespaced(cluster.client().await?, SYSTEM_NAMESPACE);
    // a Service of another owner has the name of a catalog
    let foreign = json!({"metadata": {"name": "foreign"}, "spec": {"selector": {"app": "other"}, "ports": [{"port": 80}]}});
    let foreign = services.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    create(&cluster, "kiln", &image.by_tag()).await?;
    create(&cluster, "foreign", &image.by_tag()).await?;

    let made = Wait::new(&services, "kiln").within(LIMIT).to_exist().await?;
    let catalogs: Api<ClusterCatalog> = Api::all(cluster.client().await?);
    let owners: Vec<String> = made.owner_references().iter().map(|owner| owner.uid.clone()).collect();
    assert_eq!(owners, [catalogs.get("kiln").await?.uid().context("no UID")?]);
    let port = made.spec.and_then(|spec| spec.ports).unwrap_or_default();
    assert_eq!(port.iter().map(|port| port.port).collect::<Vec<_>>(), [50051]);

    let lines = [
        "ListPackages {}",
        r#"GetPackage {"name": "kiln"}"#,
        r#"GetBundle {"pkgName": "kiln", "channelName": "stable", "csvName": "kiln.v1.0.0"}"#,
        r#"GetBundleForChannel {"pkgName": "kiln", "channelName": "stable"}"#,
        "ListBundles {}",
        r#"GetPackage {"name": "absent"}"#,
    ];
    let answers = tokio::task::block_in_place(|| calls(&address, "kiln.olmv1-system.svc:50051", &lines))?;
    let [names, package, bundle, head, bundles, absent] = answers.as_slice() else {
        anyhow::bail!("{answers:?}")
    };
    let scratch = tempfile::tempdir()?;
    let ours = in_process(scratch.path())?;
    let count =
        equal::<_, proto::PackageName>(names, &ours, "ListPackages", proto::ListPackageRequest {}).await?;
    assert_eq!(count, 1);
    let name = || "kiln".to_owned();
    let request = proto::GetPackageRequest { name: name() };
    equal::<_, proto::Package>(package, &ours, "GetPackage", request).await?;
    let channel = || "stable".to_owned();
    let request = proto::GetBundleRequest {
        pkg_name: name(),
        channel_name: channel(),
        csv_name: "kiln.v1.0.0".to_owned(),
    };
    equal::<_, proto::Bundle>(bundle, &ours, "GetBundle", request).await?;
    let request = proto::GetBundleInChannelRequest { pkg_name: name(), channel_name: channel() };
    equal::<_, proto::Bundle>(head, &ours, "GetBundleForChannel", request).await?;
    let count =
        equal::<_, proto::Bundle>(bundles, &ours, "ListBundles", proto::ListBundlesRequest {}).await?;
    assert_eq!(count, 2);
    assert_eq!(
        (&absent["code"], &absent["message"]),
        (&json!("Unknown"), &json!("package \"absent\" not found"))
    );
    let unknown = tokio::task::block_in_place(|| calls(&address, "nowhere.olmv1-system.svc", &lines[..1]))?;
    assert_eq!(unknown[0]["code"], "NotFound", "{unknown:?}");

    eventually("the name is reported as taken", LIMIT, || async {
        let log = catalogd.log_text();
        ensure!(log.contains("a Service of this name exists and is not the catalog's"), "{log}");
        Ok(())
    })
    .await?;
    let now = services.get("foreign").await?;
    assert_eq!(now.resource_version(), foreign.resource_version(), "the foreign Service was written");

    let without = json!({"metadata": {"annotations": {GRPC_SERVICE: null}}});
    catalogs.patch("kiln", &PatchParams::default(), &Patch::Merge(&without)).await?;
    Wait::new(&services, "kiln").within(LIMIT).to_be_gone().await?;
    let still = tokio::task::block_in_place(|| calls(&address, "kiln", &lines[..1]))?;
    assert_eq!(still[0], *names, "a client can still name the catalog as its authority");
    Ok(())
}

/// The service in this process with the same catalog.
fn in_process(scratch: &Path) -> Result<Server> {
    let folder = scratch.join("catalog");
    std::fs::create_dir(&folder)?;
    std::fs::write(folder.join("catalog.json"), CATALOG)?;
    Ok(own(&folder, scratch))
}
