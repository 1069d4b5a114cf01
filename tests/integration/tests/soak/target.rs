//! The target state of one extension, and whether its status reports it as met.

use std::collections::BTreeSet;

use olm_api::{ClusterExtension, annotations, condition, reason};
use olm_integration::extension::{current, installed_version};
use serde_json::{Value, json};

use crate::shelf::{number, version};

/// The requested state of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Want {
    /// That there is none.
    Nothing,
    /// This version, or the newest.
    Version { pin: Option<u32>, self_certified: bool },
    /// A version that no catalog has.
    Unmatched,
    /// A package that no catalog has.
    Unknown,
}

/// An extension, its package and its namespace are of one name.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// The catalog with its package.
    pub(crate) catalog: String,
    pub(crate) want: Want,
    pub(crate) paused: bool,
    /// Versions that may be installed: targets changed faster than they were met.
    pub(crate) maybe: BTreeSet<Option<u32>>,
}

impl Target {
    /// Without an extension.
    pub(crate) fn new(name: &str, catalog: &str) -> Self {
        let maybe = BTreeSet::from([None]);
        Self { name: name.to_owned(), catalog: catalog.to_owned(), want: Want::Nothing, paused: false, maybe }
    }

    /// The highest version that may be installed.
    pub(crate) fn highest(&self) -> Option<u32> {
        self.maybe.iter().next_back().copied().flatten()
    }

    /// The version that must be installed in the end, if that is certain.
    pub(crate) fn aim(&self, newest: u32) -> Option<u32> {
        match self.want {
            Want::Version { pin, .. } if !self.paused => Some(pin.unwrap_or(newest)),
            Want::Version { .. } | Want::Nothing | Want::Unmatched | Want::Unknown => None,
        }
    }

    /// The object to apply.
    pub(crate) fn object(&self) -> Value {
        let mut catalog =
            json!({"packageName": self.name, "selector": {"matchLabels": {"shelf": self.catalog}}});
        match &self.want {
            Want::Nothing => {}
            Want::Version { pin, self_certified } => {
                if let Some(pin) = pin {
                    catalog["version"] = version(*pin).into();
                }
                if *self_certified {
                    catalog["upgradeConstraintPolicy"] = "SelfCertified".into();
                }
            }
            Want::Unmatched => catalog["version"] = ">=900.0.0".into(),
            Want::Unknown => catalog["packageName"] = format!("{}-unknown", self.name).into(),
        }
        let mut metadata = json!({"name": self.name});
        if self.paused {
            metadata["annotations"] = json!({annotations::PAUSED: "true"});
        }
        json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": metadata,
            "spec": {"namespace": self.name, "source": {"sourceType": "Catalog", "catalog": catalog}}})
    }

    /// What is still missing. With nothing missing, what is installed.
    pub(crate) fn fulfilled(
        &self,
        found: Option<&ClusterExtension>,
        newest: u32,
    ) -> Result<Option<u32>, String> {
        let extension = match (found, &self.want) {
            (None, Want::Nothing) => return Ok(None),
            (Some(_), Want::Nothing) => return Err(format!("{} is still there", self.name)),
            (None, _) => return Err(format!("{} is not there", self.name)),
            (Some(extension), _) => extension,
        };
        let installed = installed_version(extension).and_then(number);
        let status_and_reason = |type_: &str| {
            current(extension, type_)
                .map(|found| (found.status.as_str(), found.reason.as_str()))
                .ok_or_else(|| format!("{}: {type_} is not about the present generation", self.name))
        };
        let is = |expected: &[(&str, &str, &str)]| {
            for (type_, status, reason) in expected {
                let (found_status, found_reason) = status_and_reason(type_)?;
                if found_status != *status || (!reason.is_empty() && found_reason != *reason) {
                    return Err(format!(
                        "{}: {type_} is {found_status} ({found_reason}) with {installed:?} installed, {:?} desired, at most {newest}",
                        self.name, self.want
                    ));
                }
            }
            Ok(())
        };
        let has = if installed.is_some() { "True" } else { "False" };
        match self.aim(newest) {
            Some(aim) => {
                is(&[
                    (condition::INSTALLED, "True", ""),
                    (condition::PROGRESSING, "True", reason::SUCCEEDED),
                    (condition::READY, "True", ""),
                ])?;
                if installed != Some(aim) {
                    return Err(format!("{}: {installed:?} is installed, not {aim}", self.name));
                }
            }
            None if self.paused => is(&[(condition::READY, "False", reason::PAUSED)])?,
            None => is(&[
                (condition::INSTALLED, has, ""),
                (condition::PROGRESSING, "True", reason::RETRYING),
                (condition::READY, "False", ""),
            ])?,
        }
        if self.aim(newest).is_none() && !self.maybe.contains(&installed) {
            return Err(format!(
                "{}: {installed:?} is installed, one of {:?} should be",
                self.name, self.maybe
            ));
        }
        Ok(installed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(version: &str, progressing: &str) -> ClusterExtension {
        let all = [
            ("Installed", "True", "Succeeded"),
            ("Progressing", "True", progressing),
            ("Ready", "True", "Succeeded"),
        ];
        let conditions: Vec<Value> = all
            .iter()
            .map(|(type_, status, reason)| {
                json!({"type": type_, "status": status, "reason": reason, "message": "", "observedGeneration": 2,
                    "lastTransitionTime": "2020-01-01T00:00:00Z"})
            })
            .collect();
        let mut object = Target::new("a", "c").object();
        object["metadata"]["generation"] = 2.into();
        object["status"] = json!({"conditions": conditions, "install": {"bundle": {"name": format!("a.v{version}"), "version": version}}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn soak_target_is_met_by_its_version_alone() {
        let mut target = Target::new("a", "c");
        assert_eq!(target.fulfilled(None, 3), Ok(None));
        assert!(target.fulfilled(Some(&found("1.3.0", "Succeeded")), 3).is_err(), "it should be gone");
        target.want = Want::Version { pin: None, self_certified: false };
        assert!(target.fulfilled(None, 3).is_err());
        assert_eq!(target.fulfilled(Some(&found("1.3.0", "Succeeded")), 3), Ok(Some(3)));
        assert!(target.fulfilled(Some(&found("1.3.0", "Succeeded")), 4).is_err(), "there is a newer one");
        assert!(target.fulfilled(Some(&found("1.3.0", "Retrying")), 3).is_err());
        let mut stale = found("1.3.0", "Succeeded");
        stale.metadata.generation = Some(3);
        assert!(target.fulfilled(Some(&stale), 3).is_err(), "conditions of an older generation");
        target.want = Want::Unmatched;
        assert!(target.fulfilled(Some(&found("1.3.0", "Succeeded")), 3).is_err(), "it should be refused");
    }
}
