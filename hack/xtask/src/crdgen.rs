//! `manifests/crds/*.yaml` from the types in olm-api.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::yaml;

const HEAD: &str = "# Generated from api/ by `make generate`. Do not edit.\n";

/// One file for each CRD, named `<group>_<plural>.yaml`.
pub(crate) fn files() -> Result<Vec<(PathBuf, String)>> {
    let crds = olm_api::crds().context("cannot make the CRDs")?;
    crds.into_iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            let mut value = serde_json::to_value(&crd)?;
            whole_numbers(&mut value);
            Ok((PathBuf::from("manifests/crds").join(name), format!("{HEAD}{}", yaml::block(&value))))
        })
        .collect()
}

/// The CRD type holds limits as floats; `720.0` is written as `720`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15) {
                let whole = whole as i64;
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
