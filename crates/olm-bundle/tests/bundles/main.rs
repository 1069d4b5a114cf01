//! Bundles that tests write, generated ones and real ones, as the public functions of the crate answer for them.

mod cases;
mod lab;
mod properties;
mod real_bundles;
mod recorded;
