//! Causes of failed connections, in the words that users know from Go's clients.

use std::error::Error;
use std::io;

use olm_core::message::plain;
use rustls::{CertificateError, InvalidMessage};

/// Most names of a certificate in a message, and the most characters of each.
const MAX_NAMES: usize = 5;
const MAX_NAME: usize = 100;

/// The cause in one line, without the layers of the HTTP library.
pub(crate) fn connection_error(error: reqwest::Error) -> String {
    describe(&error.without_url())
}

/// The error for a name without an address.
pub(super) fn lookup_error(name: &str, error: &io::Error) -> String {
    // they have no type of their own: what glibc, musl and macOS write for EAI_NONAME and EAI_NODATA
    const UNKNOWN: [&str; 5] = [
        "Name or service not known",
        "No address associated with hostname",
        "Name does not resolve",
        "Name has no usable address",
        "nodename nor servname provided",
    ];
    let text = error.to_string();
    let text = text.strip_prefix("failed to lookup address information: ").unwrap_or(&text);
    match UNKNOWN.iter().any(|unknown| text.starts_with(unknown)) {
        true => format!("lookup {name}: no such host"),
        false => format!("lookup {name}: {}", plain(text)),
    }
}

fn describe(error: &(dyn Error + 'static)) -> String {
    let (mut innermost, mut is_proxy) = (error, false);
    loop {
        if let Some(error) = innermost.downcast_ref() {
            return tls_text(error);
        }
        is_proxy |= innermost.to_string().starts_with("tunnel error");
        match source(innermost) {
            Some(cause) => innermost = cause,
            None => break,
        }
    }
    let text = innermost.to_string();
    match is_proxy {
        true => format!("proxy: {}", plain(text.strip_prefix("tunnel error: ").unwrap_or(&text))),
        false => plain(&text),
    }
}

/// The next cause. The `source` of an [`io::Error`] skips the error inside.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn tls_text(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "server gave HTTP response to HTTPS client; to allow plain HTTP, set insecure = true for it in registries.conf"
                .to_owned()
        }
        rustls::Error::InvalidCertificate(error) => certificate_text(error),
        other => other.to_string(),
    }
}

fn certificate_text(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "certificate signed by unknown authority".to_owned(),
        // a trusted CA has the name of the issuer and another key
        CertificateError::BadSignature => {
            "certificate signed by unknown authority: the trusted CA of that name has another key".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "certificate is not yet valid".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let expected = expected.to_str();
            match names(presented).as_str() {
                "" => format!("certificate is not valid for any name, so not for {expected}"),
                names => format!("certificate is valid for {names}, not {expected}"),
            }
        }
        // webpki's error; to trust the certificate does not help
        CertificateError::Other(other) if other.0.to_string() == "CaUsedAsEndEntity" => {
            "server presents a CA certificate as its own; use a certificate that the CA has issued".to_owned()
        }
        CertificateError::Other(other) => format!("certificate is invalid: {}", other.0),
        other => format!("certificate is invalid: {other}"),
    }
}

/// The names in `DnsName("a")` and `IpAddress(::1)`.
fn names(presented: &[String]) -> String {
    let name = |text: &String| -> String {
        let inner = text.split_once('(').and_then(|(_, inner)| inner.strip_suffix(')')).unwrap_or(text);
        inner.trim_matches('"').chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
    };
    let mut names: Vec<String> = presented.iter().take(MAX_NAMES).map(name).collect();
    if presented.len() > MAX_NAMES {
        names.push(format!("{} more", presented.len() - MAX_NAMES));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::pki_types::{ServerName, UnixTime};

    use super::*;

    #[test]
    #[rustfmt::skip]
    fn connection_errors_have_familiar_words() {
        let invalid =
            |error| io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(error));
        let name = |presented: &[&str]| {
            invalid(CertificateError::NotValidForNameContext {
                expected: ServerName::try_from("quay.test").unwrap(),
                presented: presented.iter().map(|name| (*name).to_owned()).collect(),
            })
        };
        let time = UnixTime::now();
        let many = ["DnsName(\"a\")"; 7];
        for (error, want) in [
            (io::Error::from_raw_os_error(111), "connection refused"),
            (io::Error::other("tunnel error: unsuccessful"), "proxy: unsuccessful"),
            (invalid(CertificateError::UnknownIssuer), "certificate signed by unknown authority"),
            (invalid(CertificateError::ExpiredContext { time, not_after: time }), "certificate has expired"),
            (name(&["DnsName(\"*.a.test\")", "IpAddress(127.0.0.1)"]), "certificate is valid for *.a.test, 127.0.0.1, not quay.test"),
            (name(&many), "certificate is valid for a, a, a, a, a, 2 more, not quay.test"),
            (name(&[]), "certificate is not valid for any name, so not for quay.test"),
            (invalid(CertificateError::Other(rustls::OtherError(Arc::new(io::Error::other("BadDer"))))), "certificate is invalid: BadDer"),
        ] {
            assert_eq!(describe(&error), want);
        }
    }

    #[test]
    #[rustfmt::skip]
    fn lookup_errors_name_the_host() {
        for (text, want) in [
            ("failed to lookup address information: Name or service not known", "lookup a.test: no such host"),
            ("failed to lookup address information: Temporary failure in name resolution",
                "lookup a.test: temporary failure in name resolution"),
            ("Too many open files (os error 24)", "lookup a.test: too many open files"),
        ] {
            assert_eq!(lookup_error("a.test", &io::Error::other(text)), want);
        }
    }
}
