//! Registries that are slow, endless, or lie.

use std::time::Duration;

use anyhow::Result;

use crate::catalogs::{LABEL, push};
use crate::content::Layer;
use crate::shape::{Expect, Shape};
use crate::support::{self, Body, Pushed, Registry, Reply};

/// A small catalog.
fn layer() -> Vec<u8> {
    Layer::new().file("configs/a.json", br#"{"schema":"olm.package","name":"a"}"#).end()
}

/// Pushes it, and answers what is asked of its manifest, or of its layer, with `reply`.
fn spoiled(registry: &Registry, part: &'static str, reply: fn() -> Reply) -> Result<String> {
    let layer = layer();
    let digest = support::digest(&layer).to_string();
    let reference = push(registry, [layer]);
    registry.hook(move |request| {
        let hit = match part {
            "layer" => request.target.ends_with(&digest),
            part => request.target.contains(part),
        };
        hit.then(reply)
    });
    Ok(reference)
}

fn tagged(registry: &Registry) -> String {
    registry.push("catalog", Some("1"), &Pushed::new([layer()]).label(LABEL, "/configs"));
    format!("{}/catalog:1", registry.address)
}

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "registry: a manifest without end", short: true, expect: Expect::Refused("exceeds the limit of 4194304 bytes"),
        make: |registry| spoiled(registry, "/manifests/", || Reply::body(Body::Endless(vec![b' '; 65_536]))) },
    Shape { name: "registry: a layer without end", short: true, expect: Expect::Refused("bytes that the manifest declares"),
        make: |registry| spoiled(registry, "layer", || Reply::body(Body::Endless(vec![b'x'; 65_536]))) },
    Shape { name: "registry: other bytes than the digest names", short: false, expect: Expect::Refused("digest mismatch"),
        make: |registry| {
            spoiled(registry, "layer", || {
                let mut bytes = layer();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 0xff;
                }
                Reply::new(200, bytes)
            })
        } },
    Shape { name: "registry: redirects without end", short: false, expect: Expect::Refused("more than 5 redirects"),
        make: |registry| {
            spoiled(registry, "layer", || Reply::new(307, "").header("Location", "/v2/catalog/blobs/layer"))?;
            let reference = push(registry, [layer()]);
            registry.hook(|request| {
                let target = request.target.clone();
                request.target.contains("/blobs/").then(|| Reply::new(307, "").header("Location", target))
            });
            Ok(reference)
        } },
    Shape { name: "registry: come back in 30 years", short: false, expect: Expect::Refused("toomanyrequests"),
        make: |registry| {
            spoiled(registry, "/manifests/", || { Reply::error(429, "TOOMANYREQUESTS").header("Retry-After", "999999999") }) } },
    Shape { name: "registry: 100,000 headers", short: true, expect: Expect::Refused("reading manifest"),
        make: |registry| {
            spoiled(registry, "/manifests/",
                || { (0..100_000).fold(Reply::new(200, "{}"), |reply, at| reply.header(&format!("X-{at}"), "v")) }) } },
    Shape { name: "registry: a token without end", short: false, expect: Expect::Refused("requesting a token"),
        make: |registry| {
            let address = registry.address;
            let reference = tagged(registry);
            registry.hook(move |request| {
                if request.target.starts_with("/token") {
                    return Some(Reply::body(Body::Endless(vec![b' '; 65_536])));
                }
                let challenge = format!("Bearer realm=\"https://{address}/token\",service=\"s\"");
                Some(Reply::error(401, "UNAUTHORIZED").header("WWW-Authenticate", challenge))
            });
            Ok(reference)
        } },
    Shape { name: "registry: an error page without end", short: false, expect: Expect::Refused("404"),
        make: |registry| {
            spoiled(registry, "/manifests/", || Reply {
                status: 404,
                headers: Vec::new(),
                body: Body::Endless(vec![b' '; 65_536]),
            })
        } },
    Shape { name: "registry: hangs up", short: false, expect: Expect::Refused("reading manifest"),
        make: |registry| spoiled(registry, "/manifests/", || Reply::body(Body::Hangup)) },
    Shape { name: "registry: a manifest that drips", short: false, expect: Expect::Refused("reading manifest"),
        make: |registry| {
            spoiled(registry, "/manifests/", || {
                Reply::body(Body::Drip { bytes: vec![b' '; 100_000], pause: Duration::from_millis(200) })
            })
        } },
];
