//! olm-client.
