//! The connections of each address, so that one client cannot take all places.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The connections of all addresses.
pub(super) struct Seats {
    most: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// One connection; released when dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    address: IpAddr,
}

impl Seats {
    /// `most` connections for each address.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    /// A connection of this address; `None` when it has as many as it may.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let mut taken = self.taken.lock();
        let count = taken.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(self), address })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        if let Some(count) = taken.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_counted_by_address_and_released() {
        let seats = Seats::new(2);
        let (one, two) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let held = [seats.take(one), seats.take(one)];
        assert!(held.iter().all(Option::is_some));
        assert!(seats.take(one).is_none());
        assert!(seats.take(two).is_some());
        drop(held);
        assert!(seats.taken.lock().is_empty());
        assert!(seats.take(one).is_some());
    }
}
