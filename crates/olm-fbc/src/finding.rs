//! Findings about a catalog, as data; their text is made last.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// `opm validate` refuses it too, or the entry had to be left out.
    Error,
    /// It works, but probably not as meant.
    Warning,
}

/// Which object a finding is about. Empty members are unknown.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Subject {
    pub package: String,
    pub schema: String,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub severity: Severity,
    /// Short name of the rule, such as `A12` or `channel-head` (fbc §8).
    pub rule: &'static str,
    pub subject: Subject,
    /// Where in the model it was found, outermost first: `invalid package "p"`, `invalid channel "c"`,
    /// `invalid bundle "b"`. Empty for what is wrong with an object by itself.
    pub path: Vec<String>,
    /// The error message, the reference's where it has one.
    pub message: String,
    pub hint: Option<String>,
}

impl Finding {
    pub fn error(rule: &'static str, subject: Subject, message: impl Into<String>) -> Self {
        let (path, message) = (Vec::new(), message.into());
        Self { severity: Severity::Error, rule, subject, path, message, hint: None }
    }

    pub fn warning(rule: &'static str, subject: Subject, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(rule, subject, message) }
    }

    /// The same, found below `path`.
    #[must_use]
    pub fn below(mut self, path: &[String]) -> Self {
        self.path = path.to_vec();
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in &self.path {
            write!(f, "{level}: ")?;
        }
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl Subject {
    pub fn from_meta(meta: &crate::Meta) -> Self {
        Self { package: meta.package.clone(), schema: meta.schema.clone(), name: meta.name.clone() }
    }
}
