//! olm-core.
