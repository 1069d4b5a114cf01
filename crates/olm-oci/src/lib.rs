//! olm-oci.
