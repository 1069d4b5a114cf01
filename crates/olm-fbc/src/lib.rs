//! olm-fbc.
