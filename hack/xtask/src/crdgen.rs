//! `manifests/crds/*.yaml`, `manifests/classic/*.yaml`, and `manifests/openshift/*.yaml` for clusters that are no OpenShift, from the
//! types in olm-api; and the OpenAPI document of the aggregated API of OLM Classic, which has no definition.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::yaml;

/// The OpenAPI document.
const PACKAGES: &str = "api/openapi/packages.operators.coreos.com_v1.json";
const HEAD: &str = "# Generated from api/ by `make generate`. Do not edit.\n";

/// One file for each CRD, named `<group>_<plural>.yaml`, and the OpenAPI document.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let own = olm_api::crds().context("cannot make the CRDs")?;
    let foreign = olm_api::openshift::definitions().context("cannot make the CRDs of OpenShift's kinds")?;
    let classic = olm_api::classic::crds().context("cannot make the CRDs of OLM Classic")?;
    let own = own.into_iter().map(|crd| ("manifests/crds", crd));
    let classic = classic.into_iter().map(|crd| ("manifests/classic", crd));
    let packages = serde_json::to_string_pretty(&olm_api::classic::package_manifest::open_api())?;
    let packages = (PathBuf::from(PACKAGES), format!("{packages}\n"));
    let definitions = own
        .chain(classic)
        .chain(foreign.into_iter().map(|crd| ("manifests/openshift", crd)))
        .map(|(folder, crd)| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            let mut value = serde_json::to_value(&crd)?;
            whole_numbers(&mut value);
            Ok((PathBuf::from(folder).join(name), format!("{HEAD}{}", yaml::block(&value)?)))
        });
    definitions.chain([Ok(packages)]).collect()
}

/// The CRD type holds limits as floats; `720.0` is written as `720`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15) {
                *value = (whole as i64).into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
