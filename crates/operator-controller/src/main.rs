//! operator-controller.

fn main() {}
