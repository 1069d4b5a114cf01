//! A check of the addresses that names lead to, in the look-up for a connection: the addresses that it accepts are those that the
//! connection is made to.
//!
//! [`super::redirect`] checks addresses in URLs; names can hide such addresses. Behind a proxy, the proxy looks names up and
//! checks them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::cause::lookup_error;
use super::redirect::Distance;

/// Addresses of a name.
pub(super) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// The network as this process finds it; tests put another one in its place.
#[derive(Clone, Copy)]
pub(super) struct Network {
    pub(super) lookup: fn(String) -> Found,
    pub(super) distance: fn(IpAddr) -> Distance,
}

impl Network {
    /// The look-up of the system.
    pub(super) fn system() -> Self {
        let lookup = |name| -> Found {
            Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
        };
        Self { lookup, distance: super::redirect::distance }
    }
}

/// Refuses names that lead nearer than they may.
pub(super) struct Guard {
    /// The registry that named them; `None`: they are registries.
    pub(super) named_by: Option<String>,
    /// How near they may lead.
    pub(super) nearest: Distance,
    /// Names that the administrator gave (proxies).
    pub(super) trusted: Vec<String>,
    pub(super) network: Network,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let nearest = if self.trusted.contains(&name) { Distance::Link } else { self.nearest };
        let (network, named_by) = (self.network, self.named_by.clone());
        Box::pin(async move {
            let found = (network.lookup)(name.clone()).await.map_err(|error| lookup_error(&name, &error))?;
            let refused = found.iter().map(SocketAddr::ip).find(|ip| (network.distance)(*ip) < nearest);
            match (refused, named_by) {
                (None, _) => Ok(Box::new(found.into_iter()) as Addrs),
                (Some(address), None) => Err(on_the_link(&format!("{name} leads to {address}")).into()),
                (Some(address), Some(registry)) => {
                    let text = format!("{name}, named by {registry}, leads to {address}");
                    Err(format!("{text}, an address of this machine or link").into())
                }
            }
        })
    }
}

/// The error for a registry that only the administrator may name.
pub(super) fn on_the_link(what: &str) -> String {
    format!(
        "{what}, an address of this machine's link or a metadata service; only a location in registries.conf may be there"
    )
}
