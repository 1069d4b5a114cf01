//! ConfigMaps with the manifests of bundles, to which the steps of a plan refer: of images, and of plans too large for one object.
//!
//! Rule: classic-apis §5.5.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, Resource as _};
use olm_api::classic::CatalogSource;
use olm_classic::install_plan::StepReference;
use olm_core::{Object, go};
use olm_runtime::apply::{self, ErrorClass};

use crate::context::MANAGER;

/// Bytes of manifests above which they are compressed; an object of the apiserver has 1.5 MiB at most.
const MAX_PLAIN: usize = 768 << 10;
/// Bytes of the manifests of one bundle, decompressed.
const MAX_BYTES: u64 = 64 << 20;
/// Names the encoding of compressed manifests.
const ENCODING: &str = "olm.contentEncoding";
const GZIP: &str = "gzip";

/// Writes the manifests of a bundle to the ConfigMap of `reference`. They go with their catalog.
///
/// # Errors
/// When they cannot be written.
pub(crate) async fn write(
    client: &Client,
    reference: &StepReference,
    source: &CatalogSource,
    objects: &[Object],
) -> Result<(), String> {
    let mut config_map = pack(objects).map_err(|error| format!("cannot compress manifests: {error}"))?;
    config_map.metadata.name = Some(reference.name.clone());
    config_map.metadata.namespace = Some(reference.namespace.clone());
    config_map.metadata.labels = Some([("olm.managed".to_owned(), "true".to_owned())].into());
    config_map.metadata.owner_references = source.owner_ref(&()).map(|owner| vec![owner]);
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &reference.namespace);
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let written = match api.create(&params, &config_map).await {
        Err(error) if apply::classify(&error) == ErrorClass::AlreadyExists => {
            api.replace(&reference.name, &params, &config_map).await
        }
        other => other,
    };
    let failed = |error| {
        let place = (&reference.namespace, &reference.name);
        format!("cannot write ConfigMap {}/{}: {}", place.0, place.1, apply::message(&error))
    };
    written.map(|_| ()).map_err(failed)
}

/// The manifests of a bundle; `None` if there is no ConfigMap.
///
/// # Errors
/// When they cannot be read.
pub(crate) async fn read(client: &Client, reference: &StepReference) -> Result<Option<Vec<Object>>, String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), &reference.namespace);
    let place = || format!("ConfigMap {}/{}", reference.namespace, reference.name);
    let found = api.get_opt(&reference.name).await;
    let found = found.map_err(|error| format!("cannot read {}: {}", place(), apply::message(&error)))?;
    found.map(|found| unpack(&found).map_err(|error| format!("{}: {error}", place()))).transpose()
}

fn pack(objects: &[Object]) -> std::io::Result<ConfigMap> {
    let manifest = |(index, object): (usize, &Object)| {
        let name = format!("{index:03}-{}.json", object.kind().to_lowercase());
        (name, go::json_object(&object.0))
    };
    let data: BTreeMap<String, String> = objects.iter().enumerate().map(manifest).collect();
    let mut config_map = ConfigMap::default();
    if data.values().map(String::len).sum::<usize>() <= MAX_PLAIN {
        config_map.data = Some(data);
        return Ok(config_map);
    }
    let compressed = data.into_iter().map(|(name, text)| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes())?;
        Ok((name, ByteString(encoder.finish()?)))
    });
    config_map.binary_data = Some(compressed.collect::<std::io::Result<_>>()?);
    config_map.metadata.annotations = Some([(ENCODING.to_owned(), GZIP.to_owned())].into());
    Ok(config_map)
}

fn unpack(config_map: &ConfigMap) -> Result<Vec<Object>, String> {
    let mut texts: BTreeMap<&String, String> = BTreeMap::new();
    let (mut left, too_large) = (MAX_BYTES, || format!("more than the limit of {MAX_BYTES} bytes"));
    for (name, text) in config_map.data.iter().flatten() {
        texts.insert(name, text.clone());
    }
    for (name, bytes) in config_map.binary_data.iter().flatten() {
        let mut text = String::new();
        let read = GzDecoder::new(bytes.0.as_slice()).take(left + 1).read_to_string(&mut text);
        read.map_err(|error| format!("{name}: {error}"))?;
        left = left.checked_sub(text.len() as u64).ok_or_else(too_large)?;
        texts.insert(name, text);
    }
    let object = |(name, text): (&String, String)| {
        let value = serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))?;
        Object::from_value(value).map_err(|error| format!("{name}: {error}"))
    };
    texts.into_iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unpacked_manifests_are_plain_or_compressed() {
        for (size, plain) in [(10, true), (MAX_PLAIN, false)] {
            let objects: Vec<Object> = (0..12)
                .map(|index| {
                    let text = "x".repeat(size);
                    let value = json!({"kind": "A", "metadata": {"name": index.to_string()}, "text": text});
                    Object::from_value(value).unwrap()
                })
                .collect();
            let config_map = pack(&objects).unwrap();
            assert_eq!(config_map.data.is_some(), plain, "{size}");
            assert_eq!(unpack(&config_map).unwrap(), objects, "{size}");
        }
    }

    #[test]
    fn unpacked_manifests_are_limited_in_bytes() {
        let manifest = r#"{"kind":"A","metadata":{"name":"a"}}"#;
        let padded = |size: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(manifest.as_bytes()).unwrap();
            encoder.write_all(&vec![b' '; size - manifest.len()]).unwrap();
            ByteString(encoder.finish().unwrap())
        };
        let half = usize::try_from(MAX_BYTES / 2).unwrap();
        let unpacked = |more: usize| {
            let data = [("a".to_owned(), padded(half)), ("b".to_owned(), padded(half + more))];
            let bundle = ConfigMap { binary_data: Some(data.into()), ..ConfigMap::default() };
            unpack(&bundle).map(|objects| objects.len())
        };
        assert_eq!(unpacked(0), Ok(2));
        assert_eq!(unpacked(1), Err("more than the limit of 67108864 bytes".to_owned()));
    }

    #[test]
    fn unpacked_rejects_what_is_no_manifest() {
        let data = Some([("a".to_owned(), "[]".to_owned())].into());
        let bad = ConfigMap { data, ..ConfigMap::default() };
        assert!(unpack(&bad).unwrap_err().starts_with("a: "));
        let binary_data = Some([("b".to_owned(), ByteString(b"no gzip".to_vec()))].into());
        let bad = ConfigMap { binary_data, ..ConfigMap::default() };
        assert!(unpack(&bad).unwrap_err().starts_with("b: "));
    }
}
