//! Decodes the objects of a catalog; what does not decode becomes a finding.

use std::collections::BTreeSet;

use olm_yaml::{Limits, yaml_to_json};

use crate::{
    Bundle, Catalog, Channel, Deprecations, Finding, Meta, Package, Subject,
    property::{self, BundleObject},
    schema::{BUNDLE, CHANNEL, DEPRECATIONS, PACKAGE},
};

/// The typed objects of a catalog in catalog order.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) packages: Vec<Package>,
    /// With the object as written.
    pub(super) channels: Vec<(Channel, Meta)>,
    pub(super) bundles: Vec<Bundle>,
    pub(super) deprecations: Vec<Deprecations>,
    /// (schema, package, name) of objects that did not decode, so that they are not reported as missing.
    pub(super) undecoded: BTreeSet<(String, String, String)>,
}

pub(super) fn load(catalog: &Catalog, findings: &mut Vec<Finding>) -> Loaded {
    let mut loaded = Loaded::default();
    for line in catalog.jsonl().split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let meta = match Meta::parse(line) {
            Ok(meta) => meta,
            Err(problem) => {
                findings.push(Finding::error("decode", Subject::default(), problem));
                continue;
            }
        };
        if let Err(problem) = loaded.add(meta.clone()) {
            findings.push(Finding::error("decode", Subject::from_meta(&meta), problem));
            loaded.undecoded.insert((meta.schema, meta.package, meta.name));
        }
    }
    loaded
}

impl Loaded {
    fn add(&mut self, meta: Meta) -> Result<(), String> {
        match meta.schema.as_str() {
            "" => {
                let blob = String::from_utf8_lossy(&meta.blob);
                return Err(format!("object '{blob}\n' is missing root schema field"));
            }
            PACKAGE => self.packages.push(Package::from_json(&meta.blob)?),
            CHANNEL => self.channels.push((Channel::from_json(&meta.blob)?, meta)),
            BUNDLE => {
                let bundle = Bundle::from_json(&meta.blob)?;
                inline_objects(&bundle)?;
                self.bundles.push(bundle);
            }
            DEPRECATIONS => self.deprecations.push(Deprecations::from_json(&meta.blob)?),
            _ => {}
        }
        Ok(())
    }
}

/// Decodes the manifests that a bundle carries inline (fbc §5.3).
fn inline_objects(bundle: &Bundle) -> Result<(), String> {
    let failed = |problem: String| {
        format!("read bundle objects: package {:?}, bundle {:?}: {problem}", bundle.package, bundle.name)
    };
    for (index, property) in bundle.properties.iter().enumerate() {
        if property.kind != property::BUNDLE_OBJECT {
            continue;
        }
        let object: BundleObject = property.decode_value().map_err(|problem| {
            failed(format!("parse property at index {index} as bundle object: {problem}"))
        })?;
        let mut json = Vec::new();
        yaml_to_json(&object.data.0, &mut json, &Limits::default()).map_err(|error| {
            let problem = error.message.replace("error converting YAML to JSON: ", "");
            failed(format!("convert bundle object property at index {index} to JSON: {problem}"))
        })?;
    }
    Ok(())
}
