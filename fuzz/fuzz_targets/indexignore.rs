//! Patterns and paths: no panic, no hang, and a pattern that names a file hides it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_fbc::indexignore::IndexIgnore;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |&byte| byte == 0);
    let (Some(scope), Some(patterns)) = (parts.next(), parts.next()) else { return };
    let path = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let mut ignore = IndexIgnore::default();
    ignore.add(&String::from_utf8_lossy(scope), patterns);
    ignore.ignores(&path);
    let mut literal = IndexIgnore::default();
    literal.add("", b"/plain/name");
    assert!(literal.ignores("plain/name") && !literal.ignores("x/plain/name"));
});
