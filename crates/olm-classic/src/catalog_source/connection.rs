//! The connection to a catalog, and what a change of its state means.
//!
//! Rule: classic-apis §2.4 and §13.

use std::time::Duration;

/// How long a state other than READY may last before the connection is made again.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// When a connection that is READY is checked.
pub const READY_TIMEOUT: Duration = Duration::from_secs(600);

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

impl ConnectionState {
    /// How long it may last.
    pub fn timeout(self) -> Duration {
        match self {
            Self::Ready => READY_TIMEOUT,
            Self::Idle | Self::Connecting | Self::TransientFailure | Self::Shutdown => CONNECT_TIMEOUT,
        }
    }
}

/// What follows from an observation of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionChange {
    /// The metric `catalogsource_ready` and the status are written.
    pub report: bool,
    /// The content that was read is not used any more, and namespaces with Subscriptions are resolved again.
    pub resolve_again: bool,
}

/// What a state means after another; `None`: there was none.
pub fn connection_change(before: Option<ConnectionState>, now: ConnectionState) -> ConnectionChange {
    let report = before != Some(now);
    ConnectionChange { report, resolve_again: report && now == ConnectionState::Ready }
}
