//! Foreign YAML 1.1 and JSON, read as Go's `encoding/json` and `sigs.k8s.io/yaml` read them, written
//! again as *normalised JSON*: compact, keys sorted, the last duplicate wins, numbers as IEEE doubles in
//! Go's layout (but see [`Documents::with_exact_integers`]). Rules: fbc §3 (decoding one file) and §4.2 (bytes).
//!
//! The crate knows nothing of catalogs, bundles or files. It takes bytes or a [`std::io::Read`] and bounded
//! work from [`Limits`]; whatever is wrong with the input becomes an error message, never a panic.
//!
//! ```
//! use olm_yaml::{Documents, Limits};
//!
//! let input = b"---\nname: foo\nenabled: yes\n---\n{\"b\": 1.0, \"a\": 0x1f}\n";
//! let documents: Vec<Vec<u8>> =
//!     Documents::from_bytes(input, Limits::default()).collect::<Result<_, _>>().unwrap();
//! assert_eq!(documents[0], br#"{"enabled":true,"name":"foo"}"#);
//! assert_eq!(documents[1], br#"{"a":31,"b":1}"#);
//! ```

mod documents;
mod engine;
mod error;
mod json;
mod limits;
mod members;
mod scalar;
mod split;
mod syntax;
mod text;
mod yaml;

pub use documents::{Document, Documents, Origin, Position};
pub use error::{ParseError, ReadError};
pub use json::{Normaliser, normalise_json};
pub use limits::Limits;
pub use members::Member;
pub use text::{decode_base64, push_json_string, unescape_json};
pub use yaml::{yaml_to_json, yaml_to_json_exact};
