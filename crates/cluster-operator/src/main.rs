//! cluster-operator.

fn main() {}
