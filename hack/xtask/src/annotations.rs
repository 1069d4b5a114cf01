//! `docs/reference/annotations.md` from the table of annotations.

use std::fmt::Write as _;
use std::path::PathBuf;

use olm_api::annotations::{ANNOTATIONS, Values};

const HEAD: &str = "# Annotations\n\nMade from `api/src/annotations.rs` by `make generate`; do not edit. They are an API: keys and values change only by a \
    [decision](../decisions/README.md).\n\nOn a ClusterExtension, the policy `olm-annotation-values`, part of every installation, rejects a \
    listed annotation with another value than the listed ones. A value that was there before the policy may stay; without the policy another value has \
    no effect, except those of `paused`, `major-updates`, `user-roles`, `dependency-check` and `accept-crd-change`, which are errors in \
    `Progressing`. Annotations without a row are not read.\n";

/// The page.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    let mut page = HEAD.to_owned();
    page.push_str("\n| annotation | on | set by | values | meaning |\n|---|---|---|---|---|\n");
    for row in ANNOTATIONS {
        let values = match row.values {
            Values::OneOf(values) => {
                values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
            }
            Values::Text(text) => text.to_owned(),
        };
        let (on, set_by, meaning) = (row.on, row.set_by.name(), row.meaning);
        let _ = writeln!(page, "| `{}` | {on} | {set_by} | {values} | {meaning} |", row.key);
    }
    vec![(PathBuf::from("docs/reference/annotations.md"), page)]
}
