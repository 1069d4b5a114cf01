//! olm-bundle.
