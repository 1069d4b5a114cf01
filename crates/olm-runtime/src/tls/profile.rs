//! TLS profiles: which versions, cipher suites and curves are offered.
//!
//! Rule: catalogd §2.4.

use rustls::crypto::{CryptoProvider, SupportedKxGroup, ring};
use rustls::{CipherSuite, NamedGroup, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

/// Why TLS settings cannot be used. The texts are those of the reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(String);

fn nothing_left(what: &str, supported: &str) -> ProfileError {
    ProfileError(format!(
        "none of the {what} can be used; choose at least one that is supported: {supported}"
    ))
}

/// What a server or client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// TLS 1.2 suites; empty is the provider's default
    suites: Vec<CipherSuite>,
    /// empty is the provider's default
    curves: Vec<NamedGroup>,
    /// TLS 1.3 only
    modern_only: bool,
}

impl TlsSettings {
    /// Reads the four flags. Names that are known but that the provider lacks are left out and logged; the custom flags count
    /// only for the custom profile.
    ///
    /// # Errors
    /// Names the first word that is unknown, or reports that nothing is left.
    pub fn parse(
        profile: &str,
        ciphers: &[String],
        curves: &[String],
        version: &str,
    ) -> Result<Self, ProfileError> {
        Ok(match profile.to_ascii_lowercase().as_str() {
            "modern" => Self { modern_only: true, ..Self::default() },
            // what "old" adds, the TLS provider does not have
            "intermediate" | "old" => Self::default(),
            "custom" => Self {
                suites: suites(ciphers)?,
                curves: custom_curves(curves)?,
                modern_only: only_tls13(version)?,
            },
            _ => return Err(ProfileError(format!("unknown TLS profile: {profile:?}"))),
        })
    }

    /// The protocol versions, newest first.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        const BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
        const NEW: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
        if self.modern_only { NEW } else { BOTH }
    }

    /// The ring provider, cut down to what the settings allow. TLS 1.3 suites are always offered.
    ///
    /// # Errors
    /// If no curve is left.
    pub fn provider(&self) -> Result<CryptoProvider, ProfileError> {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|suite| {
            is_tls13(suite) || self.suites.is_empty() || self.suites.contains(&suite.suite())
        });
        let curves: &[NamedGroup] = if self.curves.is_empty() { BUILT_IN_CURVES } else { &self.curves };
        let groups: Vec<&'static dyn SupportedKxGroup> = curves
            .iter()
            .filter_map(|name| provider.kx_groups.iter().find(|group| group.name() == *name).copied())
            .collect();
        if groups.is_empty() {
            return Err(nothing_left("curves", "X25519, secp256r1, secp384r1"));
        }
        provider.kx_groups = groups;
        Ok(provider)
    }
}

/// The curves of all named profiles, in order of preference. The provider may lack the first.
const BUILT_IN_CURVES: &[NamedGroup] =
    &[NamedGroup::X25519MLKEM768, NamedGroup::X25519, NamedGroup::secp256r1, NamedGroup::secp384r1];

fn is_tls13(suite: &SupportedCipherSuite) -> bool {
    suite.version().version == ProtocolVersion::TLSv1_3
}

fn only_tls13(version: &str) -> Result<bool, ProfileError> {
    match version {
        "TLSv1.3" => Ok(true),
        "TLSv1.2" => Ok(false),
        "TLSv1.0" | "TLSv1.1" => {
            tracing::warn!(version, "TLS versions below 1.2 are not served; the least version is 1.2");
            Ok(false)
        }
        _ => Err(ProfileError(format!("unknown TLS version: {version:?}"))),
    }
}

fn suites(names: &[String]) -> Result<Vec<CipherSuite>, ProfileError> {
    let mut found = Vec::new();
    let mut only_named_tls13 = false;
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        match suite(name) {
            Some(Some(suite)) => found.push(suite),
            Some(None) if name.starts_with("TLS_AES_") || name.starts_with("TLS_CHACHA20_") => {
                only_named_tls13 = true
            }
            Some(None) => tracing::warn!(cipher = name, "cipher suite is not supported and left out"),
            None => return Err(ProfileError(format!("unknown cipher {name:?}"))),
        }
    }
    let given = names.iter().any(|name| !name.trim().is_empty());
    if given && found.is_empty() && !only_named_tls13 {
        let supported: Vec<&str> = TLS12_SUITES.iter().map(|(name, _)| *name).collect();
        return Err(nothing_left("ciphers", &supported.join(", ")));
    }
    Ok(found)
}

const TLS12_SUITES: &[(&str, CipherSuite)] = &[
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// Names that Go knows and that are either always on (TLS 1.3) or not in the provider.
const KNOWN_ELSEWHERE: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// `None`: unknown; `Some(None)`: known, but not one of ours for TLS 1.2.
#[expect(clippy::option_option, reason = "unknown, known and usable are three different things")]
fn suite(name: &str) -> Option<Option<CipherSuite>> {
    // Go has the ChaCha20 suites also under names without the hash
    let full = match name {
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        other => other,
    };
    if let Some((_, suite)) = TLS12_SUITES.iter().find(|(known, _)| *known == full) {
        return Some(Some(*suite));
    }
    KNOWN_ELSEWHERE.contains(&name).then_some(None)
}

fn custom_curves(names: &[String]) -> Result<Vec<NamedGroup>, ProfileError> {
    let available: Vec<NamedGroup> =
        ring::default_provider().kx_groups.iter().map(|group| group.name()).collect();
    let mut found = Vec::new();
    let mut given = false;
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        given = true;
        let group = match name {
            "X25519MLKEM768" => NamedGroup::X25519MLKEM768,
            "X25519" => NamedGroup::X25519,
            "prime256v1" | "secp256r1" => NamedGroup::secp256r1,
            "secp384r1" => NamedGroup::secp384r1,
            "secp521r1" => NamedGroup::secp521r1,
            "SecP256r1MLKEM768" => NamedGroup::secp256r1MLKEM768,
            "SecP384r1MLKEM1024" => NamedGroup::Unknown(0x11ed),
            _ => return Err(ProfileError(format!("unknown curve {name:?}"))),
        };
        if available.contains(&group) {
            found.push(group);
        } else {
            tracing::warn!(curve = name, "curve is not supported and left out");
        }
    }
    if given && found.is_empty() {
        return Err(nothing_left("curves", "X25519, secp256r1, secp384r1"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).collect()
    }

    fn describe(profile: &str, ciphers: &str, curves: &str, version: &str) -> String {
        match TlsSettings::parse(profile, &list(ciphers), &list(curves), version) {
            Ok(settings) => {
                let provider = settings.provider().unwrap();
                let suites = provider.cipher_suites.iter().filter(|suite| !is_tls13(suite)).count();
                let groups: Vec<_> =
                    provider.kx_groups.iter().map(|group| format!("{:?}", group.name())).collect();
                format!("{} versions, {suites} old suites, {}", settings.versions().len(), groups.join(" "))
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn tls_profiles() {
        let all = "X25519 secp256r1 secp384r1";
        for (profile, want) in [
            ("modern", format!("1 versions, 6 old suites, {all}")),
            ("Intermediate", format!("2 versions, 6 old suites, {all}")),
            ("OLD", format!("2 versions, 6 old suites, {all}")),
            ("custom", format!("2 versions, 6 old suites, {all}")),
            ("newest", "unknown TLS profile: \"newest\"".to_owned()),
        ] {
            assert_eq!(describe(profile, "", "", "TLSv1.2"), want, "{profile}");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn tls_custom_flags() {
        for (ciphers, curves, version, want) in [
            ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "secp384r1,X25519", "TLSv1.2", "2 versions, 1 old suites, secp384r1 X25519"),
            ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", "prime256v1", "TLSv1.3", "1 versions, 1 old suites, secp256r1"),
            ("TLS_AES_128_GCM_SHA256", "X25519MLKEM768,X25519", "TLSv1.0", "2 versions, 6 old suites, X25519"),
            ("RC4", "", "TLSv1.2", "unknown cipher \"RC4\""),
            ("", "P-256", "TLSv1.2", "unknown curve \"P-256\""),
            ("", "", "1.2", "unknown TLS version: \"1.2\""),
            ("", "secp521r1", "TLSv1.2",
                "none of the curves can be used; choose at least one that is supported: X25519, secp256r1, secp384r1"),
        ] {
            assert_eq!(describe("custom", ciphers, curves, version), want, "{ciphers} {curves} {version}");
        }
        let nothing = describe("custom", "TLS_RSA_WITH_RC4_128_SHA", "", "TLSv1.2");
        assert!(nothing.starts_with("none of the ciphers can be used; choose"), "{nothing}");
    }

    #[test]
    fn tls_custom_flags_count_for_the_custom_profile_only() {
        assert_eq!(
            describe("modern", "RC4", "x", "y"),
            "1 versions, 6 old suites, X25519 secp256r1 secp384r1"
        );
    }
}
