//! olm-crd-safety.
