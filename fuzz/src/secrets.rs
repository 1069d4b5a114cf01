//! Data of Secrets: objects of a revision, and the reference's Helm releases.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use olm_core::go;
use olm_install::release::fuzz::read_release;
use olm_rollout::{MAX_OBJECT, Phase, pack, phase_digest, unpack};
use serde_json::json;

use crate::parts;

/// One value of a Secret. What can be read is an object that packs and reads as itself; a release holds named objects, packed or
/// not, and never more than a revision may.
pub(crate) fn secrets(input: &[u8]) {
    packed(input);
    let [payload, extra] = parts::<2>(input);
    // libFuzzer does not guess gzip's checksums: plain text stands for what it would inflate to
    let compressed = if payload.starts_with(&[0x1f, 0x8b]) { payload.to_vec() } else { gzip(payload) };
    let (index, further) = release(compressed, extra);
    let objects = read_release("demo", "uid", &index, &further);
    assert_eq!(objects, read_release("demo", "uid", &index, &further));
    if let Ok(objects) = objects {
        assert!((1..=1000).contains(&objects.len()));
        assert!(objects.iter().all(|object| !object.kind().is_empty() && !object.name().is_empty()));
    }
}

fn packed(value: &[u8]) {
    let Ok(object) = unpack(value, "key", "ns/secret") else { return };
    assert!(serde_json::to_vec(&object.to_value()).is_ok_and(|json| json.len() <= MAX_OBJECT * 6));
    let phase = Phase { name: "deploy".to_owned(), objects: vec![object.clone(), object.clone()] };
    let digest = phase_digest("deploy", &phase.objects);
    let Ok(packed) = pack("rev-1", &[phase]) else { return };
    let place = packed.phases.first().and_then(|phase| phase.objects.first()).cloned();
    assert_eq!(packed.phases.first().map(|phase| phase.objects.len()), Some(2));
    let Some(place) = place else { return };
    let secret = packed.secrets.iter().find(|secret| secret.name == place.secret);
    let value = secret.and_then(|secret| secret.data.get(&place.key));
    let again = value.map(|value| unpack(value, &place.key, &place.secret));
    // as Go writes it: 5.0 comes back as 5
    let again = again.map(|again| again.map(|again| go::json(&again.into_value())));
    assert_eq!(again, Some(Ok(go::json(&object.to_value()))), "packed is not what was read");
    assert_eq!(digest, phase_digest("deploy", &[object.clone(), object]));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = GzEncoder::new(Vec::new(), Compression::fast());
    let written = writer.write_all(bytes).and_then(|()| writer.finish());
    written.unwrap_or_default()
}

/// The release in one Secret, or cut in two when `extra` names a second.
fn release(payload: Vec<u8>, extra: &[u8]) -> (Secret, Vec<(String, Option<Secret>)>) {
    let labels = |status: &str| {
        let pairs = [
            ("owner", "operator-controller"),
            ("key", "demo.v2"),
            ("status", status),
            ("version", "2"),
            ("name", "demo"),
        ];
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect::<BTreeMap<_, _>>()
    };
    let secret = |kind: &str, data: BTreeMap<String, ByteString>| {
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s"}, "type": kind})).unwrap_or_default();
        secret.metadata.labels = Some(labels("deployed"));
        secret.data = Some(data);
        secret
    };
    let mut data = BTreeMap::from([("chunk".to_owned(), ByteString(payload))]);
    if extra.is_empty() {
        return (secret(olm_api::secret_types::HELM_INDEX, data), vec![]);
    }
    data.insert("extraChunks".to_owned(), ByteString(extra.to_vec()));
    let further = BTreeMap::from([("chunk".to_owned(), ByteString(gzip(extra)))]);
    let further = secret(olm_api::secret_types::HELM_CHUNK, further);
    (secret(olm_api::secret_types::HELM_INDEX, data), vec![("s2".to_owned(), Some(further))])
}
