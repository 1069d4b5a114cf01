//! No secret in a log, an event or a status: everything secret that the processes handle is marked, they log all they can, and the
//! marks are looked for. Pulls fail with a wrong password first, because errors are where secrets leak.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::events::v1::Event as NewEvent;
use kube::Api;
use kube::api::ListParams;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_kit::registry::{PASSWORD, USER};
use olm_kit::{
    BundleImage, Ca, CatalogImage, Cluster, Entry, Package, Process, Program, Registry, SYSTEM_NAMESPACE,
    Wait, eventually,
};
use serde_json::{Value, json};

use crate::world::LIMIT;

const WRONG: &str = "Mark-of-a-wrong-password";
const SCRAPER: &str = "Mark-of-a-scraper-token";
const PULL_SECRET: &str = "marked-pull-secret";

/// What must not be seen, and what it is.
#[derive(Default)]
struct Marks(Vec<(String, String)>);

impl Marks {
    fn add(&mut self, what: &str, secret: &str) {
        self.0.push((what.to_owned(), secret.to_owned()));
        self.0.push((format!("{what}, base64"), base64(secret)));
    }

    /// Keys are long and have lines; each line counts.
    fn add_pem(&mut self, what: &str, pem: &str) {
        for line in pem.lines().filter(|line| !line.contains("-----") && line.len() > 20) {
            self.0.push((what.to_owned(), line.to_owned()));
        }
    }

    fn search(&self, place: &str, text: &str) -> Result<()> {
        for (what, mark) in &self.0 {
            if let Some(at) = text.find(mark) {
                let line = text[..at].rsplit('\n').next().unwrap_or_default();
                let line = format!("{line}<{what}>");
                anyhow::bail!("{what} is in {place}: {line}");
            }
        }
        Ok(())
    }
}

fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    serde_json::to_value(bytes).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn pull_secret(registry: &Registry, password: &str) -> Value {
    let host = registry.address();
    let login = json!({"auths": {host: {"username": USER, "password": password, "auth": base64(&format!("{USER}:{password}"))}}});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": PULL_SECRET, "namespace": SYSTEM_NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": login.to_string()}})
}

/// An account with a token, for the process to be.
async fn account(cluster: &Cluster, name: &str) -> Result<(std::path::PathBuf, String)> {
    let kubeconfig = cluster.kubeconfig_that_may_all(name).await?;
    let text = std::fs::read_to_string(&kubeconfig)?;
    let token = text.split("token").nth(1).context("a token in the kubeconfig")?;
    let token = token
        .split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
        .find(|word| word.len() > 100);
    Ok((kubeconfig, token.context("a token")?.to_owned()))
}

async fn whole<K>(api: Api<K>) -> Result<String>
where
    K: Clone + std::fmt::Debug + k8s_openapi::serde::Serialize + k8s_openapi::serde::de::DeserializeOwned,
{
    Ok(serde_json::to_string(&api.list(&ListParams::default()).await?.items)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_log_event_or_object() -> Result<()> {
    let (cluster, registry) = tokio::try_join!(Cluster::start(), Registry::start_with_auth())?;
    cluster.install_olm().await?;
    let client = cluster.client().await?;
    let mut marks = Marks::default();
    for (what, secret) in
        [("a wrong password", WRONG), ("the registry's password", PASSWORD), ("a scraper's token", SCRAPER)]
    {
        marks.add(what, secret);
    }
    for password in [WRONG, PASSWORD] {
        marks.add("a login", &format!("{USER}:{password}"));
    }
    cluster.apply(&pull_secret(&registry, WRONG).to_string()).await?;

    let mut processes: Vec<Process> = Vec::new();
    for (name, format) in [("catalogd", "json"), ("operator-controller", "text")] {
        let (kubeconfig, token) = account(&cluster, name).await?;
        marks.add("the token of the process", &token);
        let program = match name {
            "catalogd" => Program::catalogd(&cluster)?,
            _ => Program::operator_controller(&cluster)?
                .without("--catalogd-cas-dir")
                .flag("--catalogd-ca-config-map", "catalogd"),
        };
        let program = program
            .kubeconfig(&kubeconfig)
            .without("--tls-cert")
            .without("--tls-key")
            .flag("--tls-self-issued", name)
            .flag("--tls-self-issued-names", "127.0.0.1")
            .flag("--global-pull-secret", &format!("{SYSTEM_NAMESPACE}/{PULL_SECRET}"))
            .flag("--leader-elect", "true")
            .flag("--log-format", format)
            .flag("--v", "10");
        processes.push(program.start().await?);
    }

    // a catalog that cannot be pulled, then can
    let name = olm_kit::unique("marked");
    let bundle = BundleImage::new(&name, "1.0.0").crds([]);
    let bundle = registry.push(&format!("{name}/bundle"), "v1", &bundle.image()).await?;
    let package =
        Package::new(&name).bundle("1.0.0", &bundle.by_digest()).channel("stable", [Entry::new("1.0.0")]);
    let image = CatalogImage::new().package(&package).image();
    let pushed = registry.push(&format!("{name}/catalog"), "latest", &image).await?;
    cluster
        .apply(
            &json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": pushed.by_digest()}}}})
            .to_string(),
        )
        .await?;
    let catalogs: Api<ClusterCatalog> = Api::all(client.clone());
    Wait::new(&catalogs, &name).within(LIMIT).for_reason("Progressing", "True", "Retrying").await?;
    cluster.apply(&pull_secret(&registry, PASSWORD).to_string()).await?;
    Wait::new(&catalogs, &name).within(LIMIT).for_condition("Serving", "True").await?;

    // an extension that is installed by the same credentials
    cluster
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string())
        .await?;
    cluster
        .apply(
            &json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": name, "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}}})
            .to_string(),
        )
        .await?;
    let extensions: Api<ClusterExtension> = Api::all(client.clone());
    let wait = Wait::new(&extensions, &name).within(LIMIT).log(processes[1].log());
    wait.for_condition("Installed", "True").await?;

    // a client without a right requests metrics; and again with the wrong password, for operator-controller's pull
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    for process in &processes {
        let ca = maps.get(process.name()).await?.data.context("no data")?["ca.crt"].clone();
        let trusting = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(ca.as_bytes())?])
            .no_proxy()
            .build()?;
        let answer =
            trusting.get(format!("{}/metrics", process.metrics_url())).bearer_auth(SCRAPER).send().await?;
        assert_eq!(answer.status(), 401);
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM_NAMESPACE);
    for name in ["catalogd", "operator-controller"] {
        let data = secrets.get(name).await?.data.context("no data")?;
        marks.add_pem("the serving key", &String::from_utf8(data["tls.key"].0.clone())?);
    }
    marks.add_pem(
        "the key of the test's authority",
        &std::fs::read_to_string(Ca::shared()?.server("marked", &[])?.key)?,
    );

    // the processes logged everything they can
    eventually("logs have been written", LIMIT, || async {
        for process in &processes {
            let is_verbose = process.log_text().contains("TRACE");
            ensure!(is_verbose, "{} does not log at its most verbose", process.name());
        }
        Ok(())
    })
    .await?;
    for process in &processes {
        let log = process.log_text();
        eprintln!("{}: {} lines of log", process.name(), log.lines().count());
        marks.search(&format!("the log of {}", process.name()), &log)?;
    }
    marks.search("events", &whole::<NewEvent>(Api::all(client.clone())).await?)?;
    marks.search("events of the old API", &whole::<Event>(Api::all(client.clone())).await?)?;
    marks.search("extensions", &whole(extensions).await?)?;
    marks.search("catalogs", &whole(catalogs).await?)?;
    marks.search("revisions", &whole::<ClusterObjectSet>(Api::all(client.clone())).await?)?;
    marks.search("ConfigMaps", &whole::<ConfigMap>(Api::all(client.clone())).await?)?;

    // the marks are found where they are: a search that cannot find proves nothing
    let own = secrets.get("catalogd").await?.data.context("no data")?;
    assert!(marks.search("the Secret", &String::from_utf8(own["tls.key"].0.clone())?).is_err());
    assert!(marks.search("text", &format!("x {WRONG} y")).is_err());
    Ok(())
}
