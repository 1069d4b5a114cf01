//! Published catalogs: every channel of every package asked from nothing and from every version, and walked from its oldest
//! version to the end. Every answer is compared with a second opinion, every hint of an error is followed.
//!
//! Two of the three questions an upgrade raises are asked here (which bundle, and why not); what the bundle comes to in a
//! cluster is asked by the integration tests. The table goes into `docs/internals/real-content.md`.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "where the sample data is, and how long it took"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_core::{Range, VersionRelease};
use olm_fbc::{Catalog, IngestLimits, load_dir};
use olm_resolver::{
    BundleDraft, BundleIndex, CatalogSource, ChannelDraft, ChannelEntry, DeprecatedScope, End, Environment,
    GraphDraft, Installed, MajorUpdates, NearMiss, Outcome, PackageGraph, PathQuery, Policy, ReleaseField,
    Request, RuleSet, Target, Via, path, resolve,
};
use serde_json::Value;

use crate::slow::{Offer, short_answer, slow};

/// The two sets of catalogs of the sample.
const FOLDERS: [&str; 2] = ["catalog", "bundles-catalog"];

/// The folder with sample data, if there is one.
fn data() -> Option<PathBuf> {
    let shared = std::env::var_os("OLM_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from);
    let found = Some(shared.join("data")).filter(|data| FOLDERS.iter().all(|it| data.join(it).is_dir()));
    if found.is_none() {
        println!("SKIPPED: published catalogs: no sample data (set OLM_SHARED)");
    }
    found
}

/// One package, read once by the product and once by this test.
struct Package {
    name: String,
    draft: GraphDraft,
    offer: [Offer; 1],
    graph: Arc<PackageGraph>,
    source: [CatalogSource; 1],
}

/// What came of the questions about one package.
#[derive(Default)]
struct Tally {
    asked: usize,
    moves: usize,
    stays: usize,
    /// By the reason of the error.
    refused: BTreeMap<&'static str, usize>,
    hints_followed: usize,
    walks: usize,
    longest: usize,
    /// Channels whose walk ends below what a first install takes: where, and what it would take.
    short: Vec<String>,
}

impl Package {
    fn read(catalog: &Catalog, name: &str) -> Self {
        let (contents, findings) = catalog.package(name).unwrap();
        let graph = Arc::new(PackageGraph::new(contents, findings, ReleaseField::Counts));
        let draft = draft(catalog, name);
        let names: BTreeSet<&str> = draft.bundles.iter().map(|bundle| bundle.name.as_str()).collect();
        assert_eq!(names.len(), draft.bundles.len(), "{name}: a bundle is there twice");
        assert_eq!(names.len(), graph.bundles().len(), "{name}: bundles");
        assert_eq!(draft.channels.len(), graph.channels().len(), "{name}: channels");
        let source = CatalogSource { name: "c".parse().unwrap(), priority: 0, content: Ok(graph.clone()) };
        Self { name: name.to_owned(), offer: [Offer::new("c", 0, &draft)], draft, graph, source: [source] }
    }

    fn installed(&self, bundle: BundleIndex) -> Installed {
        Installed {
            name: self.graph.bundle_name(bundle).parse().unwrap(),
            version: self.graph.version(bundle).unwrap().clone(),
        }
    }

    /// Nothing, then every bundle.
    fn starts(&self) -> Vec<Option<Installed>> {
        std::iter::once(None).chain(self.graph.bundles().map(|bundle| Some(self.installed(bundle)))).collect()
    }

    /// All channels together, then each alone.
    fn scopes(&self) -> Vec<Vec<&str>> {
        let each = self.draft.channels.iter().map(|channel| vec![channel.name.as_str()]);
        std::iter::once(vec![]).chain(each).collect()
    }

    fn request(
        &self,
        scope: &[&str],
        range: Option<&str>,
        policy: Policy,
        installed: Option<&Installed>,
    ) -> Request {
        Request {
            package: self.name.parse().unwrap(),
            channels: scope.iter().map(|name| name.parse().unwrap()).collect(),
            range: range.map(|text| Range::masterminds(text).unwrap()),
            policy,
            major_updates: MajorUpdates::default(),
            environment: Environment::default(),
            installed: installed.cloned(),
        }
    }

    /// Asks, and checks the answer in every way there is.
    fn ask(&self, request: &Request, tally: &mut Tally) -> Outcome {
        let outcome = resolve(request, &self.source);
        let what = || format!("{}: {request:?}", self.name);
        assert_eq!(short_answer(&outcome), slow(&self.offer, request), "{}", what());
        let again = resolve(request, &self.source);
        assert_eq!(short_answer(&again), short_answer(&outcome), "{}: asked twice", what());
        tally.asked += 1;
        match &outcome.result {
            Ok(found) => {
                let (name, scope) = (found.bundle.as_str(), &request.channels);
                let of = |channel: &&ChannelDraft| channel.entries.iter().any(|entry| entry.name == name);
                let holds = self.draft.channels.iter().filter(of);
                let asked = |channel: &ChannelDraft| scope.iter().any(|asked| asked.as_str() == channel.name);
                assert!(scope.is_empty() || holds.clone().any(asked), "{}: {name} is not there", what());
                if let Some(range) = &request.range {
                    assert!(range.contains(&found.version.version), "{}: {name} out of range", what());
                }
                match &request.installed {
                    Some(installed) if installed.version == found.version => {
                        assert_eq!(found.via, Via::Installed, "{}", what());
                        tally.stays += 1;
                    }
                    installed => {
                        let by = |via| match (installed, request.policy) {
                            (None, _) => via == Via::FirstInstall,
                            (Some(_), Policy::CatalogProvided) => matches!(via, Via::Edge(_)),
                            (Some(_), Policy::SelfCertified) => {
                                matches!(via, Via::Edge(_) | Via::SelfCertified)
                            }
                        };
                        assert!(by(found.via), "{}: {name} by {:?}", what(), found.via);
                        tally.moves += 1;
                    }
                }
            }
            Err(error) => {
                let reason = self.refused(request, &outcome, &error.condition_message(), tally);
                *tally.refused.entry(reason).or_default() += 1;
            }
        }
        outcome
    }

    /// Checks that the message names the request, the obstacle and a fix that helps; returns the reason in short.
    fn refused(
        &self,
        request: &Request,
        outcome: &Outcome,
        message: &str,
        tally: &mut Tally,
    ) -> &'static str {
        let names = |part: &str| assert!(message.contains(part), "no {part:?} in: {message}");
        names(&format!("package \"{}\"", self.name));
        if let Some(installed) = &request.installed {
            names(&format!("currently installed version \"{}\"", installed.version.version));
        }
        if let Some(range) = &request.range {
            names(&format!("matching version \"{}\"", range.as_str()));
        }
        for channel in &request.channels {
            names(channel.as_str());
        }
        assert!(!message.contains('…'), "the help is cut: {message}");
        let misses = outcome.report.nearest_misses();
        let first = misses.first().unwrap_or_else(|| panic!("no help in: {message}"));
        names(&first.text);
        for miss in &misses {
            self.follow(request, miss, tally);
        }
        match first.text.as_str() {
            text if text.contains("replaces, skips or covers") => "no edge",
            text if text.contains("is lower") => "only downwards",
            text if text.contains("new major version") => "only a new major version",
            text if text.contains("is in channel") => "another channel",
            text if text.contains("is in no channel") => "no channel",
            text => panic!("a reason without a name: {text}"),
        }
    }

    /// Follows the hint, and checks that it helps.
    fn follow(&self, request: &Request, miss: &NearMiss, tally: &mut Tally) {
        let text = &miss.text;
        let bundle = self.graph.find_bundle(&miss.bundle).unwrap();
        let version = self.graph.version(bundle).unwrap();
        let mut changed = request.clone();
        let mut arrives_at = version.clone();
        if let Some((_, way)) = text.split_once("; ")
            && let Some((by, _)) = way.split_once(" does: go through it")
        {
            arrives_at = by.parse().unwrap();
        } else if let Some((_, way)) = text.split_once("; channel ")
            && let Some((channel, _)) = way.split_once(" does: add it to channels")
        {
            changed.channels.push(channel.parse().unwrap());
        } else if let Some((_, channels)) = text.split_once("matches but is in channel ") {
            let channel = channels.split('"').nth(1).unwrap();
            changed.channels = vec![channel.parse().unwrap()];
            // the hint promises only that it is there
            changed.policy = Policy::SelfCertified;
        } else if text.contains("SelfCertified") {
            changed.policy = Policy::SelfCertified;
        } else if !text.contains("new major version") {
            return;
        }
        changed.range = Some(Range::masterminds(&exactly(&arrives_at)).unwrap());
        let found = resolve(&changed, &self.source).result;
        let found = found.unwrap_or_else(|error| panic!("{text}\nfollowed: {}", error.condition_message()));
        assert_eq!(found.version.version, arrives_at.version, "{}: {text}\n{request:?}", self.name);
        tally.hints_followed += 1;
    }

    /// From the oldest version of the channels until nothing more is offered.
    fn walk(&self, scope: &[&str], tally: &mut Tally) {
        let channels: Vec<_> = scope.iter().filter_map(|name| self.graph.find_channel(name)).collect();
        let inside = |bundle: &BundleIndex| {
            scope.is_empty() || self.graph.channels_of(*bundle).any(|it| channels.contains(&it))
        };
        let oldest = self.graph.bundles().filter(inside).min_by_key(|&it| self.graph.version(it).ok());
        let Some(oldest) = oldest else { return };
        let mut at = self.installed(oldest);
        let mut seen = BTreeSet::from([at.name.to_string()]);
        let mut hops = Vec::new();
        loop {
            let request = self.request(scope, None, Policy::CatalogProvided, Some(&at));
            let outcome = self.ask(&request, tally);
            let found = outcome.result.unwrap_or_else(|error| {
                panic!("{} {scope:?}: stuck at {}: {}", self.name, at.version, error.condition_message())
            });
            if found.version == at.version {
                break;
            }
            assert!(seen.insert(found.bundle.to_string()), "{}: {scope:?} goes in a circle", self.name);
            hops.push(found.bundle.to_string());
            at = Installed { name: found.bundle, version: found.version };
        }
        let query = PathQuery {
            graph: self.graph.clone(),
            from: Some(self.installed(oldest)),
            to: Target::Head,
            channels: scope.iter().map(|name| name.parse().unwrap()).collect(),
            range: None,
            policy: Policy::CatalogProvided,
            major_updates: MajorUpdates::default(),
            environment: Environment::default(),
        };
        let walked = path(&query, RuleSet::V1);
        let names: Vec<&str> = walked.hops.iter().map(|hop| hop.bundle.as_str()).collect();
        assert_eq!(names, hops, "{} {scope:?}: the way that `path` finds", self.name);
        assert_eq!(walked.end, End::Stays, "{} {scope:?}", self.name);
        let classic = path(&query, RuleSet::Classic);
        assert!(!matches!(classic.end, End::Loop(_)), "{} {scope:?}: {:?}", self.name, classic.end);

        let fresh = resolve(&self.request(scope, None, Policy::CatalogProvided, None), &self.source);
        let head = fresh.result.unwrap();
        if head.version != at.version {
            assert_eq!(walked.reached, walked.pinned.is_some(), "{} {scope:?}", self.name);
            let scope = scope.first().map_or("all channels".to_owned(), |name| format!("channel {name}"));
            let why = walked.not_offered.iter().find(|it| it.bundle == head.bundle.as_str());
            let why = why.map_or_else(|| "not a newer version".to_owned(), |it| it.why.clone());
            tally.short.push(format!(
                "{}, {scope}: from {} it ends at {}, a first install takes {}: {why}",
                self.name,
                self.installed(oldest).version,
                at.version,
                head.version,
            ));
        }
        tally.walks += 1;
        tally.longest = tally.longest.max(hops.len());
    }
}

/// A range that takes this version only.
fn exactly(version: &VersionRelease) -> String {
    format!("={}", version.version.without_build())
}

/// A package as this test reads the catalog's lines.
fn draft(catalog: &Catalog, package: &str) -> GraphDraft {
    let mut draft = GraphDraft { package: package.to_owned(), ..GraphDraft::default() };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for line in catalog.package_lines(package) {
        let blob: Value = serde_json::from_slice(line).unwrap();
        let items = |key: &str| blob[key].as_array().cloned().unwrap_or_default();
        match blob["schema"].as_str().unwrap() {
            "olm.channel" => draft.channels.push(ChannelDraft {
                name: text(&blob["name"]),
                entries: items("entries")
                    .iter()
                    .map(|entry| ChannelEntry {
                        name: text(&entry["name"]),
                        replaces: text(&entry["replaces"]),
                        skips: entry["skips"].as_array().into_iter().flatten().map(text).collect(),
                        skip_range: text(&entry["skipRange"]),
                    })
                    .collect(),
            }),
            "olm.bundle" => {
                let properties = items("properties");
                let own = properties.iter().find(|it| it["type"] == "olm.package").unwrap();
                let release = own["value"]["release"].as_str().map(str::to_owned);
                draft.bundles.push(BundleDraft {
                    name: text(&blob["name"]),
                    image: text(&blob["image"]),
                    version: Ok((text(&own["value"]["version"]), release)),
                    ..BundleDraft::default()
                });
            }
            "olm.deprecations" => draft.deprecations.extend(items("entries").iter().map(|entry| {
                let name = text(&entry["reference"]["name"]).into();
                let scope = match entry["reference"]["schema"].as_str() {
                    Some("olm.bundle") => DeprecatedScope::Bundle(name),
                    Some("olm.channel") => DeprecatedScope::Channel(name),
                    _ => DeprecatedScope::Package,
                };
                (scope, text(&entry["message"]))
            })),
            _ => {}
        }
    }
    draft
}

#[test]
fn real_channels_from_each_version() {
    let Some(data) = data() else { return };
    let began = std::time::Instant::now();
    let mut rows = String::new();
    let (mut sum, mut short, mut packages) = (Tally::default(), Vec::new(), 0);
    for folder in FOLDERS {
        let catalog = load_dir(&data.join(folder), IngestLimits::default()).unwrap();
        for name in catalog.packages() {
            let package = Package::read(&catalog, name);
            let mut tally = Tally::default();
            for scope in package.scopes() {
                for installed in package.starts() {
                    for policy in [Policy::CatalogProvided, Policy::SelfCertified] {
                        package.ask(&package.request(&scope, None, policy, installed.as_ref()), &mut tally);
                    }
                }
                package.walk(&scope, &mut tally);
            }
            // from each version to each version, by name
            for installed in package.starts() {
                for target in package.graph.bundles() {
                    let range = exactly(package.graph.version(target).unwrap());
                    for policy in [Policy::CatalogProvided, Policy::SelfCertified] {
                        let request = package.request(&[], Some(&range), policy, installed.as_ref());
                        package.ask(&request, &mut tally);
                    }
                }
            }
            packages += 1;
            rows.push_str(&format!(
                "| {name} ({folder}) | {} | {}",
                package.graph.bundles().len(),
                row(&package, &tally)
            ));
            sum.asked += tally.asked;
            sum.moves += tally.moves;
            sum.stays += tally.stays;
            sum.hints_followed += tally.hints_followed;
            sum.walks += tally.walks;
            tally.refused.iter().for_each(|(why, times)| *sum.refused.entry(why).or_default() += times);
            short.append(&mut tally.short);
        }
    }
    let refused: usize = sum.refused.values().sum();
    let by_reason: Vec<String> = sum.refused.iter().map(|(why, times)| format!("{why} {times}")).collect();
    let text = format!(
        "{packages} packages, {} questions: {} are answered with another version, {} with the installed one, {refused} are \
         refused ({}). {} hints were followed, and each led to a bundle. {} walks from the oldest version of a \
         channel all end, none in a circle.\n\n\
         | Package (folder) | Bundles | Channels | Questions | Moves | Stays | Refused | Walks | Most hops |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n{rows}\n\
         Walks that end below what a first install takes, and why:\n\n{}\n",
        sum.asked,
        sum.moves,
        sum.stays,
        by_reason.join(", "),
        sum.hints_followed,
        sum.walks,
        short.iter().map(|line| format!("- {line}\n")).collect::<String>(),
    );
    println!("published catalogs: {} questions in {:.1?}", sum.asked, began.elapsed());
    assert!(packages >= 20 && sum.asked > 10_000 && refused > 0, "the sample is whole");
    section("resolver", text.trim_end());
}

fn row(package: &Package, tally: &Tally) -> String {
    format!(
        "{} | {} | {} | {} | {} | {} | {} |\n",
        package.graph.channels().len(),
        tally.asked,
        tally.moves,
        tally.stays,
        tally.refused.values().sum::<usize>(),
        tally.walks,
        tally.longest
    )
}

/// Compares a generated part of the page with what it should be; `OLM_WRITE_DOCS` writes it.
fn section(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/real-content.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("\n<!-- {name}: end -->"));
    let (head, rest) = page.split_once(&begin).expect("the page marks where the part begins");
    let (now, tail) = rest.split_once(&end).expect("the page marks where the part ends");
    if std::env::var_os("OLM_WRITE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{begin}{text}{end}{tail}")).unwrap();
    } else {
        assert_eq!(now, text, "written by OLM_WRITE_DOCS=1 with this test");
    }
}
