//! Feature gates, written as Kubernetes writes them: `--feature-gates A=true,B=false`, repeatable, later wins.
//!
//! Each process lists its gates; this module reads, defaults and logs them.
//!
//! Rule: operator-controller §2, catalogd §2.3.

use std::collections::BTreeMap;

/// How finished a feature is; `AllAlpha` and `AllBeta` switch by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// May change or go away.
    Alpha,
    /// Well tested, details may change.
    Beta,
    /// Here to stay; the gate remains for those who set it.
    Ga,
}

/// One gate that a process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name, CamelCase.
    pub name: &'static str,
    /// How finished it is.
    pub stage: Stage,
    /// Whether it is on by default.
    pub default: bool,
}

/// Why `--feature-gates` cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FeatureGateError(String);

const ALL_ALPHA: &str = "AllAlpha";
const ALL_BETA: &str = "AllBeta";

/// The state of every gate of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    states: BTreeMap<&'static str, bool>,
}

impl FeatureGates {
    /// Reads the values of all `--feature-gates` flags, in order. `AllAlpha` and `AllBeta` decide for the gates of their stage that
    /// are not named themselves, wherever they stand.
    ///
    /// # Errors
    /// Names the first gate that is unknown or has no true/false value.
    pub fn parse<S: AsRef<str>>(known: &[Gate], flags: &[S]) -> Result<Self, FeatureGateError> {
        let mut named: BTreeMap<&str, bool> = BTreeMap::new();
        for entry in flags.iter().flat_map(|flag| flag.as_ref().split(',')) {
            if entry.trim().is_empty() {
                continue;
            }
            let Some((name, value)) = entry.split_once('=') else {
                return Err(FeatureGateError(format!("missing bool value for {}", entry.trim())));
            };
            let (name, value) = (name.trim(), value.trim());
            if name != ALL_ALPHA && name != ALL_BETA && !known.iter().any(|gate| gate.name == name) {
                let known = names(known);
                let text = format!("unrecognized feature gate: {name}; known gates are {known}");
                return Err(FeatureGateError(text));
            }
            let on = go_bool(value).ok_or_else(|| {
                FeatureGateError(format!("invalid value of {name}={value}; use true or false"))
            })?;
            named.insert(name, on);
        }
        let state = |gate: &Gate| {
            let by_stage = match gate.stage {
                Stage::Alpha => named.get(ALL_ALPHA),
                Stage::Beta => named.get(ALL_BETA),
                Stage::Ga => None,
            };
            *named.get(gate.name).or(by_stage).unwrap_or(&gate.default)
        };
        Ok(Self { states: known.iter().map(|gate| (gate.name, state(gate))).collect() })
    }

    /// Whether the gate is on; a gate that the process does not know is off.
    pub fn enabled(&self, name: &str) -> bool {
        self.states.get(name).copied().unwrap_or(false)
    }

    /// All gates and their states, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, bool)> + '_ {
        self.states.iter().map(|(name, on)| (*name, *on))
    }

    /// Logs every gate, by name.
    pub fn log(&self) {
        for (gate, enabled) in self.iter() {
            tracing::info!(feature = gate, enabled, "feature gate status");
        }
    }
}

fn names(known: &[Gate]) -> String {
    let mut names: Vec<&str> = known.iter().map(|gate| gate.name).chain([ALL_ALPHA, ALL_BETA]).collect();
    names.sort_unstable();
    names.join(", ")
}

/// True and false in all the ways that Go's flags take them.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: &[Gate] = &[
        Gate { name: "New", stage: Stage::Alpha, default: false },
        Gate { name: "Fresh", stage: Stage::Alpha, default: true },
        Gate { name: "Tried", stage: Stage::Beta, default: true },
        Gate { name: "Old", stage: Stage::Ga, default: true },
    ];

    fn states(flags: &[&str]) -> String {
        match FeatureGates::parse(GATES, flags) {
            Ok(gates) => {
                let on: Vec<_> = gates.iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
                on.join(" ")
            }
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn features_read_flags_as_kubernetes_does() {
        let unknown =
            "unrecognized feature gate: Nope; known gates are AllAlpha, AllBeta, Fresh, New, Old, Tried";
        for (flags, want) in [
            (&[][..], "Fresh Old Tried"),
            (&["New=true"], "Fresh New Old Tried"),
            (&[" New = true , Tried=F,"], "Fresh New Old"),
            (&["New=true", "New=false"], "Fresh Old Tried"),
            (&["AllAlpha=true"], "Fresh New Old Tried"),
            (&["AllAlpha=false,AllBeta=false"], "Old"),
            (&["Fresh=true", "AllAlpha=false"], "Fresh Old Tried"),
            (&["New"], "missing bool value for New"),
            (&["New=yes"], "invalid value of New=yes; use true or false"),
            (&["Nope=true"], unknown),
        ] {
            assert_eq!(states(flags), want, "{flags:?}");
        }
    }

    #[test]
    fn features_unknown_gate_is_off() {
        let gates = FeatureGates::parse(GATES, &["New=1"]).unwrap();
        assert!(gates.enabled("New") && !gates.enabled("Other"));
    }
}
