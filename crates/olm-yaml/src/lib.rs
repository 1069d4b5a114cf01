//! olm-yaml.
