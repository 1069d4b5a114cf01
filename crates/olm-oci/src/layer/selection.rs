//! The selected part of an image, and the meaning of names in a tar.
//!
//! Rule: catalogd §5.7. Names are slash-separated, relative to the image's root and cleaned (`./a//b` and `/a/b` are `a/b`). A name
//! that leaves the root is never selected.

use crate::error::ImageError;

/// The selected paths of an image: everything, or some paths with all that is beneath them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Cleaned paths; empty means everything.
    roots: Vec<String>,
}

impl Selection {
    /// The whole image.
    #[must_use]
    pub fn everything() -> Self {
        Self { roots: Vec::new() }
    }

    /// These paths with all that is beneath them, e.g. `manifests/` and `metadata/`. `/`, `.` and the empty path mean
    /// everything, as in a catalog's configs label (one leading `/` is taken off).
    ///
    /// # Errors
    /// A path that contains `..` beyond its own start, with the text of catalogd §5.7.
    pub fn beneath<I, P>(paths: I) -> Result<Self, ImageError>
    where
        I: IntoIterator<Item = P>,
        P: AsRef<str>,
    {
        let mut roots = Vec::new();
        for path in paths {
            let path = path.as_ref();
            match clean(path.strip_prefix('/').unwrap_or(path)) {
                Some(root) if root.is_empty() => return Ok(Self::everything()),
                Some(root) => roots.push(root),
                None => {
                    return Err(ImageError::Content(format!(
                        "error getting relative path: {path:?} leads out of the image"
                    )));
                }
            }
        }
        Ok(Self { roots })
    }

    /// Is `path` (cleaned) selected?
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.roots.is_empty() || self.roots.iter().any(|root| is_beneath(path, root))
    }

    /// Is `path` (cleaned) a directory above a selected path? A whiteout or a replacement of it matters, though it is not
    /// selected itself.
    pub(crate) fn leads_to(&self, path: &str) -> bool {
        self.roots.iter().any(|root| root != path && is_beneath(root, path))
    }
}

/// Is `path` equal to `root` or inside of it? Both cleaned.
pub(crate) fn is_beneath(path: &str, root: &str) -> bool {
    root.is_empty() || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The shortest equivalent of a relative path; empty for the root itself, `None` when it leaves the root.
/// A leading `/` is read as the root.
pub(crate) fn clean(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The directories above a cleaned path, outermost first, without the root.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_is_limited_to_labelled_directory() {
        for (label, path, want) in [
            ("/configs", "configs", true),
            ("/configs", "configs/a/b.yaml", true),
            ("/configs", "configs2/x", false),
            ("configs/", "configs/x", true),
            ("/", "etc/passwd", true),
            ("", "anything", true),
            (".", "anything", true),
            ("/a/../configs/.", "configs/x", true),
        ] {
            let selection = Selection::beneath([label]).unwrap();
            assert_eq!(selection.contains(path), want, "label {label:?}, path {path:?}");
        }
        let error = Selection::beneath(["../x"]).unwrap_err().to_string();
        assert!(error.starts_with("error getting relative path: "), "{error}");
    }

    #[test]
    fn selection_recognizes_parent_directories() {
        let selection = Selection::beneath(["data/configs"]).unwrap();
        assert!(selection.leads_to("data"));
        assert!(!selection.leads_to("data/configs"));
        assert!(!selection.leads_to("dat"));
        assert_eq!(ancestors("a/b/c").collect::<Vec<_>>(), ["a", "a/b"]);
    }

    #[test]
    fn clean_never_leaves_the_root() {
        for (path, want) in [
            ("./a//b/", Some("a/b")),
            ("a/../b", Some("b")),
            ("..", None),
            ("a/../../b", None),
            ("/etc", Some("etc")),
            (".", Some("")),
        ] {
            assert_eq!(clean(path).as_deref(), want, "{path}");
        }
    }
}
