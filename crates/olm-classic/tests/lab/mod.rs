//! The recorded scenarios, and how the lab reads them: names that it replaces, and merge patches.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// All of them; without the shared material there are none, and that is printed.
#[expect(clippy::disallowed_methods, reason = "the one setting of tests")]
pub(crate) fn records() -> Option<Vec<Value>> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("OLM_SHARED").map_or_else(beside, PathBuf::from);
    let folder = shared.join("reference-behaviour/classic/scenarios");
    let Ok(files) = std::fs::read_dir(folder) else {
        println!("SKIPPED: recorded scenarios of OLM Classic: no records (set OLM_SHARED)");
        return None;
    };
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    Some(files.iter().map(|file| read(file)).collect())
}

fn read(file: &Path) -> Value {
    // the records were written by YAML 1.1's rules for quotes, where `y` is a text
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&std::fs::read_to_string(file).unwrap(), options).unwrap()
}

/// The words that the lab replaces in its scenarios.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) id: String,
}

impl Names {
    pub(crate) fn namespace(&self) -> String {
        format!("c-{}", self.id)
    }

    pub(crate) fn package(&self, key: &str) -> String {
        format!("{key}-{}", self.id)
    }

    pub(crate) fn csv(&self, version: &str, package: &str) -> String {
        format!("{}.v{version}", self.package(package))
    }

    pub(crate) fn substitute(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.iter().map(|item| self.substitute(item)).collect(),
            Value::Object(members) => {
                members.iter().map(|(key, member)| (self.text(key), self.substitute(member))).collect()
            }
            other => other.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (word, behind) = after.split_once('}').unwrap();
            out.push_str(before);
            out.push_str(&match word.split(':').collect::<Vec<_>>().as_slice() {
                ["SID"] => self.id.clone(),
                ["NS"] => self.namespace(),
                ["NS", other] => format!("{}-{other}", self.namespace()),
                ["PKG"] => self.package("demo"),
                ["PKG", key] => self.package(key),
                ["GROUP"] => self.group(),
                ["CSV", version] => self.csv(version, "demo"),
                ["CSV", key, version] => self.csv(version, key),
                ["REG"] => "<registry>".to_owned(),
                _ => format!("${{{word}}}"),
            });
            rest = behind;
        }
        out + rest
    }

    pub(crate) fn group(&self) -> String {
        format!("{}.lab.test", self.id)
    }
}

/// A JSON merge patch: null removes.
pub(crate) fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else { return into.clone_from(patch) };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, member) in members {
        if member.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key], member);
        }
    }
}
