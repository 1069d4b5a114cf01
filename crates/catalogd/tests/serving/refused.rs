//! Images with broken or hostile content: they are downloaded once.

use anyhow::{Result, ensure};
use catalogd::controller::fetch::History;
use olm_fbc::IngestLimits;
use olm_oci::Limits;

use crate::kill::support::{self, Client, Pushed, Registry};
use crate::kill::{LABEL, count, fetch};

/// rule: catalogd §12 row 6
#[tokio::test(flavor = "multi_thread")]
async fn refused_image_is_downloaded_again_on_request_only() -> Result<()> {
    let registry = Registry::start().await;
    let client = Client::new(&[&registry]);
    let files = support::layer(&[("configs/a.json", "{}"), ("configs/b.json", "{}")]);
    for (layer, limits, want) in [
        (b"no tar archive, only text\n".repeat(50), Limits::default(), "invalid tar header"),
        (files, Limits { entries: 1, ..Limits::default() }, "exceeds the limit of 1 entries"),
    ] {
        registry.push("cat", Some("1"), &Pushed::new([layer]).label(LABEL, "/configs"));
        let reference = registry.reference("cat:1").to_string();
        let root = tempfile::tempdir()?;
        let fetch =
            fetch(root.path(), &client.path("registries.conf"))?.with_limits(limits, IngestLimits::default());
        let mut first = None;
        for (history, downloads) in
            [(History::Counts(None), true), (History::Counts(None), false), (History::Ignored, true)]
        {
            registry.take_log();
            let error = fetch.by_reference(&reference, None, history).await.map(drop).unwrap_err();
            ensure!(error.message.contains(want), "want {want:?} in {:?}", error.message);
            assert_eq!(*first.get_or_insert_with(|| error.clone()), error);
            let asked = registry.take_log();
            let layers = asked.iter().filter(|asked| asked.contains("/blobs/")).count();
            ensure!((layers > 0) == downloads, "{history:?}: {asked:?}");
        }
        ensure!(count(root.path(), "attempts") == 0, "a record is left");
    }
    Ok(())
}
