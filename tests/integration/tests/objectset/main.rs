//! The ClusterObjectSet controller against a real control plane, without the rest of the product.
//!
//! One control plane and one controller for all tests of this program; each test has its own namespace and names.

mod bench;
mod content;
mod meetings;
mod ownership;
mod quiet;
mod removal;
mod rollout;
