//! olm-kit.
fn main() {}
