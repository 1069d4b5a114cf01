//! Gives served catalogs their compressed copies, after they are served or asked for: one at a time, for as long as the process runs.

use std::time::Duration;

use olm_runtime::Shutdown;

use crate::store::Store;

/// How long to wait after a copy could not be written (a full disk, mostly).
const RETRY_PAUSE: Duration = Duration::from_secs(300);

/// Runs until `stop`.
pub(crate) async fn run(store: Store, stop: Shutdown) {
    while !stop.is_cancelled() {
        let pause = if compress_missing(&store, &stop).await { None } else { Some(RETRY_PAUSE) };
        tokio::select! {
            () = stop.cancelled() => {}
            () = store.wait_for_uncompressed() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

/// Compresses the served catalogs that lack copies; returns whether all of them have some now.
async fn compress_missing(store: &Store, stop: &Shutdown) -> bool {
    let mut well = true;
    for content in store.uncompressed() {
        let (store, stopped) = (store.clone(), stop.clone());
        let digest = content.digest().clone();
        let done = tokio::task::spawn_blocking(move || store.compress(&content, &|| stopped.is_cancelled()));
        match done.await {
            Ok(Ok(())) => tracing::debug!(%digest, "compressed copies are served"),
            Ok(Err(_)) if stop.is_cancelled() => return false,
            Ok(Err(error)) => {
                tracing::warn!(%digest, %error, "cannot write compressed copies; the catalog is served without");
                well = false;
            }
            Err(error) => {
                tracing::error!(%digest, %error, "compressing ended badly");
                well = false;
            }
        }
    }
    well
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::store::{COMPRESS_BEFORE_SERVING, Served};

    #[tokio::test]
    async fn compress_makes_copies_after_publishing_and_after_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let stop = Shutdown::new();
        let running = tokio::spawn(run(store.clone(), stop.clone()));
        let line = format!("{{\"name\":\"{}\",\"schema\":\"s\"}}\n", "x".repeat(1000));
        let lines = line.repeat(usize::try_from(COMPRESS_BEFORE_SERVING).unwrap() / 1000 + 1);
        let digest = format!("sha256:{}", "a".repeat(64)).parse().unwrap();
        let staging = store.stage(store.lease(&digest)).unwrap();
        let mut ingest = olm_fbc::Ingest::new(staging.spool().unwrap(), olm_fbc::IngestLimits::default());
        ingest.file("catalog.json", &mut lines.as_bytes()).unwrap();
        let (content, _lease) = staging.commit(ingest.finish().unwrap()).unwrap();
        assert!(content.lacks_copies(), "a large catalog is there before its copies");
        let served = Served {
            content: Arc::clone(&content),
            reference: String::new(),
            source: None,
            last_unpacked: 1,
        };
        store.publish("cat", served).unwrap();
        let limit = tokio::time::Instant::now() + Duration::from_secs(60);
        while content.lacks_copies() {
            assert!(tokio::time::Instant::now() < limit, "no copies");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        content.verify().unwrap();
        stop.cancel();
        running.await.unwrap();
    }
}
