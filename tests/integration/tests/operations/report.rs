//! The report that SIGUSR1 requests: passes, cached versions, and what an object waits for.

use anyhow::{Context as _, Result, ensure};
use olm_api::condition;
use olm_integration::extension::current;
use olm_integration::package::Package;
use olm_integration::report::{Reported, live_versions, request};
use olm_kit::{Entry, Package as Content, Stack};
use serde_json::json;

use crate::world::LIMIT;

#[tokio::test(flavor = "multi_thread")]
async fn report_shows_what_is_cached_and_waited_for() -> Result<()> {
    let mut stack = Stack::start().await?;
    let _logs = stack.logs_on_failure();
    let client = stack.cluster.client().await?;
    let package = Package::new(client.clone(), "report", Some(stack.operator_controller.log()));
    package.make_namespace(&stack.cluster).await?;
    let name = package.name.as_str();
    // an object of another owner is in the way
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{name}-config"), "namespace": name}});
    stack.cluster.apply(&foreign.to_string()).await?;
    let bundle = package.push(&stack.registry, "1.0.0", &package.bundle("1.0.0")).await?;
    let content = Content::new(name).bundle("1.0.0", &bundle).channel("stable", [Entry::new("1.0.0")]);
    package.serve_packages(&stack.registry, &[content]).await?;
    package.want_with(json!({}), json!({})).await?;
    package
        .until("the collision is reported", |extension| {
            current(extension, condition::PROGRESSING)
                .is_some_and(|found| found.message.contains("collision"))
        })
        .await?;

    let Stack { catalogd, operator_controller, .. } = &mut stack;
    let mut programs = [(catalogd, 1), (operator_controller, 3)];
    let (revision, config) = (format!("{name}-1"), format!("ConfigMap {name}/{name}-config"));
    let limit = tokio::time::Instant::now() + LIMIT;
    // a version may change between the report and the list
    loop {
        let reported = request(&mut programs).await?;
        match check(&reported, &live_versions(&client).await?, name, &revision, &config) {
            Ok(()) => return Ok(()),
            Err(error) if tokio::time::Instant::now() > limit => return Err(error),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(200)).await,
        }
    }
}

fn check(
    reported: &[Reported],
    live: &std::collections::BTreeMap<String, String>,
    name: &str,
    revision: &str,
    config: &str,
) -> Result<()> {
    for (controller, kind, object) in [
        ("catalogd-clustercatalog-controller", "ClusterCatalog", name),
        ("controller-operator-cluster-extension-controller", "ClusterExtension", name),
        ("clusterobjectset", "ClusterObjectSet", revision),
    ] {
        let found =
            reported.iter().find(|reported| reported.controller == controller && reported.name == object);
        let found = found.with_context(|| format!("no {object} in {reported:#?}"))?;
        let version = live.get(&format!("{kind} /{object}")).context("no such object")?;
        ensure!(found.described.starts_with(&format!("cached at {version}")), "{found:?}, live at {version}");
        ensure!(
            found.state.starts_with("last pass: ") && !found.state.contains("last pass: none"),
            "{found:?}"
        );
        if kind == "ClusterObjectSet" {
            let (_, waits) = found.described.split_once("waits for: ").context("no waits")?;
            ensure!(waits.split(", ").any(|object| object == config), "{found:?}");
            let cached = found.cached();
            ensure!(cached.get(config) == Some(&""), "a foreign object is not in the cache: {found:?}");
            let held = cached.iter().filter(|(_, version)| !version.is_empty());
            let held: Vec<_> = held.map(|(key, version)| (*key, *version)).collect();
            let current = |(key, version): &(&str, &str)| live.get(*key).is_some_and(|live| live == version);
            ensure!(!held.is_empty() && held.iter().all(current), "{held:?}, live: {live:#?}");
        }
    }
    Ok(())
}
