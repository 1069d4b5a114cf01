//! A check of the names that a registry redirects to: after the look-up, on the addresses that will be used.
//!
//! [`super::redirect`] rejects addresses of this machine and link in a URL. A name can hide such an address, so it is
//! checked here. As in [`super::redirect`], a registry that has such an address itself may name any other. Behind a proxy,
//! the proxy looks names up and checks them.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::redirect::inner_address;

/// Addresses of a name.
pub(super) type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;
/// The look-up of a name.
pub(super) type Lookup = fn(String) -> Found;

/// The look-up of the system.
pub(super) fn system(name: String) -> Found {
    Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
}

/// Refuses names that lead to this machine or link.
pub(super) struct Guard {
    /// The host of the registry that named them.
    pub(super) registry: String,
    /// Names that the administrator gave (proxies).
    pub(super) trusted: Vec<String>,
    pub(super) lookup: Lookup,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        let trusted = self.trusted.contains(&name);
        let (registry, lookup) = (self.registry.clone(), self.lookup);
        Box::pin(async move {
            let found = lookup(name.clone()).await?;
            let inner = |found: &[SocketAddr]| found.iter().map(SocketAddr::ip).find(|ip| inner_address(*ip));
            if let Some(address) = inner(&found).filter(|_| !trusted) {
                let near = lookup(registry.clone()).await.unwrap_or_default();
                if inner(&near).is_none() {
                    let text = format!(
                        "{name}, named by {registry}, leads to {address}, an address of this machine or link"
                    );
                    return Err(text.into());
                }
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}
