//! The content of a revision as immutable Secrets, and back.
//!
//! Names and keys are content hashes and byte-equal to what the reference computes, so that a cluster can be taken
//! over (gzip output of very large objects excepted). Reading is bounded. Rule: revisions §4.4 and §5.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use olm_core::{Cancellation, Object, go, hex};
use sha2::{Digest as _, Sha256};

use crate::phase::Phase;

/// Most bytes of values in one Secret; objects larger than this are compressed.
pub const MAX_SECRET: usize = 900 * 1024;
/// Most bytes of one object after decompression.
pub const MAX_OBJECT: usize = 10 * 1024 * 1024;

/// One Secret to create: immutable, of type [`crate::keys::OBJECT_DATA`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedSecret {
    /// Name, `<revision>-<16 hex digits>`.
    pub name: String,
    /// Values by key.
    pub data: BTreeMap<String, Vec<u8>>,
}

/// Where the content of one object lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRef {
    /// Name of the Secret.
    pub secret: String,
    pub key: String,
}

/// A phase whose objects lie in Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedPhase {
    pub name: String,
    /// One reference for each object, in order.
    pub objects: Vec<ObjectRef>,
}

/// Phases and the Secrets that hold their objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packed {
    /// Secrets in the order in which they were filled.
    pub secrets: Vec<PackedSecret>,
    /// Phases in order.
    pub phases: Vec<PackedPhase>,
}

/// An object that cannot be packed.
#[derive(Debug, thiserror::Error)]
#[error("object in phase {phase} index {index} {problem}")]
pub struct PackError {
    /// Index of the phase, from 0.
    phase: usize,
    /// Index of the object in the phase, from 0.
    index: usize,
    problem: String,
}

/// Packs the phases of the revision `revision` into Secrets.
///
/// # Errors
/// When an object does not fit into a Secret even compressed, or could not be read back.
pub fn pack(revision: &str, phases: &[Phase]) -> Result<Packed, PackError> {
    pack_until(revision, phases, &Cancellation::default())
}

/// As [`pack`]. It reads the cancellation before each object, and while it compresses one.
///
/// # Errors
/// As [`pack`], and when it is cancelled.
pub fn pack_until(
    revision: &str,
    phases: &[Phase],
    cancellation: &Cancellation,
) -> Result<Packed, PackError> {
    let mut packer = Packer { revision, closed: vec![], open: BTreeMap::new(), size: 0 };
    let mut places: Vec<(String, Vec<(usize, String)>)> = vec![];
    for (at, phase) in phases.iter().enumerate() {
        let mut objects = vec![];
        for (index, object) in phase.objects.iter().enumerate() {
            let value =
                encode(object, cancellation).map_err(|problem| PackError { phase: at, index, problem })?;
            objects.push(packer.add(value));
        }
        places.push((phase.name.clone(), objects));
    }
    packer.close();
    let secrets = packer.closed;
    let phases = places
        .into_iter()
        .map(|(name, objects)| PackedPhase {
            name,
            objects: objects
                .into_iter()
                .filter_map(|(secret, key)| {
                    Some(ObjectRef { secret: secrets.get(secret)?.name.clone(), key })
                })
                .collect(),
        })
        .collect();
    Ok(Packed { secrets, phases })
}

struct Packer<'a> {
    revision: &'a str,
    closed: Vec<PackedSecret>,
    open: BTreeMap<String, Vec<u8>>,
    size: usize,
}

impl Packer<'_> {
    /// Puts a value into the open Secret, or a new one when it would overflow; gives the Secret's index and the key.
    fn add(&mut self, value: Vec<u8>) -> (usize, String) {
        let key = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&value));
        if !self.open.contains_key(&key) {
            if self.size + value.len() > MAX_SECRET {
                self.close();
            }
            self.size += value.len();
            self.open.insert(key.clone(), value);
        }
        (self.closed.len(), key)
    }

    fn close(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let data = std::mem::take(&mut self.open);
        self.size = 0;
        let mut hash = Sha256::new();
        for (key, value) in &data {
            hash.update(key.as_bytes());
            hash.update(value);
        }
        let digest = hex(&hash.finalize());
        let short = digest.get(..16).unwrap_or(&digest);
        self.closed.push(PackedSecret { name: format!("{}-{short}", self.revision), data });
    }
}

/// The value of an object, or why it does not fit.
fn encode(object: &Object, cancellation: &Cancellation) -> Result<Vec<u8>, String> {
    let cancelled = || "was not packed: packing was cancelled".to_owned();
    if cancellation.is_cancelled() {
        return Err(cancelled());
    }
    let json = go::json_object(&object.0).into_bytes();
    let size = json.len();
    if size > MAX_OBJECT {
        return Err(format!("has {size} bytes; at most {MAX_OBJECT} bytes of one object can be read back"));
    }
    if size <= MAX_SECRET {
        return Ok(json);
    }
    // in one piece: the output depends on the pieces
    let mut encoder = GzEncoder::new(Compressed { bytes: vec![], cancellation }, Compression::best());
    let packed = encoder.write_all(&json).and_then(|()| encoder.finish());
    let packed = match packed {
        Ok(packed) => packed.bytes,
        Err(_) if cancellation.is_cancelled() => return Err(cancelled()),
        Err(error) => return Err(format!("cannot be compressed: {error}")),
    };
    let size = packed.len();
    if size > MAX_SECRET {
        return Err(format!(
            "exceeds maximum Secret data size ({size} bytes > {MAX_SECRET} bytes) even after compression"
        ));
    }
    Ok(packed)
}

/// Compressed bytes. Writing fails once it is cancelled, and with that the compression.
struct Compressed<'a> {
    bytes: Vec<u8>,
    cancellation: &'a Cancellation,
}

impl Write for Compressed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.cancellation.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        self.bytes.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a Secret's value is compressed: gzip begins with these two bytes.
#[must_use]
pub fn is_packed(value: &[u8]) -> bool {
    value.starts_with(&[0x1f, 0x8b])
}

/// Reads one object from a Secret's value, compressed or not.
///
/// # Errors
/// When the value is broken, larger than [`MAX_OBJECT`] or no JSON object. The text names the key and the Secret
/// (`<namespace>/<name>`).
pub fn unpack(value: &[u8], key: &str, secret: &str) -> Result<Object, String> {
    let mut inflated = vec![];
    let json = if is_packed(value) {
        let mut decoder = MultiGzDecoder::new(value);
        let read = decoder.by_ref().take(MAX_OBJECT as u64 + 1).read_to_end(&mut inflated);
        read.map_err(|error| {
            let is_begun = decoder.header().is_some() || !inflated.is_empty();
            let doing = if is_begun { "decompressing" } else { "creating gzip reader for" };
            format!("{doing} key {key:?} in Secret {secret}: {error}")
        })?;
        inflated.as_slice()
    } else {
        value
    };
    if json.len() > MAX_OBJECT {
        return Err(format!(
            "decompressed data for key {key:?} in Secret {secret} exceeds maximum size ({MAX_OBJECT} bytes)"
        ));
    }
    serde_json::from_slice::<serde_json::Value>(json)
        .map_err(|error| error.to_string())
        .and_then(|value| Object::from_value(value).map_err(|error| error.to_string()))
        .map_err(|problem| format!("unmarshaling object from key {key:?} in Secret {secret}: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(value: Value) -> Object {
        Object::from_value(value).unwrap()
    }

    fn phase(name: &str, objects: Vec<Object>) -> Phase {
        Phase { name: name.to_owned(), objects }
    }

    fn sized(name: &str, bytes: usize) -> Object {
        object(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": "a".repeat(bytes)}}),
        )
    }

    /// A reproducible text that does not compress well.
    fn noise(bytes: usize) -> String {
        let mut state = 1_u64;
        (0..bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                char::from(b'!' + u8::try_from((state >> 40) % 90).unwrap())
            })
            .collect()
    }

    /// rule: revisions §4.4, worked example
    #[test]
    fn pack_worked_example() {
        let config =
            object(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "test-cm"}}));
        let packed = pack("my-ext-1", &[phase("deploy", vec![config])]).unwrap();
        assert_eq!(packed.secrets.len(), 1);
        assert_eq!(packed.secrets[0].name, "my-ext-1-a3611ac6a275e97c");
        let (key, value) = packed.secrets[0].data.first_key_value().unwrap();
        assert_eq!(key, "uBC12aGOF0WKH4yk6Z6nHiSkFudBFiYGeWP1ERvY-xc");
        assert_eq!(value.len(), 68);
        assert_eq!(
            packed.phases,
            [PackedPhase {
                name: "deploy".into(),
                objects: vec![ObjectRef { secret: packed.secrets[0].name.clone(), key: key.clone() }]
            }]
        );
    }

    #[test]
    fn pack_shares_keys_and_closes_full_secrets() {
        let packed = pack(
            "e-1",
            &[
                phase("a", vec![sized("one", 400_000), sized("one", 400_000), sized("two", 400_000)]),
                phase("b", vec![sized("three", 400_000), sized("one", 400_000)]),
            ],
        )
        .unwrap();
        let keys: Vec<usize> = packed.secrets.iter().map(|secret| secret.data.len()).collect();
        assert_eq!(
            keys,
            [2, 2],
            "one and two, then three and one again: a key is shared only within a Secret"
        );
        assert_eq!(packed.phases[0].objects[0], packed.phases[0].objects[1]);
        assert_ne!(packed.phases[1].objects[1].secret, packed.phases[0].objects[0].secret);
        assert_eq!(packed.phases[1].objects[1].key, packed.phases[0].objects[0].key);
        for secret in &packed.secrets {
            assert!(secret.data.values().map(Vec::len).sum::<usize>() <= MAX_SECRET);
        }
        assert_eq!(packed.secrets.len(), 2);
    }

    #[test]
    fn pack_and_unpack_give_the_same_objects() {
        let content = vec![
            object(
                json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "<&>"}, "n": [1, 1.5, null]}),
            ),
            sized("large", MAX_SECRET + 1),
        ];
        let packed = pack("e-1", &[phase("a", content.clone())]).unwrap();
        let values: BTreeMap<_, _> = packed.secrets.iter().flat_map(|secret| &secret.data).collect();
        for (reference, want) in packed.phases[0].objects.iter().zip(&content) {
            let got = unpack(values[&reference.key], &reference.key, "ns/secret").unwrap();
            assert_eq!(&got, want);
        }
        assert!(values.values().any(|value| value.starts_with(&[0x1f, 0x8b])));
    }

    /// Names of Secrets are hashes of the compressed bytes, and stay as they are.
    #[test]
    fn pack_compresses_as_in_one_piece() {
        for data in ["a".repeat(2_000_000), noise(900_000), noise(20_000).repeat(60)] {
            let large = object(json!({"data": data}));
            let mut encoder = GzEncoder::new(vec![], Compression::best());
            encoder.write_all(go::json_object(&large.0).as_bytes()).unwrap();
            let whole = encoder.finish().unwrap();
            let compressed = encode(&large, &Cancellation::default()).unwrap();
            assert!(compressed == whole, "{} bytes instead of {}", compressed.len(), whole.len());
        }
    }

    #[test]
    fn pack_stops_when_cancelled() {
        let cancellation = Cancellation::default();
        cancellation.cancel();
        let cancelled = pack_until("e-1", &[phase("a", vec![sized("x", 1)])], &cancellation);
        let want = "object in phase 0 index 0 was not packed: packing was cancelled";
        assert_eq!(cancelled.unwrap_err().to_string(), want);
        let mut compressing =
            GzEncoder::new(Compressed { bytes: vec![], cancellation: &cancellation }, Compression::best());
        assert!(compressing.write_all(noise(500_000).as_bytes()).is_err(), "compresses on");
    }

    #[test]
    fn pack_rejects_objects_that_do_not_fit() {
        let large = object(json!({"data": noise(2_000_000)}));
        let refused = pack("e-1", &[phase("a", vec![]), phase("b", vec![sized("x", 1), large])]).unwrap_err();
        assert!(
            refused.to_string().starts_with("object in phase 1 index 1 exceeds maximum Secret data size (")
                && refused.to_string().ends_with(" bytes > 921600 bytes) even after compression"),
            "{refused}"
        );
        let blank = object(json!({"data": " ".repeat(MAX_OBJECT)}));
        let refused = pack("e-1", &[phase("a", vec![blank])]).unwrap_err();
        assert!(
            refused.to_string().starts_with("object in phase 0 index 0 has 104857"),
            "it compresses well, but it cannot be unpacked: {refused}"
        );
        assert_eq!(pack("e-1", &[]).unwrap(), Packed::default());
    }

    /// as the reference's reader, which is Go's
    #[test]
    fn unpack_reads_all_members_of_a_gzip_value() {
        let member = |text: &str| {
            let mut encoder = GzEncoder::new(vec![], Compression::best());
            encoder.write_all(text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let whole = [member("{\"kind\": "), member("\"A\"}")].concat();
        assert_eq!(unpack(&whole, "k", "n/s").unwrap().kind(), "A");
        let garbage = [member("{}"), b"more".to_vec()].concat();
        let got = unpack(&garbage, "k", "n/s").unwrap_err();
        assert!(got.starts_with("decompressing key \"k\" in Secret n/s: "), "{got}");
    }

    #[test]
    fn unpack_rejects_hostile_values_with_a_message() {
        let mut bomb = GzEncoder::new(vec![], Compression::best());
        bomb.write_all(&vec![b' '; MAX_OBJECT + 1]).unwrap();
        let bomb = bomb.finish().unwrap();
        let cut = bomb[..bomb.len() / 2].to_vec();
        for (value, want) in [
            (b"\x1f\x8b".to_vec(), "creating gzip reader for key \"k\" in Secret n/s: "),
            (cut, "decompressing key \"k\" in Secret n/s: "),
            (bomb, "decompressed data for key \"k\" in Secret n/s exceeds maximum size (10485760 bytes)"),
            (
                b"[]".to_vec(),
                "unmarshaling object from key \"k\" in Secret n/s: a manifest must be a JSON object, not a list",
            ),
            (b"{".to_vec(), "unmarshaling object from key \"k\" in Secret n/s: EOF while parsing"),
            (vec![], "unmarshaling object from key \"k\" in Secret n/s: EOF while parsing a value"),
        ] {
            let got = unpack(&value, "k", "n/s").unwrap_err();
            assert!(got.starts_with(want), "{got}");
        }
    }
}
