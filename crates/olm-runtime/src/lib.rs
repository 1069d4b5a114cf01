//! olm-runtime.
