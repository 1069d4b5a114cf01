//! catalogd: pulls catalog images, keeps their content and serves it over HTTPS.
//!
//! `controller` decides and reports, `ingest` turns images into content, `store` keeps it, `http` serves it; they meet in
//! [`store::Store`] only.

pub mod args;
mod compress;
pub mod controller;
mod gauges;
pub mod http;
pub mod ingest;
pub mod run;
pub mod store;
