//! Ctrl-C in verbs that wait: it ends a wait, and nothing is changed after it. The second one ends the process.

use std::sync::OnceLock;

use futures::FutureExt as _;
use tokio::sync::watch;

/// 128 and the number of SIGINT, as a shell reports it.
const CODE: i32 = 130;

static RECEIVED: OnceLock<watch::Receiver<bool>> = OnceLock::new();

/// Whether Ctrl-C came after the first call of [`received`]; before, it ends the process.
pub(crate) fn is_received() -> bool {
    RECEIVED.get().is_some_and(|received| *received.borrow())
}

/// Waits for Ctrl-C, which is listened to when this returns. From the first call on one listener remembers it, so that one between
/// two waits ends the second.
pub(crate) fn received() -> impl Future<Output = ()> {
    let mut received = RECEIVED.get_or_init(listen).clone();
    async move {
        if received.wait_for(|is_received| *is_received).await.is_err() {
            // nothing listens: Ctrl-C ends the process
            std::future::pending::<()>().await;
        }
    }
}

fn listen() -> watch::Receiver<bool> {
    let (send, receiver) = watch::channel(false);
    let mut signal = Box::pin(tokio::signal::ctrl_c());
    // the first poll installs the handler
    let known = signal.as_mut().now_or_never();
    tokio::spawn(async move {
        let result = match known {
            Some(result) => result,
            None => signal.await,
        };
        if result.is_ok() {
            send.send_replace(true);
            // what does not wait for it, such as a request without an answer, does not hold up the second one
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(CODE);
            }
        }
    });
    receiver
}
