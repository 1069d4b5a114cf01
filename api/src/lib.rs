//! olm-api.
