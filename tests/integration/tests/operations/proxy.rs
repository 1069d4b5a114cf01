//! The proxy of the environment is asked for catalogd, and only for what NO_PROXY does not name.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use olm_kit::{Options, Stack, eventually};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::world::{LIMIT, World};

/// rule: operator-controller §7.1 (environment), §C
#[tokio::test(flavor = "multi_thread")]
async fn proxy_of_the_environment_is_used_for_catalogd() -> Result<()> {
    let proxy = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", proxy.local_addr()?);
    let (asked, mut lines) = mpsc::unbounded_channel();
    // it notes what it is asked for and hangs up
    tokio::spawn(async move {
        while let Ok((stream, _)) = proxy.accept().await {
            let mut line = String::new();
            if BufReader::new(stream).read_line(&mut line).await.is_ok() && asked.send(line).is_err() {
                return;
            }
        }
    });
    let stack = Stack::start_with(&Options::default(), |program| match program.name() {
        "catalogd" => program.flag("--external-address", "catalogd.invalid"),
        _ => program.env("HTTPS_PROXY", &address).env("NO_PROXY", "127.0.0.1"),
    })
    .await?;
    let stack: &'static Stack = Box::leak(Box::new(stack));
    let world = World::on(stack, "proxied").await?;
    let package = olm_kit::Package::new(&world.name)
        .channel("stable", [olm_kit::Entry::new("1.0.0")])
        .bundle("1.0.0", "example.invalid/bundle:v1");
    world.serve_package(&package).await?;
    world.want(json!({})).await?;
    let line = tokio::time::timeout(LIMIT, lines.recv()).await?.context("the proxy has ended")?;
    assert_eq!(line.trim_end(), "CONNECT catalogd.invalid:443 HTTP/1.1");
    let text = world.progressing("Retrying", "error performing request: ").await?;
    assert!(text.contains("error performing request: "), "{text}");
    // nothing else went there
    let again = json!({"metadata": {"annotations": {"olm.operatorframework.io/requested-at": "once more"}}});
    world.extensions.patch(&world.name, &PatchParams::default(), &Patch::Merge(again)).await?;
    eventually("it is retried", LIMIT, || {
        let next = lines.try_recv();
        async move {
            let line = next?;
            ensure!(line.starts_with("CONNECT catalogd.invalid:443 "), "{line}");
            Ok(())
        }
    })
    .await
}
