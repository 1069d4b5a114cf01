//! olm-kit.
