//! Durations as Go writes them, for flags that users know from the reference.

pub use olm_core::go::{DurationError, GoDuration};
