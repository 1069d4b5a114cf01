//! `.indexignore`: patterns and paths.

use olm_fbc::indexignore::IndexIgnore;

use crate::texts;

/// Scope, patterns, path. The answer does not depend on when it is asked; a pattern that equals a plain path hides it, and
/// without patterns nothing is hidden.
pub(crate) fn indexignore(input: &[u8]) {
    let [scope, patterns, path] = texts::<3>(input);
    let mut ignore = IndexIgnore::default();
    assert!(!ignore.ignores(&path), "nothing is hidden by nothing");
    ignore.add(&scope, patterns.as_bytes());
    assert_eq!(ignore.ignores(&path), ignore.ignores(&path));
    let plain = |text: &str| {
        let letters = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        text.split('/').all(letters)
    };
    if plain(&path) {
        let mut literal = IndexIgnore::default();
        literal.add("", format!("/{path}\n").as_bytes());
        assert!(literal.ignores(&path), "{path:?} is named and not hidden");
        assert!(
            !literal.ignores(&format!("{path}x/{path}")),
            "an anchored pattern hides what lies elsewhere"
        );
        // a later exception in the same file takes it back
        literal.add("", format!("!/{path}\n").as_bytes());
        assert!(!literal.ignores(&path), "{path:?} is excepted and hidden");
    }
}
