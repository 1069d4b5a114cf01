//! olm-integration.
