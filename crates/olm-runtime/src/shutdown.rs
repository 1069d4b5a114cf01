//! Signals of a process: SIGTERM or SIGINT asks it to stop, a second one ends it without waiting; SIGUSR1 requests a report.

use tokio_util::sync::CancellationToken;

#[cfg(unix)]
use crate::report;

/// Cancelled when the process should stop. Clones and children are cancelled with it; a component waits on `cancelled()`.
pub type Shutdown = CancellationToken;

/// A token that the first SIGTERM or SIGINT cancels. The second signal exits with code 1 without waiting. From then on SIGUSR1
/// logs the state of every object that is reconciled.
///
/// # Errors
/// If the process may not install signal handlers.
#[cfg(unix)]
pub fn on_signal() -> std::io::Result<Shutdown> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut reports = signal(SignalKind::user_defined1())?;
    tokio::spawn(async move {
        while reports.recv().await.is_some() {
            report::request();
        }
    });
    let token = Shutdown::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping; a second signal ends immediately");
        stop.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("second signal, ending immediately");
        std::process::exit(1);
    });
    Ok(token)
}
