//! catalogd.

fn main() {}
