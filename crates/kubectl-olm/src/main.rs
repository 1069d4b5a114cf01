//! kubectl-olm.

fn main() {}
