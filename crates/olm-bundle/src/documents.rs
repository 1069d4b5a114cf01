//! YAML files of a bundle as documents, under the bounds of bundles.

use olm_core::Cancellation;
use olm_yaml::{Documents, Limits, ReadError};
use serde_json::Value;

/// Bounds on all files of one bundle together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleLimits {
    pub bytes: u64,
    /// Values and keys, aliases expanded. As a tree, one takes 64 bytes; an object counts as ten and a list as three, because they
    /// take as much. Real bundles have one for 7 bytes or more.
    pub nodes: u64,
    /// Files below `manifests/` and `metadata/`.
    pub files: usize,
}

impl Default for BundleLimits {
    /// 28 MiB; the largest published bundle has 7 MB.
    fn default() -> Self {
        Self { bytes: 28 << 20, nodes: 2_000_000, files: 10_000 }
    }
}

impl BundleLimits {
    /// Sets the limit of this name, as the flag `--limit` has it; `false` when there is none.
    pub fn set(&mut self, name: &str, value: u64) -> bool {
        match name {
            "bundle-bytes" => self.bytes = value,
            "bundle-nodes" => self.nodes = value,
            "bundle-files" => self.files = usize::try_from(value).unwrap_or(usize::MAX),
            _ => return false,
        }
        true
    }
}

/// Bytes of a key: paths, findings and messages repeat keys.
const MAX_KEY: usize = 4_096;
const OBJECT_NODES: u64 = 10;
const LIST_NODES: u64 = 3;

/// Nodes that further files of one bundle may have.
pub(crate) struct NodeBudget<'a> {
    limits: BundleLimits,
    left: u64,
    cancellation: &'a Cancellation,
}

pub(crate) enum DocumentError {
    Nodes,
    Cancelled,
    /// The file cannot be read; in the words of the reference's parser.
    Invalid(String),
}

impl<'a> NodeBudget<'a> {
    pub(crate) fn new(limits: BundleLimits, cancellation: &'a Cancellation) -> Self {
        Self { limits, left: limits.nodes, cancellation }
    }

    /// How many nodes all files may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.nodes
    }

    #[cfg(test)]
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn documents(&mut self, bytes: &[u8]) -> Result<Vec<Value>, DocumentError> {
        self.take(bytes, usize::MAX)
    }

    /// The first document of a file; an empty file is null.
    pub(crate) fn single_document(&mut self, bytes: &[u8]) -> Result<Value, DocumentError> {
        Ok(self.take(bytes, 1)?.pop().unwrap_or_default())
    }

    fn take(&mut self, bytes: &[u8], most: usize) -> Result<Vec<Value>, DocumentError> {
        let limits = Limits {
            document_bytes: usize::try_from(self.limits.bytes).unwrap_or(usize::MAX),
            stream_bytes: self.limits.bytes,
            documents: 10_000,
            key_bytes: MAX_KEY,
            depth: 120,
            document_nodes: self.left,
            stream_nodes: self.left,
            ..Limits::default()
        };
        let mut documents = Documents::from_bytes(bytes, limits).with_exact_integers();
        let (mut values, mut collections) = (Vec::new(), 0);
        while values.len() < most
            && let Some(document) = documents.next()
        {
            if self.cancellation.is_cancelled() {
                return Err(DocumentError::Cancelled);
            }
            let json = document.map_err(|error| match documents.nodes() > self.left {
                true => DocumentError::Nodes,
                false => DocumentError::Invalid(message(&error)),
            })?;
            // before a tree is made
            collections += extra_nodes(&json);
            if documents.nodes() + collections > self.left {
                return Err(DocumentError::Nodes);
            }
            let value = serde_json::from_slice(&json);
            values.push(value.map_err(|error| DocumentError::Invalid(error.to_string()))?);
        }
        self.left -= documents.nodes() + collections;
        Ok(values)
    }
}

/// What the objects and lists of a JSON text count for beyond one node each.
fn extra_nodes(json: &[u8]) -> u64 {
    let (mut nodes, mut quoted, mut escaped) = (0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'{' if !quoted => nodes += OBJECT_NODES - 1,
            b'[' if !quoted => nodes += LIST_NODES - 1,
            _ => {}
        }
    }
    nodes
}

/// What is wrong, in the words of the reference's parser.
fn message(error: &ReadError) -> String {
    error.as_parse().map_or_else(|| error.to_string(), |parse| parse.message.clone())
}
