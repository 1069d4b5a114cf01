//! Decodes the objects of a catalog; what does not decode becomes a finding.

use std::{collections::BTreeSet, ops::Deref};

use olm_yaml::{Limits, yaml_to_json};

use super::object;
use crate::{
    Bundle, Catalog, Channel, Deprecations, FilePosition, Finding, Meta, Package, Subject,
    property::{self, BundleObject},
    schema::{BUNDLE, CHANNEL, DEPRECATIONS, PACKAGE},
};

/// An object of a catalog, decoded.
#[derive(Debug)]
pub(super) struct Decoded<T> {
    pub(super) position: Option<FilePosition>,
    object: T,
}

impl<T> Deref for Decoded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

/// The typed objects of a catalog in catalog order.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) packages: Vec<Decoded<Package>>,
    /// With the object as written.
    pub(super) channels: Vec<(Decoded<Channel>, Meta)>,
    pub(super) bundles: Vec<Decoded<Bundle>>,
    pub(super) deprecations: Vec<Decoded<Deprecations>>,
    /// What is wrong with single objects beside the rules of their schema.
    pub(super) object_findings: Vec<Finding>,
    /// (schema, package, name) of objects that did not decode, so that they are not reported as missing.
    pub(super) undecoded: BTreeSet<(String, String, String)>,
}

pub(super) fn load(catalog: &Catalog, findings: &mut Vec<Finding>) -> Loaded {
    let mut loaded = Loaded::default();
    let lines = catalog.jsonl().split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    for (at, line) in lines.enumerate() {
        let position = || catalog.position(at);
        let meta = match Meta::parse(line) {
            Ok(meta) => meta,
            Err(problem) => {
                findings.push(Finding::error("decode", Subject::default(), problem).at(position()));
                continue;
            }
        };
        let checked = object::check(&meta).into_iter().map(|finding| finding.at(position()));
        loaded.object_findings.extend(checked);
        if let Err(problem) = loaded.add(meta.clone(), position()) {
            let subject = Subject::from_meta(&meta);
            findings.push(Finding::error("decode", subject, problem).at(position()));
            loaded.undecoded.insert((meta.schema, meta.package, meta.name));
        }
    }
    loaded
}

impl Loaded {
    fn add(&mut self, meta: Meta, position: Option<FilePosition>) -> Result<(), String> {
        match meta.schema.as_str() {
            "" => {
                let blob = String::from_utf8_lossy(&meta.blob);
                return Err(format!("object '{blob}\n' is missing root schema field"));
            }
            PACKAGE => self.packages.push(Decoded { object: Package::from_json(&meta.blob)?, position }),
            CHANNEL => {
                let channel = Decoded { object: Channel::from_json(&meta.blob)?, position };
                self.channels.push((channel, meta));
            }
            BUNDLE => {
                let bundle = Bundle::from_json(&meta.blob)?;
                inline_objects(&bundle)?;
                self.bundles.push(Decoded { object: bundle, position });
            }
            DEPRECATIONS => {
                let object = Deprecations::from_json(&meta.blob)?;
                self.deprecations.push(Decoded { object, position });
            }
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
