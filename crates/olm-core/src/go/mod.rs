//! Text exactly as Go prints it, quotes, floats and JSON, and durations as Go reads them.
//!
//! Used for bytes that are hashed or compared with what the reference wrote, and for messages that the specification quotes.

mod duration;
mod float;
mod json;
mod quote;

pub use duration::{DurationError, GoDuration};
pub use float::{general, general_f32, json_number};
pub use json::{json, json_object, json_string};
pub use quote::{quote, quote_byte};
