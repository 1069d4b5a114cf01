//! `validate` beside the real `opm validate`: the sample catalogs as they are, and hundreds of mutated ones.
//!
//! Needs `opm` in the folder that `OLM_TOOLS` names (`make tools`) and the sample in `OLM_SHARED` or `../shared`;
//! without them the test prints that it was skipped. Allowed differences: `opm-differences.md`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use olm_fbc::{Finding, IngestLimits, Severity, load_dir_leniently, validate};
use serde_json::{Value, json};

fn setting(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

pub(crate) fn opm() -> Option<PathBuf> {
    setting("OLM_TOOLS").map(|folder| folder.join("opm")).filter(|opm| opm.is_file())
}

pub(crate) fn sample() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let folder = setting("OLM_SHARED").unwrap_or(beside).join("data");
    folder.is_dir().then_some(folder)
}

/// The error of `opm`: none if the catalog passes.
fn ask(opm: &Path, folder: &Path) -> Option<String> {
    let output = Command::new(opm).args(["validate", "-o", "json"]).arg(folder).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| json!({"error": {"message": String::from_utf8_lossy(&output.stderr)}}));
    match answer["passed"].as_bool() {
        Some(true) => None,
        _ => Some(answer["error"]["message"].as_str().unwrap_or_default().to_owned()),
    }
}

/// The leaves of a tree of findings with the way to them.
fn leaves(tree: &str) -> BTreeSet<Vec<String>> {
    let mut path: Vec<String> = Vec::new();
    let mut found = BTreeSet::new();
    for line in tree.lines().skip(1) {
        let text = line.trim_start_matches(['│', '├', '└', '─', ' ']);
        let depth = (line.chars().count() - text.chars().count()) / 4 - 1;
        path.truncate(depth);
        match text.strip_suffix(':') {
            Some(node) => path.push(node.to_owned()),
            None => {
                found.insert(path.iter().cloned().chain([text.to_owned()]).collect());
            }
        }
    }
    found
}

/// Rules of the format that `opm` does not enforce.
const STRICTER: [&str; 5] = ["empty-package", "properties", "property", "property-api", "property-package"];

/// Compares both on one folder. `Ok` names the allowed differences.
fn compare(theirs: Option<&str>, folder: &Path) -> Result<BTreeSet<&'static str>, String> {
    let (catalog, problems) =
        load_dir_leniently(folder, IngestLimits::default()).map_err(|error| error.to_string())?;
    let findings = validate(&catalog);
    let warned = |rule| findings.iter().any(|finding: &Finding| finding.rule == rule);
    let errors = findings.iter().filter(|f| f.severity == Severity::Error);
    let (own, errors): (Vec<&Finding>, Vec<&Finding>) = errors.partition(|f| STRICTER.contains(&f.rule));
    let stricter = !own.is_empty();
    let mut messages: Vec<&str> = problems.iter().map(|problem| problem.error.message.as_str()).collect();
    messages.extend(errors.iter().filter(|f| f.path.is_empty()).map(|f| f.message.as_str()));
    let all_messages =
        || messages.iter().copied().chain(errors.iter().map(|f| f.message.as_str())).collect::<Vec<_>>();
    let mut differences = BTreeSet::new();
    if stricter {
        differences.insert("stricter");
    }
    let Some(theirs) = theirs else {
        return if all_messages().is_empty() {
            Ok(differences)
        } else {
            Err(format!("opm passes, ours has {:?}", all_messages()))
        };
    };
    if theirs == "object '' is missing root schema field" && warned("empty-document") {
        differences.insert("empty-document");
        return Ok(differences);
    }
    if all_messages().is_empty() {
        return Err(format!("ours passes, opm has {theirs}"));
    }
    if !theirs.starts_with("invalid index:") {
        let start = theirs.split_once(" to be a string, got ").map(|(start, _)| start);
        if start.is_some_and(|start| messages.iter().any(|ours| ours.starts_with(start))) {
            differences.insert("printed-value");
        } else if !messages.contains(&theirs) {
            return Err(format!("opm has {theirs}\nours has {:#?}", all_messages()));
        }
        if all_messages().len() > 1 {
            differences.insert("more-findings");
        }
        return Ok(differences);
    }
    let mut expected = leaves(theirs);
    let missing: BTreeSet<&str> =
        errors.iter().filter(|f| f.rule == "A19").map(|f| f.message.as_str()).collect();
    if !missing.is_empty() {
        let quirk = ["must be exactly one property with type \"olm.package\"", "bundle image must be set"];
        let before = expected.len();
        expected.retain(|path| {
            let bundle = path.iter().rev().nth(1).and_then(|level| level.strip_prefix("invalid bundle \""));
            let absent = bundle.is_some_and(|bundle| {
                let name = bundle.trim_end_matches('"');
                missing.iter().any(|message| message.split(['[', ' ', ']']).any(|word| word == name))
            });
            !(absent && path.last().is_some_and(|leaf| quirk.contains(&leaf.as_str())))
        });
        if before != expected.len() {
            differences.insert("missing-bundle");
        }
    }
    if errors.iter().any(|f| f.path.is_empty() && f.rule != "A19") || !problems.is_empty() {
        return Err(format!("opm got as far as the graph, ours has {messages:#?}"));
    }
    let ours: BTreeSet<Vec<String>> = errors
        .iter()
        .filter(|finding| !finding.path.is_empty())
        .map(|finding| finding.path.iter().cloned().chain([finding.message.clone()]).collect())
        .collect();
    if ours == expected { Ok(differences) } else { Err(format!("opm has {expected:#?}\nours has {ours:#?}")) }
}

#[derive(Default)]
struct Tally {
    cases: usize,
    refused: usize,
    differences: BTreeMap<&'static str, usize>,
    wrong: Vec<String>,
}

impl Tally {
    fn case(&mut self, opm: &Path, name: &str, folder: &Path) {
        self.cases += 1;
        let theirs = ask(opm, folder);
        self.refused += usize::from(theirs.is_some());
        match compare(theirs.as_deref(), folder) {
            Ok(differences) => {
                for difference in differences {
                    *self.differences.entry(difference).or_default() += 1;
                }
            }
            Err(problem) => self.wrong.push(format!("{name}: {problem}")),
        }
    }

    fn finish(self, what: &str) {
        let documented = include_str!("opm-differences.md");
        for name in self.differences.keys() {
            assert!(documented.contains(&format!("`{name}`")), "{name} is not documented");
        }
        println!(
            "{what}: {} catalogs, {} refused by opm, differences {:?}",
            self.cases, self.refused, self.differences
        );
        let Self { wrong, cases, .. } = self;
        assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
    }
}

fn folders(sample: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for part in ["catalog", "bundles-catalog"] {
        found.push(sample.join(part));
        let inner = fs::read_dir(sample.join(part)).unwrap().map(|entry| entry.unwrap().path());
        found.extend(inner.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

#[test]
fn opm_agrees_on_sample_catalogs() {
    let (Some(opm), Some(sample)) = (opm(), sample()) else {
        println!(
            "SKIPPED: opm_agrees_on_sample_catalogs needs opm (OLM_TOOLS) and the sample catalogs (OLM_SHARED)"
        );
        return;
    };
    let mut tally = Tally::default();
    for folder in folders(&sample) {
        tally.case(&opm, &folder.display().to_string(), &folder);
    }
    assert!(tally.cases > 20);
    tally.finish("sample");
}

/// splitmix64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

/// A value that seldom belongs where it is put.
fn invalid_value(random: &mut Random) -> Value {
    random
        .pick(&[
            Value::Null,
            json!(5),
            json!(1.5),
            json!(true),
            json!(""),
            json!("x"),
            json!("Foo/bar:"),
            json!("1.0"),
            json!("v1.2.3"),
            json!("0.1.0+1"),
            json!(">=1.0.0 || || <2"),
            json!("olm.package"),
            json!([]),
            json!({}),
            json!([1]),
            json!({"name": 1}),
        ])
        .clone()
}

/// Goes to a random member or item and changes, removes or adds there.
fn disturb(value: &mut Value, random: &mut Random, depth: usize) {
    let deeper = depth < 5 && random.below(4) > 0;
    match value {
        Value::Object(members) if !members.is_empty() => {
            let keys: Vec<String> = members.keys().cloned().collect();
            let key = random.pick(&keys).clone();
            let inner = members.get_mut(&key).unwrap();
            if deeper && (inner.is_object() || inner.is_array()) {
                return disturb(inner, random, depth + 1);
            }
            match random.below(4) {
                0 => drop(members.remove(&key)),
                1 => drop(members.insert(key, invalid_value(random))),
                2 => {
                    let value = members.remove(&key).unwrap();
                    let other = if random.below(2) == 0 { key.to_uppercase() } else { "channel".to_owned() };
                    members.insert(other, value);
                }
                _ => drop(members.insert(
                    random.pick(&["replaces", "skips", "skipRange", "release", "Name"]).to_string(),
                    invalid_value(random),
                )),
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let at = random.below(items.len());
            let inner = &mut items[at];
            if deeper && (inner.is_object() || inner.is_array()) {
                return disturb(inner, random, depth + 1);
            }
            match random.below(4) {
                0 => drop(items.remove(at)),
                1 => items[at] = invalid_value(random),
                2 => {
                    let copy = items[at].clone();
                    items.push(copy);
                }
                _ => items.push(invalid_value(random)),
            }
        }
        other => *other = invalid_value(random),
    }
}

/// Changes the graph: edges, entries, names, deprecations.
fn rewire(objects: &mut Vec<Value>, random: &mut Random) {
    let bundles: Vec<String> = objects
        .iter()
        .filter(|object| object["schema"] == "olm.bundle")
        .filter_map(|object| object["name"].as_str().map(str::to_owned))
        .chain(["absent.v9".to_owned()])
        .collect();
    let package =
        objects.iter().find(|o| o["schema"] == "olm.package").map_or(Value::Null, |o| o["name"].clone());
    let channels: Vec<usize> =
        (0..objects.len()).filter(|&at| objects[at]["schema"] == "olm.channel").collect();
    let bundle = random.pick(&bundles).clone();
    match random.below(9) {
        kind @ 0..=4 if !channels.is_empty() => {
            let at = *random.pick(&channels);
            let Some(entries) = objects[at]["entries"].as_array_mut().filter(|entries| !entries.is_empty()) else { return };
            let entry = random.below(entries.len());
            match kind {
                0 => entries[entry]["replaces"] = json!(bundle),
                1 => entries[entry]["skips"] = json!([bundle, random.pick(&bundles)]),
                2 => drop(entries.remove(entry)),
                3 => entries.push(json!({"name": bundle})),
                _ => {
                    let ranges = ["<1.0.0", ">=1.0", "*", "1.x.x", "! 1.0.0", "||", ">1.0.0 || || <1.0.0"];
                    entries[entry]["skipRange"] = json!(random.pick(&ranges));
                }
            }
        }
        5 => {
            let schema = *random.pick(&["olm.package", "olm.channel", "olm.bundle", "", "other"]);
            let name = random.pick(&["", "stable", "alpha", bundle.as_str()]).to_string();
            let message = *random.pick(&["", "old"]);
            objects.push(json!({"schema": "olm.deprecations", "package": package, "entries": [{"reference": {"schema": schema, "name": name}, "message": message}]}));
        }
        6 => objects.push(json!({"schema": "olm.channel", "package": package, "name": "extra", "entries": [{"name": bundle, "replaces": random.pick(&bundles)}]})),
        7 => {
            for object in objects.iter_mut().filter(|object| object["name"] == bundle.as_str()) {
                object["name"] = json!("renamed");
            }
        }
        _ => {
            let versions = ["0.1.0", "1.0.0+5", "1.0", "2.0.0-rc.01"];
            for object in objects.iter_mut().filter(|object| object["name"] == bundle.as_str()) {
                let Some(properties) = object["properties"].as_array_mut() else { continue };
                for property in properties.iter_mut().filter(|property| property["type"] == "olm.package") {
                    property["value"]["version"] = json!(random.pick(&versions));
                    if random.below(2) == 0 {
                        property["value"]["release"] = json!(random.pick(&["1", "01", "a.b", "", "$"]));
                    }
                }
            }
        }
    }
}

fn mutate(objects: &mut Vec<Value>, random: &mut Random) {
    for _ in 0..1 + random.below(2) {
        let at = random.below(objects.len());
        match random.below(10) {
            0 => drop(objects.remove(at)),
            1 => {
                let copy = objects[at].clone();
                objects.push(copy);
            }
            2 => {
                let other = random.below(objects.len());
                objects.swap(at, other);
            }
            3..=5 => disturb(&mut objects[at], random, 0),
            _ => rewire(objects, random),
        }
        if objects.is_empty() {
            objects.push(json!({"schema": "olm.package", "name": "left"}));
        }
    }
}

/// Adds, doubles, spoils or takes away properties of one bundle.
fn unsettle(objects: &mut [Value], random: &mut Random) {
    let bundles: Vec<usize> = (0..objects.len()).filter(|&at| objects[at]["properties"].is_array()).collect();
    if bundles.is_empty() {
        return;
    }
    let at = *random.pick(&bundles);
    let Some(properties) = objects[at]["properties"].as_array_mut() else { return };
    #[rustfmt::skip]
    let kinds = [
        "olm.package", "olm.gvk", "olm.gvk.required", "olm.package.required", "olm.channel", "olm.bundle.object", "olm.csv.metadata",
        "olm.constraint", "features.example.com",
    ];
    let kind = *random.pick(&kinds);
    let place = random.below(properties.len() + 1);
    match random.below(6) {
        0 => properties.retain(|property| property["type"] != kind),
        1 => properties.insert(place, json!({"type": kind})),
        2 => properties.insert(place, json!({"type": kind, "value": invalid_value(random)})),
        3 => {
            let members =
                ["packageName", "version", "group", "kind", "versionRange", "priority", "data", "keywords"];
            let value = json!({*random.pick(&members): invalid_value(random), *random.pick(&members): "x"});
            properties.insert(place, json!({"type": kind, "value": value}));
        }
        4 => {
            let own: Vec<Value> =
                properties.iter().filter(|property| property["type"] == "olm.package").cloned().collect();
            properties.extend(own);
        }
        _ => {
            for property in properties.iter_mut().filter(|property| property["type"] == "olm.package") {
                property["value"]["packageName"] = invalid_value(random);
            }
        }
    }
}

/// Catalogs small enough to be asked about often.
fn small(sample: &Path) -> Vec<Vec<Value>> {
    let small: Vec<Vec<Value>> = folders(sample)
        .iter()
        .filter(|folder| !folder.ends_with("catalog") && !folder.ends_with("bundles-catalog"))
        .filter_map(|folder| {
            let (catalog, _) = load_dir_leniently(folder, IngestLimits::default()).ok()?;
            let lines = catalog.jsonl().split(|&b| b == b'\n').filter(|line| !line.is_empty());
            (catalog.jsonl().len() < 100_000)
                .then(|| lines.map(|line| serde_json::from_slice(line).unwrap()).collect())
        })
        .collect();
    assert!(small.len() > 5, "{}", small.len());
    small
}

/// Asks about as many catalogs, each changed in its own way.
fn changed(opm: &Path, sample: &Path, count: u64, change: impl Fn(&mut Vec<Value>, &mut Random)) -> Tally {
    let small = small(sample);
    let folder = tempfile::tempdir().unwrap();
    let mut tally = Tally::default();
    for seed in 0..count {
        let mut random = Random(seed);
        let mut objects = random.pick(&small).clone();
        change(&mut objects, &mut random);
        let text: String = objects.iter().map(|object| format!("{object}\n")).collect();
        fs::write(folder.path().join("catalog.json"), &text).unwrap();
        tally.case(opm, &format!("seed {seed}"), folder.path());
    }
    assert!(tally.refused * 3 > tally.cases, "only {} of {} are refused", tally.refused, tally.cases);
    tally
}

#[test]
fn opm_agrees_on_mutated_catalogs() {
    let (Some(opm), Some(sample)) = (opm(), sample()) else {
        println!(
            "SKIPPED: opm_agrees_on_mutated_catalogs needs opm (OLM_TOOLS) and the sample catalogs (OLM_SHARED)"
        );
        return;
    };
    let count = setting("OLM_MUTATIONS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(240);
    changed(&opm, &sample, count, mutate).finish("mutated");
}

#[test]
fn opm_agrees_on_mutated_properties() {
    let (Some(opm), Some(sample)) = (opm(), sample()) else {
        println!(
            "SKIPPED: opm_agrees_on_mutated_properties needs opm (OLM_TOOLS) and the sample catalogs (OLM_SHARED)"
        );
        return;
    };
    changed(&opm, &sample, 120, |objects, random| unsettle(objects, random)).finish("mutated properties");
}
