//! The targets that a redirect may have, and what is sent to them.
//!
//! Registries send blob requests to object stores. The target is another party: it gets no credentials (RFC 9110
//! §15.4, and the reason why redirects are followed here and not by the HTTP library), encryption is never dropped, and
//! addresses that only the machine itself should be able to reach (loopback, link-local, metadata services of clouds) are
//! rejected unless the connection that the redirect came over leads to such an address itself. Names are checked when they
//! are looked up for a connection ([`super::guard`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::error::ImageError;

/// Most redirects in a row.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// How far an address is from this machine; the nearer, the less may lead there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// The link of this machine, or a metadata service of a cloud.
    Link,
    Machine,
    Network,
}

/// Checks the `Location` of an answer from `from`, which came over a connection to somewhere at the distance `near`.
/// `insecure` registries may use plain HTTP.
pub(crate) fn target(from: &Url, near: Distance, location: &str, insecure: bool) -> Result<Url, ImageError> {
    let refused = |why: &str| {
        ImageError::Unsupported(format!(
            "redirect of {} is refused: {why}",
            from.host_str().unwrap_or_default()
        ))
    };
    let to = from.join(location).map_err(|_| refused("its target is not a URL"))?;
    check(&to, near, insecure).map_err(|why| refused(&why))?;
    Ok(to)
}

/// Checks a URL that a registry at the distance `near` named (redirect target or token service).
pub(crate) fn check(to: &Url, near: Distance, insecure: bool) -> Result<(), String> {
    match to.scheme() {
        "https" => {}
        "http" if insecure => {}
        "http" => return Err(format!("{} is not https", host(to))),
        other => return Err(format!("scheme {other:?}")),
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("its target holds credentials".into());
    }
    if url_distance(to) < near {
        return Err(format!("{} is an address of this machine or link", host(to)));
    }
    Ok(())
}

/// Same scheme, host and port?
pub(crate) fn same_origin(a: &Url, b: &Url) -> bool {
    a.origin() == b.origin()
}

fn host(url: &Url) -> &str {
    url.host_str().unwrap_or("nothing")
}

/// How far the URL itself, without a look-up, leads at least.
pub(crate) fn url_distance(url: &Url) -> Distance {
    match url.host() {
        Some(Host::Domain(name)) => match name.trim_end_matches('.') {
            "metadata.google.internal" => Distance::Link,
            name if name == "localhost" || name.ends_with(".localhost") => Distance::Machine,
            _ => Distance::Network,
        },
        Some(Host::Ipv4(address)) => distance(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => distance(IpAddr::V6(address)),
        None => Distance::Link,
    }
}

/// Metadata services of clouds that are not link-local.
const METADATA: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
/// The first 32 bits of those with IPv6 addresses that are not link-local: of AWS (fd00:ec2::254, credentials of pods at
/// fd00:ec2::23), Google (fd20:ce::254) and Oracle (fd00:c1::a9fe:a9fe).
const METADATA_V6: [[u16; 2]; 3] = [[0xfd00, 0xec2], [0xfd20, 0xce], [0xfd00, 0xc1]];

/// How far an address is.
pub(crate) fn distance(address: IpAddr) -> Distance {
    let (link, machine) = match address {
        IpAddr::V4(v4) => {
            (v4.is_link_local() || METADATA.contains(&v4), v4.is_loopback() || v4.octets()[0] == 0)
        }
        IpAddr::V6(v6) => match inner_v4(v6) {
            Some(v4) => return distance(IpAddr::V4(v4)),
            None => {
                let is_metadata = METADATA_V6.iter().any(|prefix| v6.segments().starts_with(prefix));
                (v6.is_unicast_link_local() || is_metadata, v6.is_loopback() || v6.is_unspecified())
            }
        },
    };
    match (link, machine) {
        (true, _) => Distance::Link,
        (false, true) => Distance::Machine,
        (false, false) => Distance::Network,
    }
}

/// The IPv4 address within an IPv6 address: mapped, or translated under the well-known prefix (RFC 6052 §2.1).
fn inner_v4(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    let [.., a, b, c, d] = v6.octets();
    v6.to_ipv4_mapped().or_else(|| translated.then(|| Ipv4Addr::new(a, b, c, d)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn redirect_targets_are_checked() {
        for (from, location, insecure, want) in [
            ("https://quay.test/v2/a", "https://s3.test/x?sig=1", false, Ok("https://s3.test/x?sig=1")),
            ("https://quay.test/v2/a", "/other", false, Ok("https://quay.test/other")),
            ("https://quay.test/v2/a", "http://s3.test/x", false, Err("s3.test is not https")),
            ("https://quay.test/v2/a", "http://s3.test/x", true, Ok("http://s3.test/x")),
            ("https://quay.test/v2/a", "file:///etc/passwd", true, Err("scheme \"file\"")),
            ("https://quay.test/v2/a", "https://u:p@s3.test/", false, Err("holds credentials")),
            ("https://quay.test/v2/a", "https://169.254.169.254/latest", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://2852039166/latest", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[::ffff:127.0.0.1]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[64:ff9b::a9fe:a9fe]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fe80::1]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd00:ec2::254]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd00:ec2::23]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd20:ce::254]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd00:c1::a9fe:a9fe]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd00:ec3::1]/", false, Ok("https://[fd00:ec3::1]/")),
            ("https://quay.test/v2/a", "https://0.0.0.0/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://0x7f.1/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://0177.0.0.1/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://100.100.100.200/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://168.63.129.16/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://metadata.google.internal./", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://localhost:8443/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://LOCALHOST./", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://registry.localhost/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "//169.254.169.254/latest", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https:169.254.169.254/latest", false, Ok("https://quay.test/v2/169.254.169.254/latest")),
            ("https://quay.test/v2/a", "\\\\127.0.0.1\\x", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "gopher://s3.test/", true, Err("scheme \"gopher\"")),
            ("https://quay.test/v2/a", "data:text/plain,x", true, Err("scheme \"data\"")),
            ("https://127.0.0.1:5000/v2/a", "https://127.0.0.1:5001/", false, Ok("https://127.0.0.1:5001/")),
            ("https://127.0.0.1:5000/v2/a", "https://169.254.169.254/", false, Err("of this machine or link")),
            ("https://10.0.0.1/v2/a", "https://10.0.0.2/", false, Ok("https://10.0.0.2/")),
            ("https://quay.test/v2/a", "https://[", false, Err("not a URL")),
        ] {
            let from = from.parse().unwrap();
            let got = target(&from, url_distance(&from), location, insecure);
            match want {
                Ok(url) => assert_eq!(got.unwrap().as_str(), url, "{location}"),
                Err(why) => {
                    let text = got.unwrap_err().to_string();
                    assert!(text.contains(why), "{location}: {text}");
                }
            }
        }
    }
}
