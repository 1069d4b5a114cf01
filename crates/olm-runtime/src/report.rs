//! A report of all objects in the log, requested by SIGUSR1: when each was reconciled last and next, what is cached of it and what it
//! waits for.

use std::sync::LazyLock;

use tokio::sync::watch;

/// A signal is one of the whole process; so are its requests.
static REQUESTS: LazyLock<watch::Sender<()>> = LazyLock::new(watch::Sender::default);

/// Requests a report of every controller.
pub(crate) fn request() {
    REQUESTS.send_replace(());
}

/// Changes with each request.
pub(crate) fn requests() -> watch::Receiver<()> {
    REQUESTS.subscribe()
}

/// Logs objects of a controller: name, state, and what the controller knows of each.
pub(crate) fn log(controller: &str, objects: impl Iterator<Item = (String, String, String)>) {
    let mut count = 0_usize;
    for (name, state, described) in objects {
        tracing::info!(controller, name, state, described, "state of object");
        count += 1;
    }
    tracing::info!(controller, count, "state of all objects was reported");
}
