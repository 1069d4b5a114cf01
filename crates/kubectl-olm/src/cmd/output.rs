//! The forms in which findings are printed.

use clap::ValueEnum;
use serde::Serialize;

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Form {
    /// One line a finding.
    #[default]
    Text,
    /// A JSON list.
    Json,
}

/// One line of text, or one JSON object, a row.
pub(crate) fn rows<T: Serialize>(form: Form, rows: &[T], text: impl Fn(&T) -> String) -> String {
    match form {
        Form::Text => rows.iter().map(|row| text(row) + "\n").collect(),
        Form::Json => serde_json::to_string_pretty(rows).unwrap_or_default() + "\n",
    }
}
