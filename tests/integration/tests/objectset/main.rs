//! The ClusterObjectSet controller against a real control plane, without the rest of the product.
//!
//! One control plane and one controller for all tests of this program; each test has its own namespace and names.

mod bench;
mod concurrent_writes;
mod content;
mod ownership;
mod removal;
mod requests;
mod rollout;
