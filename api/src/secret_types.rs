//! Values of `type` of the Secrets that are read or written.
//!
//! Rule: operator-controller §1.4.

/// Holds rendered objects of a revision; written and read.
pub const OBJECT_DATA: &str = "olm.operatorframework.io/object-data";
/// Index of a Helm release of the reference; only read.
pub const HELM_INDEX: &str = "operatorframework.io/index.v1";
/// One chunk of a Helm release of the reference; only read.
pub const HELM_CHUNK: &str = "operatorframework.io/chunk.v1";
