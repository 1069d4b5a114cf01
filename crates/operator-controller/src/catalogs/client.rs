//! The HTTP client for catalogd: reused while the CAs that it trusts stay the same.
//!
//! The trusted CAs are checked before each fetch, so that changed ones count immediately; only reading and parsing all of them, and
//! a new connection for each package of many, are saved.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use olm_catalog::catalogd::timeouts;
use olm_certificates::PublishedCa;
use olm_runtime::error_text::chain;
use olm_runtime::tls::{CaPool, TlsSettings};
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

use super::source::ClientFactory;

/// How long a connection is kept for the next fetch: long enough for many packages, too short to outlive a replica for long.
const IDLE: Duration = Duration::from_secs(5);

struct Trust {
    published: Option<Vec<CertificateDer<'static>>>,
    pool: Arc<CaPool>,
}

/// Makes clients that speak https only, and trust the CA that catalogd has published and those in the folder `cas`. Those of the system
/// are trusted only if neither is configured.
#[must_use]
pub(crate) fn factory(
    cas: Option<PathBuf>,
    published: Option<Arc<PublishedCa>>,
    settings: TlsSettings,
) -> ClientFactory {
    let kept: Mutex<Option<(Trust, reqwest::Client)>> = Mutex::default();
    Box::new(move || {
        let mut kept = kept.lock();
        let made = current(kept.take(), cas.as_ref(), published.as_deref(), &settings);
        let (trust, client) = made.map_err(|error| chain(&*error))?;
        let given = client.clone();
        *kept = Some((trust, client));
        Ok(given)
    })
}

type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// The client that was kept, if what it trusts is what is to be trusted now; else a new one.
fn current(
    kept: Option<(Trust, reqwest::Client)>,
    cas: Option<&PathBuf>,
    published: Option<&PublishedCa>,
    settings: &TlsSettings,
) -> Result<(Trust, reqwest::Client), BuildError> {
    let published = published.map(PublishedCa::certificates).transpose()?;
    if let Some((trust, client)) = kept
        && trust.published == published
        && !trust.pool.reload_if_changed()?
    {
        return Ok((trust, client));
    }
    let cas = cas.map(PathBuf::as_path);
    let pool = match (published.clone(), cas) {
        (None, None) => CaPool::load(None)?,
        (found, cas) => CaPool::given(found.unwrap_or_default(), cas)?,
    };
    let builder = reqwest::Client::builder()
        .https_only(true)
        .tls_backend_preconfigured(pool.client_config(settings)?)
        .pool_idle_timeout(IDLE);
    Ok((Trust { published, pool }, timeouts(builder).build()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(
        kept: Option<(Trust, reqwest::Client)>,
        cas: &PathBuf,
    ) -> Result<(Trust, reqwest::Client), BuildError> {
        current(kept, Some(cas), None, &TlsSettings::default())
    }

    #[test]
    fn client_client_is_kept_until_what_it_trusts_changes() {
        olm_runtime::tls::install_provider();
        let dir = tempfile::tempdir().unwrap();
        let cas = dir.path().to_owned();
        let issue = |name: &str| {
            let key = rcgen::KeyPair::generate().unwrap();
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            std::fs::write(cas.join("ca.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
        };
        issue("one");
        let first = made(None, &cas).unwrap();
        assert_eq!(first.0.pool.certificates().len(), 1, "nothing of the system's");
        let pool = Arc::clone(&first.0.pool);
        let second = made(Some(first), &cas).unwrap();
        assert!(Arc::ptr_eq(&second.0.pool, &pool), "nothing has changed");
        issue("another-name");
        let third = made(Some(second), &cas).unwrap();
        assert!(!Arc::ptr_eq(&third.0.pool, &pool), "another CA");
        std::fs::remove_file(cas.join("ca.crt")).unwrap();
        assert!(made(Some(third), &cas).is_err(), "no CA is left, and the old one does not stand in");
    }
}
