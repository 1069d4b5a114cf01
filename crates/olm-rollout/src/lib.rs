//! olm-rollout.
