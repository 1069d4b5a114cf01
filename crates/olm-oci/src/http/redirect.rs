//! Where a redirect may lead, and what goes along.
//!
//! Registries send blob requests to object stores. The target is another party: it gets no credentials of ours (RFC 9110
//! §15.4, and the reason why redirects are followed here and not by the HTTP library), encryption is never given up, and
//! addresses that only the machine itself should be able to ask (loopback, link-local with its metadata services) are
//! refused unless the registry is such an address itself.

use std::net::{IpAddr, Ipv6Addr};

use url::{Host, Url};

use crate::error::Fault;

/// Most redirects in a row.
pub(crate) const MAX_REDIRECTS: usize = 5;

/// Checks the `Location` of an answer from `from`. `insecure` registries may use plain HTTP.
pub(crate) fn target(from: &Url, location: &str, insecure: bool) -> Result<Url, Fault> {
    let refused = |why: &str| {
        Fault::Unsupported(format!("redirect of {} is refused: {why}", from.host_str().unwrap_or_default()))
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

fn is_inner(url: &Url) -> bool {
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

fn inner_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                // the metadata service of one large cloud
                || v6 == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
                || v6.to_ipv4_mapped().is_some_and(|v4| inner_address(IpAddr::V4(v4)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_checked() {
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
            ("https://quay.test/v2/a", "https://localhost:8443/", false, Err("of this machine or link")),
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
