//! The number of connections of each address, so that one client cannot take all of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

pub(super) struct PerClient {
    limit: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection; released when dropped.
pub(super) struct ClientSlot {
    clients: Arc<PerClient>,
    address: IpAddr,
}

impl PerClient {
    /// At most `limit` connections for each address.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, open: Mutex::default() })
    }

    /// A connection of this address; `None` if it has as many as it may.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<ClientSlot> {
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.limit {
            return None;
        }
        *count += 1;
        Some(ClientSlot { clients: Arc::clone(self), address })
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut open = self.clients.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_counts_connections_by_address() {
        let clients = PerClient::new(2);
        let (one, two) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let held = [clients.take(one), clients.take(one)];
        assert!(held.iter().all(Option::is_some));
        assert!(clients.take(one).is_none());
        assert!(clients.take(two).is_some());
        drop(held);
        assert!(clients.open.lock().is_empty());
        assert!(clients.take(one).is_some());
    }
}
