use std::io::Cursor;

use super::*;

fn finished(ingest: Ingest<Vec<u8>>) -> Result<String, String> {
    let ingested = ingest.finish().map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    ingested.emit(&mut Cursor::new(ingested.spool()), &mut out).unwrap();
    assert_eq!(out.len() as u64, ingested.summary.bytes);
    assert_eq!(ingested.in_order(), out == *ingested.spool());
    for object in ingested.index.objects() {
        let range = object.range();
        let line = &out[range.start as usize..range.end as usize];
        assert_eq!(crate::Meta::parse(line).unwrap().name, object.name);
    }
    let (files, positions) = ingested.origins();
    assert_eq!(files.iter().map(|(_, count)| count).sum::<usize>(), ingested.index.len());
    assert_eq!(positions.len(), ingested.index.len());
    Ok(String::from_utf8(out).unwrap().replace("{\"name\":\"", "").replace("\"}\n", " "))
}

fn named(ingest: &mut Ingest<Vec<u8>>, path: &str, names: &str) {
    let text: String = names.split(' ').map(|name| format!("{{\"name\": \"{name}\"}}\n")).collect();
    ingest.file(path, &mut text.as_bytes()).unwrap();
}

fn new() -> Ingest<Vec<u8>> {
    Ingest::new(Vec::new(), IngestLimits::default())
}

#[test]
fn ingest_order_is_that_of_fbc_2_1() {
    let mut ingest = new();
    for (path, names) in
        [("a.yaml", "4"), ("a/b.json", "2 3"), ("B.yaml", "1"), ("./a-b/c", "5"), ("/z", "6")]
    {
        named(&mut ingest, path, names);
    }
    assert_eq!(finished(ingest).unwrap(), "1 2 3 5 4 6 ");
    let mut ingest = new();
    for (path, names) in [("B.yaml", "1"), ("a/b.json", "2 3"), ("a/empty", ""), ("a.yaml", "4")] {
        named(&mut ingest, path, names);
    }
    assert!(finished(ingest).unwrap().starts_with("1 2 3 "));
    assert_eq!(finished(new()).unwrap(), "");
}

#[test]
fn layers_replace_and_remove() {
    let mut ingest = new();
    named(&mut ingest, "c/a", "a1");
    named(&mut ingest, "c/b", "b1");
    named(&mut ingest, "c/d/x", "x1");
    named(&mut ingest, "c/d/y", "y1");
    named(&mut ingest, "c/e/x", "ex1");
    named(&mut ingest, "c/f", "f1");
    ingest.file("c/broken", &mut &b"a: ["[..]).unwrap();
    ingest.next_layer();
    named(&mut ingest, "c/a", "a2");
    named(&mut ingest, "c/d/z", "z2");
    ingest.opaque("c/d").unwrap();
    ingest.whiteout("c/b").unwrap();
    ingest.whiteout("c/broken").unwrap();
    named(&mut ingest, "c/e", "e2");
    named(&mut ingest, "c/f/g", "g2");
    assert_eq!(finished(ingest).unwrap(), "a2 z2 e2 g2 ");
}

#[test]
fn links_stay_inside() {
    let mut ingest = new();
    named(&mut ingest, "c/real/file", "r");
    ingest.link("c/a", "real/file").unwrap();
    ingest.link("c/b", "/c/real/../real/file").unwrap();
    ingest.link("c/dir", "../c/real").unwrap();
    ingest.link("c/through", "dir2/file").unwrap();
    ingest.link("c/dir2", "real").unwrap();
    ingest.hard_link("c/hard", "c/real/file").unwrap();
    ingest.next_layer();
    ingest.file(".indexignore", &mut &b"dir\ndir2"[..]).unwrap();
    assert_eq!(finished(ingest).unwrap(), "r r r r r ");
    for (target, want) in [
        ("../../../etc/passwd", "open a: no such file or directory; in file \"a\", line 1, byte 0"),
        ("a", "open a: too many levels of symbolic links; in file \"a\", line 1, byte 0"),
        ("real", "open a: is a directory; in file \"a\", line 1, byte 0"),
    ] {
        let mut ingest = new();
        named(&mut ingest, "real/file", "r");
        ingest.link("a", target).unwrap();
        assert_eq!(finished(ingest).unwrap_err(), want);
    }
}

/// rule: fbc §2.3
#[test]
fn broken_links_may_be_ignored() {
    for (ignore, want) in [
        ("latest", Ok("r ".to_owned())),
        ("other", Err("it leads nowhere; in file \"c/latest\", line 1, byte 0".to_owned())),
    ] {
        let mut ingest = new();
        named(&mut ingest, "c/real", "r");
        ingest.file("c/.indexignore", &mut ignore.as_bytes()).unwrap();
        ingest.broken_link("c/latest", "it leads nowhere").unwrap();
        assert_eq!(finished(ingest), want, "{ignore}");
    }
}

#[test]
fn broken_files_are_all_named() {
    let mut ingest = new();
    ingest.file("z.json", &mut &b"{\"a\":1}{\"b\":2}\n{\"c\":tru}"[..]).unwrap();
    ingest.file("README.md", &mut &b"# fine\n"[..]).unwrap();
    ingest.file("a/b.yaml", &mut &b"a: 1\n---\nb: [\n"[..]).unwrap();
    ingest.file("hidden", &mut &b"text"[..]).unwrap();
    ingest.file(".indexignore", &mut &b"hidden"[..]).unwrap();
    let (ingested, problems) = ingest.finish_all().unwrap();
    assert_eq!(ingested.summary, Summary { files: 3, ignored: 1, objects: 3, bytes: 24 });
    let error = IngestError::Files(problems);
    let want = "error converting YAML to JSON: yaml: line 1: did not find expected node content; in file \"a/b.yaml\", line 4, byte 14 (and 1 more files)";
    assert_eq!(error.to_string(), want);
    assert!(error.is_permanent());
}

#[test]
fn ingest_names_the_bound_that_is_exceeded() {
    let limits = IngestLimits { files: 2, bytes: 30, ..IngestLimits::default() };
    let mut ingest = Ingest::new(Vec::new(), limits);
    assert!(matches!(ingest.file("../x", &mut io::empty()), Err(IngestError::Path(_))));
    ingest.file("a", &mut &b"a: 1"[..]).unwrap();
    let error = ingest.file("b", &mut &b"a: 123456789012345678901234567890"[..]).unwrap_err();
    assert_eq!(error.to_string(), "the catalog has more than 30 bytes; in file \"b\"");
    ingest.file("b", &mut io::empty()).unwrap();
    let error = ingest.file("c", &mut io::empty()).unwrap_err();
    assert_eq!(error.to_string(), "the catalog has more than 2 files; in file \"c\"");

    let limits = IngestLimits { path_bytes: 16, ignore_bytes: 8, ..IngestLimits::default() };
    let mut ingest = Ingest::new(Vec::new(), limits);
    ingest.file(".indexignore", &mut &b"12345678"[..]).unwrap();
    let error = ingest.file("x/.indexignore", &mut &b"9"[..]).unwrap_err();
    let want = "the catalog has more than 8 bytes in .indexignore files; in file \"x/.indexignore\"";
    assert_eq!(error.to_string(), want);
    let long = "a".repeat(17);
    let error = ingest.file(&long, &mut io::empty()).unwrap_err();
    assert!(error.to_string().starts_with("the catalog has more than 16 bytes in a path; in file \"aaa"));
    assert!(matches!(ingest.link("l", &long), Err(IngestError::Path(_))));
}

#[test]
fn ingest_warns_about_suspicious_files() {
    let mut ingest = new();
    ingest.file("a", &mut &b"schema: x\n...\nschema: y\n"[..]).unwrap();
    ingest.file("b", &mut &b"{\"schema\":\"x\",}"[..]).unwrap();
    ingest.file("c", &mut &b"name: x"[..]).unwrap();
    let warnings: Vec<String> = ingest.finish().unwrap().warnings.iter().map(ToString::to_string).collect();
    let want = [
        "a:3: what follows here is never read: separate documents by a line of `---`",
        "b:1: this is broken JSON and was read as YAML",
        "c:1: the object has no schema",
    ];
    assert_eq!(warnings, want);
}
