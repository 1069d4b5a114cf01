//! olm-resolver.
