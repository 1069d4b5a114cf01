//! Work of the processor that takes longer than a moment.

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinError;

/// Does the work on a thread of its own, so that other passes continue. A runtime of one thread does it in place: then the order of
/// everything does not depend on another thread, as a simulation requires.
///
/// # Errors
/// When the work panics, or the process ends before it is done.
pub(crate) async fn compute<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => Ok(work()),
        _ => tokio::task::spawn_blocking(work).await,
    }
}
