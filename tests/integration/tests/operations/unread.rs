//! catalogd serves new content and cannot be reached for a while: an extension continues with the cached content, and reads the new
//! content later although no watch event announces that it can be read again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use olm_kit::{Entry, Options, Package, Stack, eventually};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::world::{LIMIT, World};

/// A way to catalogd that can be shut: what runs over it is cut, and who comes is turned away.
struct Gate {
    address: SocketAddr,
    shut: watch::Sender<bool>,
    turned_away: Arc<AtomicUsize>,
}

impl Gate {
    /// Open; its destination is set later.
    async fn new(mut to: watch::Receiver<Option<String>>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (shut, is_shut) = watch::channel(false);
        let turned_away = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&turned_away);
        tokio::spawn(async move {
            let Ok(to) = to.wait_for(Option::is_some).await.map(|to| to.clone().unwrap_or_default()) else {
                return;
            };
            while let Ok((mut stream, _)) = listener.accept().await {
                let (to, mut is_shut) = (to.clone(), is_shut.clone());
                if *is_shut.borrow_and_update() {
                    counter.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                tokio::spawn(async move {
                    let mut there = TcpStream::connect(to).await?;
                    tokio::select! {
                        _ = is_shut.changed() => Ok((0, 0)),
                        ended = copy_bidirectional(&mut stream, &mut there) => ended,
                    }
                });
            }
        });
        Ok(Self { address, shut, turned_away })
    }

    fn turned_away(&self) -> usize {
        self.turned_away.load(Ordering::SeqCst)
    }
}

/// rule: operator-controller §3.6, decision 5: better, as the older content must not be used permanently
#[tokio::test(flavor = "multi_thread")]
async fn catalog_content_is_read_after_catalogd_returns() -> Result<()> {
    let (connect, to) = watch::channel(None);
    let gate = Gate::new(to).await?;
    let address = gate.address.to_string();
    let stack = Stack::start_with(&Options::default(), |program| match program.name() {
        "catalogd" => program.flag("--external-address", &address),
        _ => program,
    })
    .await?;
    let content = stack.catalogd.content_url();
    connect.send(Some(content.strip_prefix("https://").context("no https")?.to_owned()))?;
    let stack: &'static Stack = Box::leak(Box::new(stack));
    let world = World::on(stack, "unread").await?;
    let one = world.push("1.0.0", &world.bundle("1.0.0")).await?;
    let two = world.push("1.1.0", &world.bundle("1.1.0")).await?;
    let package = || Package::new(&world.name).bundle("1.0.0", &one);
    world.serve_package(&package().channel("stable", [Entry::new("1.0.0")])).await?;
    world.install_any("1.0.0").await?;

    gate.shut.send(true)?;
    let entries = [Entry::new("1.0.0"), Entry::new("1.1.0").replaces("1.0.0")];
    world.serve_package(&package().bundle("1.1.0", &two).channel("stable", entries)).await?;
    eventually("the new content is asked for in vain", LIMIT, || {
        let turned_away = gate.turned_away();
        async move {
            ensure!(turned_away >= 3, "{turned_away} calls");
            Ok(())
        }
    })
    .await?;
    // the cached content remains in use
    world.installed("1.0.0").await?;
    // asked for ever more slowly
    let before = gate.turned_away();
    tokio::time::sleep(Duration::from_secs(5)).await; // the time that is measured, not a wait for something
    let asked = gate.turned_away() - before;
    ensure!(asked <= 12, "{asked} calls in five seconds");

    gate.shut.send(false)?;
    world.installed("1.1.0").await?;
    Ok(())
}
