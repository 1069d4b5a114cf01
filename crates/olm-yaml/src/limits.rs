//! Bounds on the work that one input may cause.

/// Bytes of a key that a message shows.
const SHOWN_KEY: usize = 50;

/// Bounds on one stream of documents. Exceeding one is a [`crate::ParseError`] that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document, as read and as written (so it also bounds what aliases expand to).
    pub document_bytes: usize,
    pub stream_bytes: u64,
    pub documents: u64,
    /// Bytes that anchors, aliases and merges of one YAML document may copy.
    pub alias_bytes: usize,
    /// Bytes of one key, as JSON writes it without quotes.
    pub key_bytes: usize,
    /// Nesting of objects and arrays; Go's own limit is 10,000.
    pub depth: usize,
    /// Nodes of one document: objects, arrays, scalars and keys; an alias counts for what it expands to. Bounds the memory
    /// of a tree of the document: eight bytes of text can become 700 bytes of tree.
    pub document_nodes: u64,
    /// Nodes of all documents of the stream together, for callers that keep all of them.
    pub stream_nodes: u64,
}

impl Default for Limits {
    /// 64 MiB a document (16 MiB of it by aliases), keys of any length, 2 GiB a stream, 10 million documents, depth 10,000; 500,000 nodes
    /// a document, any number in a stream.
    fn default() -> Self {
        Self {
            document_bytes: 64 << 20,
            alias_bytes: 16 << 20,
            key_bytes: usize::MAX,
            stream_bytes: 2 << 30,
            documents: 10_000_000,
            depth: 10_000,
            document_nodes: 500_000,
            stream_nodes: u64::MAX,
        }
    }
}

impl Limits {
    pub(crate) fn too_many_nodes(&self) -> String {
        format!(
            "the document has more than the limit of {} nodes (values and keys); split it into smaller documents",
            self.document_nodes
        )
    }

    /// What is wrong with a key that is too long; it is JSON without quotes.
    pub(crate) fn too_long_key(&self, key: &[u8]) -> Option<String> {
        if key.len() <= self.key_bytes {
            return None;
        }
        let head = String::from_utf8_lossy(key.get(..SHOWN_KEY).unwrap_or(key));
        let head = head.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let (length, limit) = (key.len(), self.key_bytes);
        Some(format!(
            "a key of {length} bytes begins with {head:?}; keys have at most {limit} bytes: shorten it"
        ))
    }
}
