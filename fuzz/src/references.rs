//! Image references, and what decides where an image comes from: registries.conf, credentials, challenges, redirects.

use olm_core::{Digest, ImageRef};
use olm_oci::{Credential, Keyring, fuzz};
use url::{Host, Url};

use crate::texts;

/// Reference, registries.conf, auth.json, header or location. What is printed is read again as the same; a mirror keeps tag and
/// digest; a blocked or redirected request never leaves https for http nor the network for this machine.
pub(crate) fn references(input: &[u8]) {
    let [reference, conf, auth, header] = texts::<4>(input);
    if let Ok(digest) = reference.parse::<Digest>() {
        assert_eq!(digest.to_string(), reference);
        assert_eq!(
            digest.hex().len() * 4,
            digest.algorithm().as_str().trim_start_matches("sha").parse().unwrap_or(0)
        );
    }
    let mut keyring = Keyring::new();
    let known = keyring.add_config_json(auth.as_bytes()).is_ok();
    let _ = Keyring::of_pull_secrets([("", ".dockercfg", auth.as_bytes())]);
    match reference.parse::<ImageRef>() {
        Ok(image) => {
            assert_eq!(image.to_string(), reference, "a canonical reference has one spelling");
            assert!(image.tag().is_none() || image.digest().is_none());
            assert_eq!(format!("{}/{}", image.registry(), image.repository()), image.name());
            assert!(image.name().len() <= 255);
            for (place, _) in fuzz::locations(&conf, &image).unwrap_or_default() {
                assert_eq!((place.tag(), place.digest()), (image.tag(), image.digest()));
                assert_eq!(place.to_string().parse::<ImageRef>().as_ref(), Ok(&place));
            }
            if known && let Some(found) = keyring.lookup(image.registry(), image.repository()) {
                // never shown
                let shown = format!("{found:?}");
                if let Credential::Basic { password, .. } = found
                    && password.len() > 12
                {
                    assert!(!shown.contains(password.as_str()), "a password in a debug text");
                }
            }
        }
        Err(error) => {
            if let Some(hint) = error.hint(&reference) {
                assert!(!hint.is_empty());
            }
        }
    }
    let _ = fuzz::challenge(&header);
    for from in ["https://registry.example.com/v2/a/blobs/x", "https://127.0.0.1:5000/v2/"] {
        let Ok(from) = Url::parse(from) else { continue };
        if let Ok(to) = fuzz::redirect(&from, &header) {
            assert_eq!(to.scheme(), "https");
            assert!(to.username().is_empty() && to.password().is_none());
            assert!(!is_own(&to) || is_own(&from), "{to} is this machine");
        }
    }
}

/// This machine or its link, if the address is written plainly.
fn is_own(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(v4)) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        Some(Host::Ipv6(v6)) => match v6.to_ipv4() {
            Some(v4) => v4.is_loopback() || v4.is_link_local() || v6.is_loopback() || v6.is_unspecified(),
            None => v6.is_unicast_link_local(),
        },
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
