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

/// A place in a file of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    /// From the root of the catalog.
    pub path: String,
    /// From 1.
    pub line: u64,
    /// In characters, from 1; unknown of a file that does not decode.
    pub column: Option<u64>,
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path, self.line)?;
        self.column.map_or(Ok(()), |column| write!(f, ":{column}"))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    pub severity: Severity,
    /// Short name of the rule, such as `A12` or `channel-head` (fbc §8).
    pub rule: &'static str,
    pub subject: Subject,
    /// Where the object begins that it is about. Only [`crate::validate`] and [`crate::file_findings`] fill it in.
    pub position: Option<FilePosition>,
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
        Self { severity: Severity::Error, rule, subject, position: None, path, message, hint: None }
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
    pub fn at(mut self, position: Option<FilePosition>) -> Self {
        self.position = position;
        self
    }

    /// The text with the position before it, if there is one.
    #[must_use]
    pub fn located(&self) -> String {
        match &self.position {
            Some(position) => format!("{position}: {self}"),
            None => self.to_string(),
        }
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
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
    pub(crate) fn from_meta(meta: &crate::Meta) -> Self {
        Self { package: meta.package.clone(), schema: meta.schema.clone(), name: meta.name.clone() }
    }
}
