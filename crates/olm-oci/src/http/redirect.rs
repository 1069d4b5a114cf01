//! The targets that a redirect may have, and what is sent to them.
//!
//! Registries send blob requests to object stores. The target is another party: it gets no credentials (RFC 9110
//! §15.4, and the reason why redirects are followed here and not by the HTTP library), encryption is never dropped, and
//! addresses that only the machine itself should be able to reach (loopback, link-local, metadata services of clouds) are
//! rejected unless the registry is such an address itself. Names are checked once more when they are looked up
//! ([`super::guard`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

use crate::error::ImageError;

/// Most redirects in a row.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// Checks the `Location` of an answer from `from`. `insecure` registries may use plain HTTP.
pub(crate) fn target(from: &Url, location: &str, insecure: bool) -> Result<Url, ImageError> {
    let refused = |why: &str| {
        ImageError::Unsupported(format!(
            "redirect of {} is refused: {why}",
            from.host_str().unwrap_or_default()
        ))
    };
    let to = from.join(location).map_err(|_| refused("its target is not a URL"))?;
    check(&to, from, insecure).map_err(|why| refused(&why))?;
    Ok(to)
}

/// Checks a URL that a registry named (redirect target or token service).
pub(crate) fn check(to: &Url, from: &Url, insecure: bool) -> Result<(), String> {
    match to.scheme() {
        "https" => {}
        "http" if insecure => {}
        "http" => return Err(format!("{} is not https", host(to))),
        other => return Err(format!("scheme {other:?}")),
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("its target holds credentials".into());
    }
    if is_inner(to) && !is_inner(from) {
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

/// Does the URL itself, without a look-up, lead to this machine or link?
pub(crate) fn is_inner(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            name == "localhost" || name.ends_with(".localhost") || name == "metadata.google.internal"
        }
        Some(Host::Ipv4(address)) => inner_address(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => inner_address(IpAddr::V6(address)),
        None => true,
    }
}

/// Metadata services of clouds that are not link-local.
const METADATA: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Is it an address of this machine, of its link, or of a metadata service?
pub(crate) fn inner_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0 || METADATA.contains(&v4)
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                || v6 == METADATA_V6
                || inner_v4(v6).is_some_and(|v4| inner_address(IpAddr::V4(v4)))
        }
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
    fn redirect_targets_are_checked() {
        for (from, location, insecure, want) in [
            ("https://quay.test/v2/a", "https://s3.test/x?sig=1", false, Ok("https://s3.test/x?sig=1")),
            ("https://quay.test/v2/a", "/other", false, Ok("https://quay.test/other")),
            ("https://quay.test/v2/a", "http://s3.test/x", false, Err("s3.test is not https")),
            ("https://quay.test/v2/a", "http://s3.test/x", true, Ok("http://s3.test/x")),
            ("https://quay.test/v2/a", "file:///etc/passwd", true, Err("scheme \"file\"")),
            ("https://quay.test/v2/a", "https://u:p@s3.test/", false, Err("holds credentials")),
            (
                "https://quay.test/v2/a",
                "https://169.254.169.254/latest",
                false,
                Err("of this machine or link"),
            ),
            ("https://quay.test/v2/a", "https://2852039166/latest", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[::ffff:127.0.0.1]/", false, Err("of this machine or link")),
            (
                "https://quay.test/v2/a",
                "https://[64:ff9b::a9fe:a9fe]/",
                false,
                Err("of this machine or link"),
            ),
            ("https://quay.test/v2/a", "https://[fe80::1]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://[fd00:ec2::254]/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://0.0.0.0/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://0x7f.1/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://0177.0.0.1/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://100.100.100.200/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://168.63.129.16/", false, Err("of this machine or link")),
            (
                "https://quay.test/v2/a",
                "https://metadata.google.internal./",
                false,
                Err("of this machine or link"),
            ),
            ("https://quay.test/v2/a", "https://localhost:8443/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://LOCALHOST./", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "https://registry.localhost/", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "//169.254.169.254/latest", false, Err("of this machine or link")),
            (
                "https://quay.test/v2/a",
                "https:169.254.169.254/latest",
                false,
                Ok("https://quay.test/v2/169.254.169.254/latest"),
            ),
            ("https://quay.test/v2/a", "\\\\127.0.0.1\\x", false, Err("of this machine or link")),
            ("https://quay.test/v2/a", "gopher://s3.test/", true, Err("scheme \"gopher\"")),
            ("https://quay.test/v2/a", "data:text/plain,x", true, Err("scheme \"data\"")),
            ("https://127.0.0.1:5000/v2/a", "https://127.0.0.1:5001/", false, Ok("https://127.0.0.1:5001/")),
            ("https://10.0.0.1/v2/a", "https://10.0.0.2/", false, Ok("https://10.0.0.2/")),
            ("https://quay.test/v2/a", "https://[", false, Err("not a URL")),
        ] {
            let got = target(&from.parse().unwrap(), location, insecure);
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
