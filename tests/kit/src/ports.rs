//! Free loopback ports for programs that need a number.

use std::collections::HashSet;
use std::net::TcpListener;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rand::Rng;

static GIVEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

/// A port without a listener. It is below the range from which the kernel takes ports for outgoing connections,
/// chosen at random (so that parallel runs rarely meet), and not handed out twice by this process. Another program can
/// still take it before it is used; a caller that starts a server retries with a new one.
pub fn free_port() -> Result<u16> {
    let mut given = GIVEN.lock();
    let given = given.get_or_insert_default();
    (0..1000)
        .map(|_| rand::rng().random_range(10_000..32_000))
        .find(|&port| !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok())
        .inspect(|&port| {
            given.insert(port);
        })
        .context("no free loopback port between 10000 and 32000")
}

/// A name that no other test of this run uses: `<prefix>-<random>`, a valid DNS label when `prefix` is one.
pub fn unique(prefix: &str) -> String {
    let letters: String = (0..8).map(|_| char::from(b'a' + rand::rng().random_range(0..26_u8))).collect();
    format!("{prefix}-{letters}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_and_names_do_not_repeat() {
        let ports: HashSet<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        let names: HashSet<String> = (0..1000).map(|_| unique("t")).collect();
        assert_eq!(names.len(), 1000);
    }
}
