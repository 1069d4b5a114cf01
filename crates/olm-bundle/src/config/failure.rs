//! The error message of a rejected configuration. Rule: bundle-rendering §5.5, with the texts made from the flat list of failures as
//! the reference's library flattens them: a failure behind one `$ref` that has one cause is only `validation failed`
//! there, so its cause follows after `; ` (bundle-rendering §16 rows 16, 17 and 19).

use olm_core::go;

use super::validate::{Kind, ValidationError};
use crate::kube::ShapeError;
use crate::modes::InstallModes;
use crate::options::Gates;

/// Help after the reference's text is cut here, in characters.
const HELP_LIMIT: usize = 198;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("invalid ClusterExtension configuration: invalid configuration: {detail}")]
    Invalid {
        /// Every failure, as the reference words it, then help.
        detail: String,
    },
    /// A value of `deploymentConfig` cannot be decoded.
    #[error("invalid deploymentConfig: failed to unmarshal deploymentConfig: {0}")]
    DeploymentConfig(ShapeError),
}

impl ConfigError {
    pub(crate) fn invalid(failures: &[ValidationError], modes: &InstallModes, gates: Gates) -> Self {
        let lines = flat(failures);
        let texts: Vec<String> = lines.iter().map(Line::text).collect();
        let mut detail = match texts.as_slice() {
            [one] => one.clone(),
            many => {
                let listed: String = many.iter().map(|text| format!("\n  - {text}")).collect();
                format!("multiple errors found:{listed}")
            }
        };
        let mut help = Vec::new();
        failures.iter().for_each(|failure| explain(failure, modes, gates, &mut help));
        if !help.is_empty() {
            let help = help.join("; ");
            detail.push_str("; ");
            detail.extend(help.chars().take(HELP_LIMIT));
            if help.chars().count() > HELP_LIMIT {
                detail.push('…');
            }
        }
        Self::Invalid { detail }
    }
}

struct Line<'a> {
    path: &'a [String],
    kind: &'a Kind,
}

/// The flat list of failures below one.
fn flat(causes: &[ValidationError]) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for cause in causes {
        let below = flat(&cause.causes);
        if cause.kind == Kind::Reference && cause.causes.len() == 1 {
            // the library puts the cause's path under the reference's name and drops the rest
            lines.push(Line { path: &cause.causes[0].path, kind: &cause.kind });
        } else {
            lines.push(Line { path: &cause.path, kind: &cause.kind });
            lines.extend(below);
        }
    }
    lines
}

impl Line<'_> {
    fn text(&self) -> String {
        let path = self.path.join(".");
        match self.kind {
            Kind::Group | Kind::Reference => "validation failed".to_owned(),
            Kind::AllOf => "'allOf' failed".to_owned(),
            Kind::AnyOf => format!("invalid value for field {path:?}"),
            Kind::OneOf(None) => "'oneOf' failed, none matched".to_owned(),
            Kind::OneOf(Some((first, second))) => {
                format!("'oneOf' failed, subschemas {first}, {second} matched")
            }
            Kind::Type { got: "null", .. } if !path.is_empty() => {
                format!("required field {path:?} is missing")
            }
            Kind::Type { got, want } if path.is_empty() => format!("invalid type: got {got}, want {want}"),
            Kind::Type { got, want } => format!("invalid type for field {path:?}: got {got}, want {want}"),
            Kind::Required(missing) => format!("required field {:?} is missing", first(missing)),
            Kind::Additional(unknown) => format!("unknown field {:?}", first(unknown)),
            Kind::Format { got, name, reason } => {
                format!("invalid format for field {path:?}: {} is not valid {name}: {reason}", quoted(got))
            }
            Kind::MinLength { got, want } => {
                format!("field {path:?} must have minimum length of {want} (len={got})")
            }
            Kind::MaxLength { got, want } => {
                format!("field {path:?} must have maximum length of {want} (len={got})")
            }
            Kind::Pattern { want, .. } => format!("field {path:?} must match pattern {want:?}"),
        }
    }
}

fn first(names: &[String]) -> &str {
    names.first().map(String::as_str).unwrap_or_default()
}

/// A text in single quotes, as the reference's library prints values.
fn quoted(text: &str) -> String {
    let inner = go::quote(text).replace("\\\"", "\"").replace('\'', "\\'");
    format!("'{}'", &inner[1..inner.len() - 1])
}

/// Adds to `help` what the texts above leave out.
fn explain(failure: &ValidationError, modes: &InstallModes, gates: Gates, help: &mut Vec<String>) {
    let path = failure.path.join(".");
    match &failure.kind {
        Kind::Reference if failure.causes.len() == 1 => leaves(&failure.causes[0], help),
        Kind::Reference | Kind::Group | Kind::AllOf => {
            failure.causes.iter().for_each(|cause| explain(cause, modes, gates, help));
        }
        Kind::Required(missing) if missing.len() > 1 => {
            help.push(format!("also missing: {}", listed(&missing[1..])))
        }
        Kind::Additional(unknown) => {
            if unknown.len() > 1 {
                help.push(format!("also unknown: {}", listed(&unknown[1..])));
            }
            if path.is_empty() && unknown.iter().any(|name| name == "watchNamespace") {
                help.push(format!("install modes {modes} leave no namespace to choose"));
            }
            if path.is_empty()
                && !gates.deployment_config
                && unknown.iter().any(|name| name == "deploymentConfig")
            {
                help.push("the feature gate DeploymentConfig is off".to_owned());
            }
            if path == "deploymentConfig" && unknown.iter().any(|name| name == "selector") {
                help.push("selectors of a bundle's deployments cannot be changed".to_owned());
            }
        }
        Kind::Type { got: "null", want } if want != "string" => {
            help.push(format!("{path} must be an {want}, not null"))
        }
        _ => {}
    }
}

/// Every leaf failure with its path, for failures that the reference's text does not describe.
fn leaves(failure: &ValidationError, help: &mut Vec<String>) {
    let path = failure.path.join(".");
    match &failure.kind {
        Kind::Group | Kind::Reference | Kind::AllOf => {
            failure.causes.iter().for_each(|cause| leaves(cause, help))
        }
        Kind::Required(missing) => {
            help.extend(missing.iter().map(|name| format!("{path}.{name} is missing")))
        }
        Kind::OneOf(None) | Kind::AnyOf => {
            let wants: Vec<_> = failure
                .causes
                .iter()
                .filter_map(|cause| match &cause.kind {
                    Kind::Type { want, .. } => Some(want.as_str()),
                    _ => None,
                })
                .collect();
            help.push(format!("{path} must be one of: {}", wants.join(", ")));
        }
        Kind::Type { got, want } => help.push(format!("{path}: got {got}, want {want}")),
        _ => help.push(Line { path: &failure.path, kind: &failure.kind }.text()),
    }
}

fn listed(names: &[String]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_escapes_as_go() {
        for (text, want) in
            [("a\"b'c", r#"'a"b\'c'"#), ("\u{7}\u{b}\0", r"'\a\v\x00'"), ("é\u{a0}", r"'é\u00a0'")]
        {
            assert_eq!(quoted(text), want);
        }
    }
}
