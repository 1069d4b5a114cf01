//! The connection to a catalog.
//!
//! Rule: classic-apis §2.4 and §13.

use std::time::Duration;

/// How long a connection that is being made is waited for.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the content that was read from a registry by address is used for resolution; then it is read again. A registry reports no change.
pub const SNAPSHOT_LIFETIME: Duration = Duration::from_secs(900);

olm_core::words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ConnectionState {
        Idle = "IDLE",
        Connecting = "CONNECTING",
        Ready = "READY",
        TransientFailure = "TRANSIENT_FAILURE",
        Shutdown = "SHUTDOWN",
    }
}
