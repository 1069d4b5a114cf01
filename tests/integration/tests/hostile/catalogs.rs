//! Hostile catalog images, and those at the edge of what is accepted.

use std::fmt::Write as _;

use anyhow::Result;
use tar::EntryType;

use crate::content::{Layer, entry, header, pax, record};
use crate::shape::{Expect, Shape};
use crate::support::{Pushed, Registry};

pub(crate) const LABEL: &str = "operators.operatorframework.io.index.configs.v1";
const MIB: usize = 1 << 20;

/// `configs/d00/d01/…/`
fn deep(depth: usize) -> String {
    (0..depth).fold("configs/".to_owned(), |mut path, at| {
        let _ = write!(path, "d{at:02}/");
        path
    })
}

/// An image of these layers, as a catalog; its reference with digest.
pub(crate) fn push(registry: &Registry, layers: impl IntoIterator<Item = Vec<u8>>) -> String {
    push_image(registry, &Pushed::new(layers).label(LABEL, "/configs"))
}

fn push_image(registry: &Registry, image: &Pushed) -> String {
    let digest = registry.push("catalog", Some("1"), image);
    format!("{}/catalog@{digest}", registry.address)
}

/// A catalog of one file.
fn file(registry: &Registry, name: &str, content: &[u8]) -> Result<String> {
    Ok(push(registry, [Layer::new().file(&format!("configs/{name}"), content).end()]))
}

/// A catalog of one file whose content is `block`, `times` times.
fn blocks(registry: &Registry, name: &str, block: &[u8], times: usize) -> Result<String> {
    Ok(push(registry, [Layer::new().blocks(&format!("configs/{name}"), block, times).end()]))
}

/// Empty files, as the tar has them.
fn empty_files(names: impl IntoIterator<Item = String>) -> Vec<u8> {
    names.into_iter().flat_map(|name| header(&name, EntryType::Regular, "", 0)).collect()
}

fn links(count: usize, target: impl Fn(usize) -> String) -> Vec<u8> {
    (0..count)
        .flat_map(|at| header(&format!("configs/l{at:06}"), EntryType::Symlink, &target(at), 0))
        .collect()
}

/// `"k<n>":<value>,` from 0 to `count`.
pub(crate) fn members(count: usize, value: &str) -> String {
    (0..count).fold(String::new(), |mut text, at| {
        let _ = write!(text, "\"k{at}\":{value},");
        text
    })
}

const PATTERNS: &str = "patterns in .indexignore files";
const IGNORE_BYTES: &str = "bytes in .indexignore files";
const STEPS: &str = "steps of matching files with the patterns";
const NODES: &str = "more than the limit of 500000 nodes";
const NAMES: &str = "names in the image exceeds the limit";

/// See [`Shape`].
#[rustfmt::skip]
pub(crate) const SHAPES: &[Shape] = &[
    Shape { name: "ignore: 524,288 patterns, 60 directories deep", short: true, expect: Expect::Refused(PATTERNS),
        make: |registry| {
            let path = format!("{}.indexignore", deep(58));
            Ok(push(registry, [Layer::new().file(&path, &b"a\n".repeat(MIB / 2)).end()]))
        } },
    Shape { name: "ignore: 75,000 patterns in 150 kB, deep", short: false, expect: Expect::Refused(PATTERNS),
        make: |registry| {
            let path = format!("{}.indexignore", deep(58));
            Ok(push(registry, [Layer::new().file(&path, &b"a\n".repeat(75_000)).end()]))
        } },
    Shape { name: "ignore: 500 files of 1 MiB", short: false, expect: Expect::Refused(IGNORE_BYTES),
        make: |registry| {
            let text = b"# comment\n".repeat(MIB / 10);
            let layer = (0..500).fold(Layer::new(), |layer, at| {
                layer.blocks(&format!("configs/{at}/.indexignore"), &text, 1)
            });
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "ignore: 500 hard links to 1 MiB", short: true, expect: Expect::Refused(IGNORE_BYTES),
        make: |registry| {
            let text = b"# comment\n".repeat(MIB / 10);
            let layer = (0..500).fold(Layer::new().file("configs/.indexignore", &text), |layer, at| {
                let path = format!("configs/{at}/.indexignore");
                layer.raw(&header(&path, EntryType::Link, "configs/.indexignore", 0))
            });
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "ignore: 10,000 patterns for 190,000 files", short: false, expect: Expect::Refused(STEPS),
        make: |registry| {
            let files = empty_files((0..190_000).map(|at| format!("configs/{at}")));
            let layer = Layer::new().file("configs/.indexignore", &b"?\n".repeat(10_000)).raw(&files);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "ignore: 5,000 patterns of 100 stars", short: true, expect: Expect::Refused(STEPS),
        make: |registry| {
            let pattern = format!("{}\n", "*a".repeat(50));
            let name = "a".repeat(49);
            let files = empty_files((0..20_000).map(|at| format!("configs/{name}/{name}/{name}/{at}")));
            let layer =
                Layer::new().file("configs/.indexignore", pattern.repeat(5_000).as_bytes()).raw(&files);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "ignore: one pattern of 1 MiB of classes", short: false, expect: Expect::Refused(STEPS),
        make: |registry| {
            let files = empty_files((0..50_000).map(|at| format!("configs/{at}")));
            let pattern = format!("[{}]", "b-c".repeat(MIB / 4));
            let layer = Layer::new().file("configs/.indexignore", pattern.as_bytes()).raw(&files);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "objects: 6,000,000 empty ones", short: true, expect: Expect::Refused("250000 objects"),
        make: |registry| blocks(registry, "a.json", &b"{}\n".repeat(100_000), 60) },
    Shape { name: "objects: 240,000 small ones", short: false, expect: Expect::Served,
        make: |registry| { blocks(registry, "a.json", &b"{\"schema\":\"a\",\"name\":\"b\"}\n".repeat(2_400), 100) } },
    Shape { name: "objects: 300,000 names of 100 bytes", short: false,
        expect: Expect::Refused("bytes of memory for the schemas, packages and names"),
        make: |registry| {
            let pad = "x".repeat(90);
            let text: String =
                (0..300_000).map(|at| format!("{{\"schema\":\"a\",\"name\":\"{pad}{at}\"}}\n")).collect();
            file(registry, "a.json", text.as_bytes())
        } },
    Shape { name: "objects: one name of 60 MiB", short: false, expect: Expect::Refused("larger than the limit"),
        make: |registry| {
            let layer =
                Layer::new().raw(&header("configs/a.json", EntryType::Regular, "", 60 * MIB as u64 + 512));
            let head = format!("{:<256}", "{\"schema\":\"a\",\"name\":\"");
            let tail = format!("{:>256}", "\"}");
            let layer = layer.raw(head.as_bytes()).repeated(&vec![b'n'; MIB], 60).raw(tail.as_bytes());
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "objects: 20,000,000 empty YAML documents", short: false, expect: Expect::Served,
        make: |registry| blocks(registry, "a.yaml", &b"---\n".repeat(100_000), 200) },
    Shape { name: "objects: one of 200 MB", short: true, expect: Expect::Refused("larger than the limit of"),
        make: |registry| {
            let head = format!("{:<512}", "{\"schema\":\"a\",\"value\":\"");
            let layer = Layer::new().noise(4 * MIB).raw(&header(
                "configs/a.json",
                EntryType::Regular,
                "",
                200 * MIB as u64,
            ));
            let rest = vec![b'v'; MIB - 512];
            let layer = layer.raw(head.as_bytes()).raw(&rest).repeated(&vec![b'v'; MIB], 199);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "objects: just below the largest size", short: false, expect: Expect::Served,
        make: |registry| {
            let size = 7 * MIB + 1024;
            let layer = Layer::new().raw(&header("configs/a.json", EntryType::Regular, "", size as u64));
            let head = format!("{:<512}", "{\"schema\":\"a\",\"value\":\"");
            let tail = format!("{:>512}", "\"}");
            let layer = layer.raw(head.as_bytes()).repeated(&vec![b'v'; MIB], 7).raw(tail.as_bytes());
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "json: 1,000,000 levels", short: true, expect: Expect::Refused("depth"),
        make: |registry| {
            let text = format!("{{\"schema\":\"a\",\"value\":{}", "[".repeat(1_000_000));
            file(registry, "a.json", text.as_bytes())
        } },
    Shape { name: "json: 9,900 levels, 500 times", short: false, expect: Expect::Served,
        make: |registry| {
            let text = format!("{{\"schema\":\"a\",\"value\":{}{}}}\n", "[".repeat(9_900), "]".repeat(9_900));
            blocks(registry, "a.json", text.as_bytes(), 500)
        } },
    Shape { name: "json: 1,000,000 members", short: true, expect: Expect::Refused(NODES),
        make: |registry| {
            let text = format!("{{{}\"schema\":\"a\"}}\n", members(1_000_000, "0"));
            file(registry, "a.json", text.as_bytes())
        } },
    Shape { name: "json: 240,000 members in reverse order, 10 times", short: false, expect: Expect::Served,
        make: |registry| {
            let mut text = "{".to_owned();
            for at in (0..240_000).rev() {
                let _ = write!(text, "\"k{at:06}\":0,");
            }
            text.push_str("\"schema\":\"a\"}\n");
            blocks(registry, "a.json", text.as_bytes(), 10)
        } },
    Shape { name: "yaml: 1,000,000 nodes in one document", short: true, expect: Expect::Refused(NODES),
        make: |registry| {
            let text = format!("schema: a\nvalue:\n{}", "- a\n".repeat(1_000_000));
            file(registry, "a.yaml", text.as_bytes())
        } },
    Shape { name: "yaml: 20 documents of 490,000 nodes", short: false, expect: Expect::Served,
        make: |registry| {
            let text = format!("---\nschema: a\nvalue: [{}a]\n", "a,".repeat(490_000));
            blocks(registry, "a.yaml", text.as_bytes(), 20)
        } },
    Shape { name: "yaml: aliases that expand to 10^9 nodes", short: true, expect: Expect::Refused(NODES),
        make: |registry| {
            let mut text = "schema: a\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
            for at in 1..10 {
                let before = format!("*a{},", at - 1).repeat(10);
                let _ = writeln!(text, "a{at}: &a{at} [{before}]");
            }
            file(registry, "a.yaml", text.as_bytes())
        } },
    Shape { name: "yaml: 100,000 levels of flow sequences", short: false, expect: Expect::Refused("too deep brackets"),
        make: |registry| { file(registry, "a.yaml", format!("schema: a\nvalue: {}", "[".repeat(100_000)).as_bytes()) } },
    Shape { name: "yaml: 100,000 levels of block sequences", short: false, expect: Expect::Refused("exceeded max depth"),
        make: |registry| { file(registry, "a.yaml", format!("schema: a\nvalue:\n  {}a", "- ".repeat(100_000)).as_bytes()) } },
    Shape { name: "yaml: 100,000 anchors and merge keys", short: false, expect: Expect::Refused(NODES),
        make: |registry| {
            let mut text = "schema: a\nbase: &b {".to_owned();
            for at in 0..2_000 {
                let _ = write!(text, "k{at}: {at}, ");
            }
            text.push_str("}\nvalue:\n");
            text.push_str(&"- <<: *b\n".repeat(100_000));
            file(registry, "a.yaml", text.as_bytes())
        } },
    Shape { name: "yaml: one key of 7 MiB", short: false, expect: Expect::Served,
        make: |registry| {
            let text = format!("schema: a\n? {}\n: b\n", "k".repeat(7 * MIB));
            file(registry, "a.yaml", text.as_bytes())
        } },
    Shape { name: "yaml: 7 MiB of text without a line end", short: false, expect: Expect::Refused("mapping values are not allowed"),
        make: |registry| file(registry, "a.yaml", &b"a: ".repeat(7 * MIB / 3)) },
    Shape { name: "files: 190,000 that do not decode", short: false, expect: Expect::Refused("more files"),
        make: |registry| {
            let bad = entry("configs/0", EntryType::Regular, "", b"{\"schema\":");
            let files: Vec<u8> = (0..190_000)
                .flat_map(|at| {
                    [&header(&format!("configs/{at}"), EntryType::Regular, "", 10)[..], &bad[512..]].concat()
                })
                .collect();
            Ok(push(registry, [Layer::new().raw(&files).end()]))
        } },
    Shape { name: "names: 250,000 files", short: false, expect: Expect::Refused("entries exceeds the limit"),
        make: |registry| {
            let files = empty_files((0..250_000).map(|at| format!("configs/{at}")));
            Ok(push(registry, [Layer::new().raw(&files).end()]))
        } },
    Shape { name: "names: 20,000 of 4,000 bytes", short: true, expect: Expect::Refused(NAMES),
        make: |registry| {
            let pad = "p".repeat(3_980);
            let files = empty_files((0..20_000).map(|at| format!("configs/{pad}{at}")));
            Ok(push(registry, [Layer::new().raw(&files).end()]))
        } },
    Shape { name: "names: one deep directory, 190,000 times", short: false, expect: Expect::Refused(NAMES),
        make: |registry| {
            let path: String = format!("configs/{}", format!("{}/", "d".repeat(60)).repeat(60));
            let directory = header(&path, EntryType::Directory, "", 0);
            Ok(push(registry, [Layer::new().repeated(&directory.repeat(1_000), 190).end()]))
        } },
    Shape { name: "names: one file replaced 90,000 times beside 90,000 others", short: true, expect: Expect::Served,
        make: |registry| {
            let others = empty_files((0..90_000).map(|at| format!("configs/a.{at}")));
            let again = header("configs/a", EntryType::Regular, "", 0);
            Ok(push(registry, [Layer::new().raw(&others).repeated(&again.repeat(1_000), 90).end()]))
        } },
    Shape { name: "names: a file below a directory of 90,000, 90,000 times", short: false, expect: Expect::Served,
        make: |registry| {
            let upper = empty_files((0..90_000).map(|at| format!("configs/a/{at}")));
            let again = header("configs/a", EntryType::Regular, "", 0);
            let lower = Layer::new().repeated(&again.repeat(1_000), 90).end();
            Ok(push(registry, [lower, Layer::new().raw(&upper).end()]))
        } },
    Shape { name: "whiteouts: 190,000", short: false, expect: Expect::Served,
        make: |registry| {
            let whiteouts = empty_files((0..190_000).map(|at| format!("configs/{}/.wh.{at}", at % 100)));
            Ok(push(registry, [Layer::new().raw(&whiteouts).end()]))
        } },
    Shape { name: "links: 190,000 with targets of 4,000 bytes", short: true, expect: Expect::Refused(NAMES),
        make: |registry| {
            let target = "t".repeat(4_000);
            let some = links(1_000, |_| target.clone());
            Ok(push(registry, [Layer::new().repeated(&some, 190).end()]))
        } },
    Shape { name: "links: 190,000 through chains of 40", short: false, expect: Expect::Refused("work of following the links in the image"),
        make: |registry| {
            let file = entry("configs/f", EntryType::Regular, "", b"");
            let links = links(190_000, |at| match at % 40 {
                0 => "f".to_owned(),
                _ => format!("l{:06}", at - 1),
            });
            Ok(push(registry, [Layer::new().raw(&file).raw(&links).end()]))
        } },
    Shape { name: "links: 190,000 names of a catalog of 9 MB", short: false,
        expect: Expect::Refused("content of the image exceeds the limit"),
        make: |registry| {
            let text = format!("{{\"schema\":\"a\",\"value\":\"{}\"}}\n", "v".repeat(9_000_000));
            let links = links(190_000, |_| "f.json".to_owned());
            Ok(push(registry, [Layer::new().file("configs/f.json", text.as_bytes()).raw(&links).end()]))
        } },
    Shape { name: "pax: a name of 1 MiB for 1,000,000 headers", short: true, expect: Expect::Refused("tar name record exceeds the limit"),
        make: |registry| {
            let global = record(b'g', &pax("path", &"n".repeat(MIB - 100)));
            let one = header("other", EntryType::Regular, "", 0);
            let layer = Layer::new().noise(4 * MIB).raw(&global).repeated(&one.repeat(1_000), 1_000);
            Ok(push(registry, [layer.end()]))
        } },
    Shape { name: "pax: 500 headers of 1 MiB of small records", short: false, expect: Expect::Refused("extended headers"),
        make: |registry| {
            let one = record(b'x', &pax("a", "b").repeat((MIB - 100) / 6));
            let layer = Layer::new().noise(4 * MIB);
            Ok(push(registry, [layer.repeated(&one, 500).end()]))
        } },
    Shape { name: "pax: one header of 100 MiB", short: false, expect: Expect::Refused("pax header record exceeds the limit"),
        make: |registry| {
            let head = header("x", EntryType::XHeader, "", 100 * MIB as u64);
            Ok(push(registry, [Layer::new().raw(&head).repeated(&vec![b'a'; MIB], 40).end()]))
        } },
    Shape { name: "tar: 2,500,000 headers outside of the catalog", short: false,
        expect: Expect::Refused("number of tar entries exceeds the limit"),
        make: |registry| {
            let one = header("other", EntryType::Regular, "", 0);
            let layer = Layer::new().noise(8 * MIB);
            Ok(push(registry, [layer.repeated(&one.repeat(1_000), 2_500).end()]))
        } },
];
