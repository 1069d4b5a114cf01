//! catalogd: pulls catalog images, keeps their content and serves it over HTTPS.
//!
//! `controller` decides and reports, `store` keeps, `http` serves; they meet in [`store::Store`] only.

pub mod controller;
pub mod http;
pub mod store;
