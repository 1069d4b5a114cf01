//! Layers as builders make them, layers as attackers make them, and random stacks against a slow second implementation. Above 600 lines
//! because they are one table of cases of one function, with its helpers.

use std::collections::BTreeMap;
use std::io::Read;

use proptest::prelude::*;

use super::testing::{TarOf, blob, gzip, unpacked, visit, zstd, zstd_with_window};
use super::{Applier, Selection, Visitor};
use crate::error::{Error, Retry};
use crate::limits::Limits;

fn files(layers: &[Vec<u8>], selection: &[&str]) -> Vec<String> {
    unpacked(layers, selection, &Limits::default()).unwrap()
}

fn rejection(layers: &[Vec<u8>], limits: &Limits) -> String {
    unpacked(layers, &["configs"], limits).unwrap_err().to_string()
}

#[test]
fn layer_compressions_are_decompressed() {
    let tar = TarOf::new().directory("configs/").file("./configs/a", "1").file("other", "x").tar();
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 9, 9, 9, 9], &zstd(&tar)[..]].concat();
    let members = [gzip(&tar[..700]), gzip(&tar[700..])].concat();
    for (name, layer) in [
        ("plain", tar.clone()),
        ("gzip", gzip(&tar)),
        ("gzip members", members),
        ("zstd", zstd(&tar)),
        ("zstd frames", [zstd(&tar[..700]), zstd(&tar[700..])].concat()),
        ("zstd with a skippable frame", skippable),
        ("without end mark", TarOf::new().file("configs/a", "1").unfinished()),
    ] {
        assert_eq!(files(&[layer], &["/configs"]), ["configs/a=1"], "{name}");
    }
}

#[test]
fn layer_rejects_unsupported_compressions() {
    for (name, head) in [("bzip2", &b"BZh91AY&SY"[..]), ("xz", &b"\xfd7zXZ\0rest"[..])] {
        let got = rejection(&[head.to_vec()], &Limits::default());
        let want = format!(
            "error applying image: error reading layer[0]: compression {name} is not supported: use gzip, zstd or none"
        );
        assert_eq!(got, want);
    }
}

#[test]
fn layers_replace_and_hide_lower_files() {
    let lower = TarOf::new()
        .directory("configs")
        .file("configs/replaced", "old")
        .file("configs/kept", "kept")
        .file("configs/gone", "gone")
        .file("configs/dir/one", "1")
        .file("configs/dir/two", "2")
        .file("configs/tree/deep/x", "x")
        .file("configs/now-a-file/x", "x")
        .file("configs/now-a-dir", "file")
        .tar();
    let upper = TarOf::new()
        .file("configs/replaced", "new")
        .file("configs/.wh.gone", "")
        .file("configs/dir/three", "3")
        .file("configs/dir/.wh..wh..opq", "")
        .file("configs/.wh.tree", "")
        .file("configs/now-a-file", "file")
        .file("configs/now-a-dir/y", "y")
        .tar();
    let want = [
        "configs/dir/three=3",
        "configs/kept=kept",
        "configs/now-a-dir/y=y",
        "configs/now-a-file=file",
        "configs/replaced=new",
    ];
    assert_eq!(files(&[lower.clone(), upper.clone()], &["configs"]), want);
    assert_eq!(files(&[lower, gzip(&upper)], &[]), want, "everything selected");
}

#[test]
fn whiteout_of_selected_directory_is_applied() {
    let lower = TarOf::new().file("data/configs/a", "1").tar();
    for whiteout in ["data/.wh.configs", ".wh.data", "data/.wh..wh..opq", ".wh..wh..opq"] {
        let upper = TarOf::new().file(whiteout, "").file("data/configs/b", "2").tar();
        assert_eq!(files(&[lower.clone(), upper], &["data/configs"]), ["data/configs/b=2"], "{whiteout}");
    }
    let upper = TarOf::new().file("data/configs/.wh..wh..plnk", "").tar();
    assert_eq!(files(&[lower, upper], &["data/configs"]), ["data/configs/a=1"]);
}

#[test]
fn layer_prefers_later_entry() {
    let layer = TarOf::new()
        .file("configs/a", "first")
        .hard_link("configs/link", "configs/a")
        .file("configs/a", "second")
        .file("configs/d/x", "x")
        .file("configs/d", "file")
        .file("configs/e", "file")
        .directory("configs/e")
        .file("configs/e/y", "y")
        .tar();
    let want = ["configs/a=second", "configs/d=file", "configs/e/y=y", "configs/link=first"];
    assert_eq!(files(&[layer], &["configs"]), want);
}

#[test]
fn layer_links_inside_become_files() {
    let lower = TarOf::new().file("configs/real", "R").symlink("configs/soft", "real").tar();
    let upper = TarOf::new()
        .symlink("configs/up", "../configs/real")
        .symlink("configs/abs", "/configs/soft")
        .hard_link("configs/hard", "configs/up")
        .hard_link("configs/cross", "configs/real")
        .symlink("elsewhere", "/etc/passwd")
        .hard_link("elsewhere2", "../../etc/passwd")
        .tar();
    let want = ["abs", "cross", "hard", "real", "soft", "up"].map(|name| format!("configs/{name}=R"));
    assert_eq!(files(&[lower, upper], &["configs"]), want);
}

#[test]
#[rustfmt::skip]
fn layer_rejects_hostile_entries() {
    let special = |flag| TarOf::new().entry(flag, "configs/x", "", b"").tar();
    for (layer, want) in [
        (TarOf::new().symlink("configs/x", "/etc/passwd").tar(), "not one of the unpacked files"),
        (TarOf::new().symlink("configs/x", "../../etc/passwd").tar(), r#"link "configs/x" leads out of the image"#),
        (TarOf::new().hard_link("configs/x", "../etc/passwd").tar(), r#"hard link "configs/x" leads out of the image"#),
        (TarOf::new().hard_link("configs/x", "etc/passwd").tar(), "not one of the unpacked files"),
        (TarOf::new().hard_link("configs/x", "configs/x").tar(), "points to itself"),
        (TarOf::new().file("configs/x/y", "1").hard_link("configs/x", "configs/x/y").tar(), "replaces the directory of its target"),
        (TarOf::new().symlink("configs/x", "x").tar(), "leads through more than 40 links"),
        (TarOf::new().symlink("configs/l", "/tmp").file("configs/l/x", "").tar(), r#"lies beneath the link "configs/l""#),
        (TarOf::new().file("configs/f", "").file("configs/f/x", "").tar(), r#"lies beneath the file "configs/f""#),
        (TarOf::new().file("configs/a", "").hard_link(".", "configs/a").tar(),
            r#"entry "." makes something else than a directory of the image's root"#),
        (TarOf::new().file("configs/a", "").symlink("./", "configs/a").tar(), "of the image's root"),
        (special(b'S'), r#"entry "configs/x" is a sparse file"#),
        (special(b'V'), "unhandled tar header type 86"),
        (TarOf::new().file("configs/.wh...", "").tar(), "invalid whiteout name"),
        (TarOf::new().entry(b'0', b"configs/\xff\xfe", "", b"").tar(), "a name that is not UTF-8"),
        (b"this is not a tar archive, only text\n".repeat(50), "invalid tar header"),
        (gzip(&b"this is not a tar archive, only text\n".repeat(50)), "invalid tar header"),
        (TarOf::new().header(b'0', b"configs/x", "", 5000).raw(b"short").unfinished(), "unexpected EOF"),
        ([&gzip(&TarOf::new().file("configs/a", "1").tar())[..20]].concat(), "unexpected EOF"),
        (zstd(&TarOf::new().file("configs/a", "1").tar())[..20].to_vec(), "unexpected EOF"),
        (b"\x1f\x8bnot gzip at all".to_vec(), "error applying layer[0]"),
        (b"\x28\xb5\x2f\xfdnot zstd at all".to_vec(), "error applying layer[0]"),
    ] {
        let got = rejection(&[layer], &Limits::default());
        assert!(got.starts_with("error applying image: "), "{got}");
        assert!(got.contains(want), "want {want:?} in {got:?}");
    }
}

/// A digest mismatch is reported whatever the damaged bytes parse as: a retry can help, the image may be valid.
#[test]
fn layer_damaged_in_transit_reports_digest_mismatch() {
    let tar = TarOf::new().file("configs/a", "1".repeat(5000)).tar();
    for (whole, at) in [(tar.clone(), 3), (tar.clone(), 2000), (gzip(&tar), 30), (zstd(&tar), 12)] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let source = vec![bytes::Bytes::from(damaged)].into_iter();
        let want = super::hash_of(olm_core::DigestAlgorithm::Sha256, &whole).unwrap();
        let blob = super::Verified::new(source, want, whole.len() as u64);
        let mut applier = Applier::new(Ones, Selection::beneath(["configs"]).unwrap(), Limits::default());
        let super::VisitError::Pull(error) = applier.layer(0, blob).unwrap_err() else {
            panic!("byte {at}: the visitor was believed");
        };
        let text = error.to_string();
        assert!(text.contains("digest mismatch: want sha256:"), "byte {at}: {text}");
        assert_eq!(error.retry(), Retry::Backoff);
    }
}

/// Takes nothing but ones.
struct Ones;

impl Visitor for Ones {
    type Error = String;

    fn file(&mut self, path: &str, _: u64, content: &mut dyn Read) -> Result<(), String> {
        let mut text = Vec::new();
        content.read_to_end(&mut text).map_err(|error| error.to_string())?;
        if text.iter().all(|byte| *byte == b'1') {
            Ok(())
        } else {
            Err(format!("{path} is not as it should be"))
        }
    }

    fn alias(&mut self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn remove(&mut self, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// rule: catalogd §5.7, also in the extensions of tar: names are read from the root, and those that leave it are not selected.
#[test]
fn layer_extended_headers_are_checked() {
    let record = |key: &str, value: &str| {
        let body = format!(" {key}={value}\n");
        let length = (body.len()..).find(|length| length.to_string().len() + body.len() == *length).unwrap();
        format!("{length}{body}").into_bytes()
    };
    let pax = |flag: u8, key: &str, value: &str| TarOf::new().entry(flag, "pax", "", &record(key, value));
    let gnu = |flag: u8, value: &str| TarOf::new().entry(flag, "././@LongLink", "", value.as_bytes());
    for (layer, want) in [
        (pax(b'x', "linkpath", "../../etc/passwd").symlink("configs/a", "b"), "leads out of the image"),
        (gnu(b'K', "/etc/passwd").symlink("configs/a", "b"), "not one of the unpacked files"),
        (gnu(b'K', "../etc/passwd").hard_link("configs/a", "b"), "leads out of the image"),
        (pax(b'x', "path", "configs/x\0y").file("configs/a", ""), "NUL in a pax path"),
        (pax(b'x', "GNU.sparse.realsize", "9999999999").file("configs/a", ""), "is a sparse file"),
        (pax(b'x', "size", "9999999999").file("configs/a", "short"), "exceeds the limit of 2147483648 bytes"),
        (pax(b'x', "size", "99999").file("configs/a", "short"), "unexpected EOF"),
        (pax(b'x', "size", "-1").file("configs/a", ""), "malformed pax size"),
        (pax(b'x', "size", "18446744073709551615").file("configs/a", ""), "size out of range"),
    ] {
        let got = rejection(&[layer.tar()], &Limits::default());
        assert!(got.contains(want), "want {want:?} in {got:?}");
    }
    let plain = |name: &str| TarOf::new().file(name, "1");
    for (layer, want) in [
        (plain("/configs/x"), &["configs/x=1"][..]),
        (plain("//x/../configs/x"), &["configs/x=1"]),
        (plain("../x"), &[]),
        (plain("../configs/x"), &[]),
        (plain("configs/../../configs/x"), &[]),
        (plain("/../configs/x"), &[]),
        (pax(b'x', "path", "/configs/x").file("configs/a", "1"), &["configs/x=1"]),
        (pax(b'x', "path", "../x").file("configs/a", "1"), &[]),
        (pax(b'g', "path", "configs/../../x").file("configs/a", "1"), &[]),
        (gnu(b'L', "/configs/x\0").file("configs/a", "1"), &["configs/x=1"]),
        (gnu(b'L', "configs/../../x").file("configs/a", "1"), &[]),
    ] {
        let layer = layer.tar();
        for selection in [&["configs"][..], &[]] {
            assert_eq!(files(std::slice::from_ref(&layer), selection), want, "{selection:?}");
        }
    }
    // alike is not equal: no name is folded, composed, trimmed or read as another system's path
    let similar = [
        "configs/A",
        "configs/a",
        "configs/e\u{301}",
        "configs/\u{e9}",
        "configs/..\\x",
        "configs/a ",
        "configs/a.",
    ];
    let layer =
        similar.iter().fold(TarOf::new(), |tar, name| tar.file(name, "1")).file("Configs/a", "2").tar();
    let mut want: Vec<String> = similar.iter().map(|name| format!("{name}=1")).collect();
    want.sort();
    assert_eq!(files(&[layer], &["configs"]), want);
}

/// rule: catalogd §12 row 18
#[test]
fn layer_devices_and_pipes_are_passed_over() {
    let lower = TarOf::new().file("configs/x", "1").file("configs/y", "1").tar();
    for flag in [b'3', b'4', b'6'] {
        let special = |name: &str| TarOf::new().entry(flag, name, "", b"");
        assert_eq!(files(&[lower.clone(), special("configs/x").tar()], &["configs"]), ["configs/y=1"]);
        assert_eq!(files(&[lower.clone(), special("dev/x").tar()], &[]), ["configs/x=1", "configs/y=1"]);
        let replaced = special("configs/x").file("configs/x", "2").tar();
        assert_eq!(files(&[lower.clone(), replaced], &["configs"]), ["configs/x=2", "configs/y=1"]);
        let link = special("configs/x").hard_link("configs/z", "configs/x").tar();
        assert!(rejection(&[link], &Limits::default()).contains("not one of the unpacked files"));
    }
}

#[test]
fn layer_ignores_invalid_entries_outside_selection() {
    let layer = TarOf::new()
        .entry(b'3', "dev/console", "", b"")
        .file("/absolute/elsewhere", "")
        .symlink("bin", "/nowhere")
        .file("bin/sh", "")
        .entry(b'0', b"caf\xe9", "", b"")
        .file("configs/a", "1")
        .tar();
    assert_eq!(files(&[layer], &["configs"]), ["configs/a=1"]);
}

#[test]
fn layer_link_above_selection_is_not_visited() {
    let lower = TarOf::new().file("configs/b/c", "1").tar();
    for upper in [
        TarOf::new().file("x", "2").hard_link("configs", "x"),
        TarOf::new().file("x", "2").symlink("configs", "x"),
    ] {
        // it replaces the directory above the selection, and leads to a selected file
        let got = files(&[lower.clone(), upper.tar()], &["configs/b", "x"]);
        assert_eq!(got, ["x=2"]);
    }
}

#[test]
fn layer_rejects_hard_link_to_replaced_file() {
    let lower = TarOf::new().file("configs/a", "old").hard_link("configs/b", "configs/a").tar();
    let upper = TarOf::new().file("configs/a", "new").tar();
    let got = rejection(&[lower.clone(), upper.clone()], &Limits::default());
    assert!(got.ends_with(r#"a hard link refers to "configs/a", which a later layer replaced"#), "{got}");
    let top = TarOf::new().file("configs/b", "b").tar();
    assert_eq!(files(&[lower, upper, top], &["configs"]), ["configs/a=new", "configs/b=b"]);
}

#[test]
#[rustfmt::skip]
fn limit_errors_name_the_limit() {
    let small = Limits {
        unpacked_bytes: 100_000,
        selected_bytes: 10_000,
        file_bytes: 6_000,
        entries: 50,
        selected_entries: 20,
        ratio: 50,
        ratio_from: 50_000,
        name_bytes: 60,
        depth: 5,
        ..Limits::default()
    };
    let many = |prefix: &str, n: usize, size: usize| {
        (0..n).fold(TarOf::new(), |tar, i| tar.file(&format!("{prefix}/{i}"), vec![b'x'; size]))
    };
    let noise: Vec<u8> = (0..120_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for (name, layer, want) in [
        ("bomb", gzip(&many("other", 1, 90_000).tar()), "compression ratio of the layer exceeds the limit of 50 to 1"),
        ("zstd bomb", zstd(&many("other", 1, 90_000).tar()), "compression ratio of the layer exceeds"),
        ("large", TarOf::new().file("other", &noise).tar(), "decompressed content of the image exceeds the limit of 100000 bytes"),
        ("file", many("configs", 1, 7_000).tar(), r#"file "configs/0" exceeds the limit of 6000 bytes"#),
        ("selected", many("configs", 3, 5_000).tar(), "selected content of the image exceeds the limit of 10000 bytes"),
        ("entries", many("other", 51, 0).tar(), "number of tar entries exceeds the limit of 50 entries"),
        ("wanted", many("configs", 21, 0).tar(), "number of selected entries exceeds the limit of 20 entries"),
        ("whiteouts", many("configs/.wh.x", 21, 0).tar(), "number of selected entries exceeds"),
        ("name", many(&format!("configs/{}", "n".repeat(70)), 1, 0).tar(), "length of a name in the image exceeds the limit of 60 bytes"),
        ("depth", many("configs/a/b/c/d/e", 1, 0).tar(), "depth of a name in the image exceeds the limit of 5 components"),
        ("links cost as much as files",
            (0..3).fold(many("configs", 1, 5_000), |tar, i| tar.hard_link(&format!("configs/l{i}"), "configs/0")).tar(),
            "selected content of the image exceeds"),
        ("soft links too", (0..3).fold(many("configs", 1, 5_000), |tar, i| tar.symlink(&format!("configs/l{i}"), "0")).tar(),
            "selected content of the image exceeds"),
    ] {
        let got = unpacked(&[layer], &["configs"], &small);
        let got = got.map(|files| files.len()).map_err(|error| error.to_string());
        assert!(got.as_ref().is_err_and(|text| text.contains(want)), "{name}: want {want:?} in {got:?}");
    }
    // at the limit, or less than a block of the tar below it; what is packed has a lower ratio
    let packed = [&noise[..40_000], "x".repeat(40_000).as_bytes()].concat();
    for (name, layer, want) in [
        ("not bombs", gzip(&TarOf::new().file("other", packed).tar()), 0),
        ("large", TarOf::new().file("other", &noise[..98_304]).tar(), 0),
        ("file", many("configs", 1, 6_000).tar(), 1),
        ("selected", many("configs", 2, 5_000).tar(), 2),
        ("entries", many("other", 50, 0).tar(), 0),
        ("wanted", many("configs", 20, 0).tar(), 20),
        ("name", many(&format!("configs/{}", "n".repeat(50)), 1, 0).tar(), 1),
        ("depth", many("configs/a/b/c", 1, 0).tar(), 1),
    ] {
        assert_eq!(unpacked(&[layer], &["configs"], &small).unwrap().len(), want, "{name}");
    }
}

/// The window is the one in the frame header, however little content there is.
#[test]
fn zstd_window_is_limited() {
    let tar = TarOf::new().file("configs/a", vec![b'x'; 1_000]).file("manifests/a", "1").tar();
    for (window_log, supported) in [(20, true), (23, true), (24, false), (27, false)] {
        let frame = zstd_with_window(&tar, window_log);
        // a frame behind another one counts as well
        for layer in [frame.clone(), [zstd(b""), frame].concat()] {
            for (limits, selection) in [(Limits::default(), "configs"), (Limits::bundle(), "manifests")] {
                let got = unpacked(std::slice::from_ref(&layer), &[selection], &limits);
                let got = got.map(|files| files.len()).map_err(|error| error.to_string());
                let want = match supported {
                    true => Ok(1),
                    false => Err("error applying image: error reading layer[0]: a zstd window of more than 8388608 bytes \
                                  (8 MiB) is not supported: compress the layer without --long and at level 19 or below"
                        .to_owned()),
                };
                assert_eq!(got, want, "window of 2^{window_log}");
            }
        }
    }
}

#[test]
fn bundle_bytes_are_limited_to_28_mib() {
    let half = vec![b'#'; 14 << 20];
    let layer = |last: usize| {
        TarOf::new()
            .file("manifests/a", &half)
            .file("manifests/b", vec![b'#'; (14 << 20) - 10])
            .file("metadata/c", vec![b'#'; last])
            .tar()
    };
    let content = ["manifests", "metadata"];
    assert_eq!(unpacked(&[layer(10)], &content, &Limits::bundle()).unwrap().len(), 3);
    let error = unpacked(&[layer(11)], &content, &Limits::bundle()).unwrap_err().to_string();
    assert!(error.ends_with("selected content of the image exceeds the limit of 29360128 bytes"), "{error}");
}

#[test]
fn extended_headers_are_limited() {
    let limits = Limits { extended_bytes: 3_000, name_bytes: 1_000, ..Limits::default() };
    let record = |length: usize| {
        let text = format!(" path={}\n", "v".repeat(length));
        // the length counts its own digits
        let digits = if text.len() + 3 < 1_000 { 3 } else { 4 };
        format!("{}{text}", text.len() + digits)
    };
    for (name, length, times, want) in [
        ("names", 900, 3, Ok(1)),
        ("a long name", 1_002, 1, Err("tar name record exceeds the limit of 1001 bytes")),
        ("many names", 900, 4, Err("extended headers in the image exceeds the limit of 3000 bytes")),
    ] {
        for flag in [b'x', b'g'] {
            let record = record(length);
            let layer =
                TarOf::new().entry(flag, "x", "", record.as_bytes()).file("configs/a", "1").unfinished();
            let layers: Vec<Vec<u8>> = (0..times).map(|_| layer.clone()).collect();
            let got = unpacked(&layers, &["v", "configs"], &limits).map(|files| files.len());
            match (got, want) {
                (Ok(_), Ok(_)) => {}
                (Err(error), Err(want)) => assert!(error.to_string().ends_with(want), "{name}: {error}"),
                (got, want) => panic!("{name}: {got:?} instead of {want:?}"),
            }
        }
    }
}

#[test]
fn limits_count_all_layers_together() {
    let limits = Limits { unpacked_bytes: 5_000, entries: 3, ..Limits::default() };
    let layer = |name: &str, size: usize| TarOf::new().file(name, vec![b'x'; size]).tar();
    let got = rejection(&[layer("a", 2_000), layer("b", 2_000)], &limits);
    assert!(got.contains("layer[0]: decompressed content"), "{got}");
    let got = rejection(
        &[layer("a", 1), layer("b", 1), layer("c", 1), layer("d", 1)],
        &Limits { entries: 3, ..Limits::default() },
    );
    assert!(got.contains("layer[0]: number of tar entries"), "{got}");
}

#[test]
fn layer_with_wrong_digest_is_rejected() {
    let tar = TarOf::new().file("configs/a", "1").tar();
    let other = TarOf::new().file("configs/a", "2").tar();
    let mut applier = Applier::new(Null, Selection::everything(), Limits::default());
    let digest = super::hash_of(olm_core::DigestAlgorithm::Sha256, &other).unwrap();
    let chunks = vec![bytes::Bytes::from(tar.clone())].into_iter();
    let verified = super::Verified::new(chunks, digest, tar.len() as u64);
    let error = match applier.layer(0, verified).unwrap_err() {
        super::VisitError::Pull(error) => error,
        super::VisitError::Visitor(never) => match never {},
    };
    assert!(error.to_string().starts_with("error copying image: reading blob sha256:"), "{error}");
    assert_eq!(error.retry(), Retry::Backoff);
}

struct Null;

impl Visitor for Null {
    type Error = super::Infallible;
    fn file(&mut self, _: &str, _: u64, _: &mut dyn Read) -> Result<(), Self::Error> {
        Ok(())
    }
    fn alias(&mut self, _: &str, _: &str) -> Result<(), Self::Error> {
        Ok(())
    }
    fn remove(&mut self, _: &str) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A visitor that swallows errors and one that reads nothing: neither hides what is wrong with the layer.
#[test]
fn visitor_cannot_hide_layer_errors() {
    struct Careless(bool);
    impl Visitor for Careless {
        type Error = super::Infallible;
        fn file(&mut self, _: &str, _: u64, content: &mut dyn Read) -> Result<(), Self::Error> {
            if self.0 {
                let _ = content.read_to_end(&mut Vec::new());
            }
            Ok(())
        }
        fn alias(&mut self, _: &str, _: &str) -> Result<(), Self::Error> {
            Ok(())
        }
        fn remove(&mut self, _: &str) -> Result<(), Self::Error> {
            Ok(())
        }
    }
    let cut = TarOf::new().header(b'0', b"configs/x", "", 5000).raw(b"short").unfinished();
    for reads in [true, false] {
        let error = visit(std::slice::from_ref(&cut), &["configs"], &Limits::default(), Careless(reads))
            .err()
            .unwrap();
        let super::VisitError::Pull(Error::ApplyLayer { index: 0, .. }) = error else { panic!("{error:?}") };
    }
    let stray = TarOf::new().symlink("configs/stray", "/nowhere").tar();
    assert!(visit(&[stray], &["configs"], &Limits::default(), Careless(true)).is_err());
}

#[test]
fn visitor_may_pass_over_broken_links() {
    struct Tolerant(Vec<String>);
    impl Visitor for Tolerant {
        type Error = super::Infallible;
        fn file(&mut self, path: &str, _: u64, _: &mut dyn Read) -> Result<(), Self::Error> {
            self.0.push(path.to_owned());
            Ok(())
        }
        fn alias(&mut self, path: &str, _: &str) -> Result<(), Self::Error> {
            self.0.push(path.to_owned());
            Ok(())
        }
        fn remove(&mut self, _: &str) -> Result<(), Self::Error> {
            Ok(())
        }
        fn broken_link(&mut self, _: &str, why: &str) -> Result<bool, Self::Error> {
            self.0.push(why.to_owned());
            Ok(true)
        }
    }
    let limits = Limits::default();
    let layer = TarOf::new().file("configs/v1/a", "1").symlink("configs/latest", "v1");
    let layer = layer.symlink("configs/name", "v1/a").symlink("configs/out", "../../x").tar();
    let seen = visit(&[layer], &["configs"], &limits, Tolerant(Vec::new())).unwrap().0;
    let want = [
        "configs/v1/a",
        "link \"configs/latest\" points to a directory: \"configs/v1\"",
        "configs/name",
        "link \"configs/out\" leads out of the image",
    ];
    assert_eq!(seen, want);
    // what is above the selection is not the visitor's
    let above = TarOf::new().symlink("configs", "elsewhere").tar();
    assert!(visit(&[above], &["configs/b"], &limits, Tolerant(Vec::new())).is_err());
}

/// One entry of a random layer.
#[derive(Debug, Clone)]
enum Op {
    File(String, u8),
    Directory(String),
    Hide(String),
    Empty(String),
}

fn any_op() -> impl Strategy<Value = Op> {
    let path = || {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 1..4)
            .prop_map(|parts| format!("r/{}", parts.join("/")))
    };
    prop_oneof![
        4 => (path(), any::<u8>()).prop_map(|(path, n)| Op::File(path, n)),
        1 => path().prop_map(Op::Directory),
        2 => path().prop_map(Op::Hide),
        1 => path().prop_map(Op::Empty),
    ]
}

/// The obvious way: a map, layer by layer from the bottom. `None` when the layer contradicts itself.
fn slow(layers: &[Vec<Op>]) -> Option<Vec<String>> {
    #[derive(Clone, PartialEq)]
    enum Is {
        Directory,
        File(u8),
    }
    fn remove(tree: &mut BTreeMap<String, Is>, path: &str) {
        let beneath = format!("{path}/");
        tree.retain(|name, _| name != path && !name.starts_with(&beneath));
    }
    let mut tree: BTreeMap<String, Is> = BTreeMap::new();
    for layer in layers {
        for op in layer {
            match op {
                Op::Hide(path) => remove(&mut tree, path),
                Op::Empty(path) => {
                    let beneath = format!("{path}/");
                    tree.retain(|name, _| !name.starts_with(&beneath));
                }
                _ => {}
            }
        }
        let mut own: BTreeMap<String, Is> = BTreeMap::new();
        for op in layer {
            let (path, is) = match op {
                Op::File(path, n) => (path, Is::File(*n)),
                Op::Directory(path) | Op::Empty(path) => (path, Is::Directory),
                Op::Hide(path) => match path.rsplit_once('/') {
                    Some((directory, _)) => (&directory.to_owned(), Is::Directory),
                    None => continue,
                },
            };
            if matches!(op, Op::Empty(_) | Op::Hide(_)) && matches!(own.get(path), Some(Is::File(_))) {
                return None;
            }
            if matches!(is, Is::File(_)) {
                // entries come one after the other: a file removes what was there, also if it does not stay
                remove(&mut tree, path);
            }
            for above in super::selection::ancestors(path) {
                if matches!(own.get(above), Some(Is::File(_))) {
                    return None;
                }
                own.insert(above.to_owned(), Is::Directory);
            }
            if is != Is::Directory || matches!(own.get(path), Some(Is::File(_))) {
                remove(&mut own, path);
            }
            own.insert(path.clone(), is);
        }
        for (path, is) in own {
            for above in super::selection::ancestors(&path) {
                if matches!(tree.get(above), Some(Is::File(_))) {
                    remove(&mut tree, above);
                }
            }
            let merges = is == Is::Directory && matches!(tree.get(&path), Some(Is::Directory));
            if !merges {
                remove(&mut tree, &path);
                tree.insert(path, is);
            }
        }
    }
    let files = tree.iter().filter_map(|(path, is)| match is {
        Is::File(n) => Some(format!("{path}={n}")),
        Is::Directory => None,
    });
    Some(files.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Reading from the top down gives the tree that applying from the bottom up gives.
    #[test]
    fn layers_match_bottom_up_application(layers in prop::collection::vec(prop::collection::vec(any_op(), 0..7), 1..4)) {
        let Some(mut want) = slow(&layers) else { return Ok(()) };
        want.sort();
        let tars: Vec<Vec<u8>> = layers.iter().map(|layer| layer.iter().fold(TarOf::new(), |tar, op| match op {
            Op::File(path, n) => tar.file(path, n.to_string()),
            Op::Directory(path) => tar.directory(path),
            Op::Hide(path) => {
                let (directory, name) = path.rsplit_once('/').unwrap();
                tar.file(&format!("{directory}/.wh.{name}"), "")
            }
            Op::Empty(path) => tar.file(&format!("{path}/.wh..wh..opq"), ""),
        }).tar()).collect();
        let got = unpacked(&tars, &["r"], &Limits::default());
        // contradictions that only show in tar order (a directory replaced while upper layers still use it) may be rejected
        if let Ok(got) = got {
            prop_assert_eq!(got, want);
        }
    }

    /// Chunk borders do not matter.
    #[test]
    fn layer_is_independent_of_chunk_size(chunk in 1_usize..2000, size in 0_usize..5000) {
        let layer = gzip(&TarOf::new().file("a", vec![b'z'; size]).tar());
        let mut applier = Applier::new(Null, Selection::everything(), Limits::default());
        prop_assert!(applier.layer(0, blob(&layer, chunk)).is_ok());
    }

    /// Any bytes, compressed or not: an answer, nothing outside the directory.
    #[test]
    fn layer_reads_any_bytes_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000), how in 0..3, flag in any::<u8>()) {
        let tar = TarOf::new().file("configs/a", "1").entry(flag, "configs/b", "configs/a", b"").raw(&bytes).tar();
        let layer = match how { 0 => tar, 1 => gzip(&tar), _ => bytes };
        let _ = unpacked(&[layer], &["configs"], &Limits::default());
    }
}
