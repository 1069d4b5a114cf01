//! The protocol of OLM Classic's registries, service `api.Registry`: generated from `proto/registry.proto`, for the server in catalogd
//! and the client in olm-catalog.
//!
//! No transport and no catalog. Rule: fbc §10.7.

mod codec;

#[rustfmt::skip]
#[allow(unreachable_pub, clippy::str_to_string, clippy::doc_markdown, reason = "generated")]
pub mod proto;
