//! Reading a scenario.

use std::collections::BTreeMap;

use olm_core::UnknownWord;
use olm_fbc::ChannelEntry;

use crate::graph::{BundleDraft, ChannelDraft, DeprecatedScope, GraphDraft};
use crate::request::{MajorUpdates, Policy};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ScenarioError {
    /// Line, beginning with 1.
    pub line: usize,
    pub message: String,
}

#[derive(Debug, Clone)]
pub struct Scenario {
    /// First line about it.
    pub title: String,
    pub package: String,
    pub catalogs: Vec<CatalogDraft>,
    pub questions: Vec<Question>,
}

#[derive(Debug, Clone, Default)]
pub struct CatalogDraft {
    pub(super) name: String,
    pub(super) priority: i32,
    pub(super) unreadable: Option<String>,
    /// To be found by the caller's loader.
    pub(super) from: Option<String>,
    pub(super) graph: GraphDraft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    V1,
    Classic,
    /// Both; they must agree.
    Both,
    WalkV1,
    WalkClassic,
    /// v1, whether `to` can be reached.
    Paths,
}

#[derive(Debug, Clone)]
pub struct Question {
    /// Line, beginning with 1.
    pub line: usize,
    pub text: String,
    pub who: Who,
    /// Version or name of what is installed.
    pub installed: Option<String>,
    pub channels: Vec<String>,
    pub version: String,
    pub policy: Policy,
    pub major_updates: MajorUpdates,
    pub starting: Option<String>,
    /// Version to reach, or `head`.
    pub to: Option<String>,
    pub expected: Option<Reply>,
}

/// What comes of a question, or is expected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// These versions (one, or all hops), each perhaps with `@catalog`.
    Versions(Vec<String>),
    /// What is installed remains.
    Stay,
    /// An error; of an expected one, a part of its text.
    Error(String),
    /// There is no way.
    Unreachable,
}

const MAX_LINES: usize = 100_000;

impl Scenario {
    /// Parses a scenario.
    ///
    /// # Errors
    /// With the line and what is wrong in it.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mut reader = Reader::default();
        for (at, line) in text.lines().enumerate() {
            let refuse = |message: String| ScenarioError { line: at + 1, message };
            if at >= MAX_LINES {
                return Err(refuse(format!("a scenario has at most {MAX_LINES} lines")));
            }
            let words = words(line).map_err(refuse)?;
            if !words.is_empty() {
                reader.line(&words, line.starts_with([' ', '\t']), at + 1, line.trim()).map_err(refuse)?;
            }
        }
        reader.finish().map_err(|message| ScenarioError { line: text.lines().count().max(1), message })
    }
}

fn major_updates(rest: &mut Rest<'_>) -> Result<MajorUpdates, String> {
    rest.value("majorUpdates")?.parse().map_err(|error: UnknownWord| error.to_string())
}

/// A word, and whether it was quoted.
type Word = (String, bool);

/// Splits a line at spaces; double quotes keep a word together, `#` outside of them begins a comment.
fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut found = Vec::new();
    let mut chars = line.chars().peekable();
    while let Some(&c) = chars.peek() {
        match c {
            '#' => break,
            c if c.is_whitespace() => {
                chars.next();
            }
            '"' => {
                chars.next();
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => word.extend(chars.next()),
                        Some(c) => word.push(c),
                        None => return Err("a quote is not closed".to_owned()),
                    }
                }
                found.push((word, true));
            }
            _ => {
                let mut word = String::new();
                while let Some(c) = chars.next_if(|c| !c.is_whitespace()) {
                    word.push(c);
                }
                found.push((word, false));
            }
        }
    }
    Ok(found)
}

#[derive(Default)]
struct Reader {
    title: String,
    package: String,
    default_channel: String,
    catalogs: Vec<CatalogDraft>,
    major_updates: MajorUpdates,
    questions: Vec<Question>,
}

/// The rest of a line: words taken one by one.
struct Rest<'a> {
    words: &'a [Word],
    at: usize,
}

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.at)?;
        self.at += 1;
        Some(&word.0)
    }

    fn value(&mut self, of: &str) -> Result<&'a str, String> {
        self.next().ok_or_else(|| format!("a value must follow {of}"))
    }

    fn peek(&self) -> Option<&'a Word> {
        self.words.get(self.at)
    }
}

impl Reader {
    fn line(&mut self, words: &[Word], indented: bool, line: usize, text: &str) -> Result<(), String> {
        let mut rest = Rest { words, at: 0 };
        if indented {
            return self.entry(&mut rest);
        }
        match rest.next().unwrap_or_default() {
            "title" => {
                self.title = words[1..].iter().map(|word| word.0.as_str()).collect::<Vec<_>>().join(" ");
                Ok(())
            }
            "package" => self.package(&mut rest),
            "catalog" => self.catalog(&mut rest),
            "channel" => self.channel(&mut rest),
            "bundle" => self.bundle(&mut rest),
            "deprecated" => self.deprecated(&mut rest),
            "majorUpdates" => {
                self.major_updates = major_updates(&mut rest)?;
                Ok(())
            }
            "v1" => self.question(Who::V1, &mut rest, line, text),
            "classic" => self.question(Who::Classic, &mut rest, line, text),
            "both" => self.question(Who::Both, &mut rest, line, text),
            "paths" => self.question(Who::Paths, &mut rest, line, text),
            "walk" => match rest.next() {
                Some("v1") => self.question(Who::WalkV1, &mut rest, line, text),
                Some("classic") => self.question(Who::WalkClassic, &mut rest, line, text),
                _ => Err("walk needs v1 or classic".to_owned()),
            },
            other => Err(format!(
                "unknown statement {other:?}: use title, package, catalog, channel, bundle, deprecated, majorUpdates, v1, classic, both, \
                 walk or paths"
            )),
        }
    }

    fn package(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        self.package = rest.value("package")?.to_owned();
        match rest.next() {
            None => Ok(()),
            Some("default") => {
                self.default_channel = rest.value("default")?.to_owned();
                Ok(())
            }
            Some(other) => Err(format!("unknown word {other:?} after the package's name")),
        }
    }

    fn catalog(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        let mut made = CatalogDraft { name: rest.value("catalog")?.to_owned(), ..CatalogDraft::default() };
        while let Some(word) = rest.next() {
            match word {
                "priority" => {
                    let number = rest.value(word)?;
                    made.priority =
                        number.parse().map_err(|_| format!("priority {number:?} is no 32-bit number"))?;
                }
                "unreadable" => made.unreadable = Some(rest.value(word)?.to_owned()),
                "from" => made.from = Some(rest.value(word)?.to_owned()),
                other => return Err(format!("unknown word {other:?}: use priority, unreadable or from")),
            }
        }
        self.catalogs.push(made);
        Ok(())
    }

    /// The catalog that is being described; the first one needs no statement of its own.
    fn current(&mut self) -> Result<&mut CatalogDraft, String> {
        if self.package.is_empty() {
            return Err("a package line must come first".to_owned());
        }
        if self.catalogs.is_empty() {
            self.catalogs.push(CatalogDraft { name: "main".to_owned(), ..CatalogDraft::default() });
        }
        let (package, default_channel) = (self.package.clone(), self.default_channel.clone());
        let catalog = self.catalogs.last_mut().ok_or("no catalog")?;
        catalog.graph.package = package;
        catalog.graph.default_channel = default_channel;
        Ok(catalog)
    }

    fn channel(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        let name = rest.value("channel")?.to_owned();
        if rest.peek().is_some() {
            return Err("entries stand below the channel, one a line, indented".to_owned());
        }
        self.current()?.graph.channels.push(ChannelDraft { name, entries: Vec::new() });
        Ok(())
    }

    fn entry(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        let package = self.package.clone();
        let version = rest.value("entry")?;
        let mut made = ChannelEntry { name: full_name(&package, version), ..ChannelEntry::default() };
        while let Some(word) = rest.next() {
            match word {
                "replaces" => made.replaces = full_name(&package, rest.value(word)?),
                "skips" => {
                    while let Some((name, _)) =
                        rest.peek().filter(|(word, _)| !matches!(word.as_str(), "replaces" | "skipRange"))
                    {
                        rest.at += 1;
                        made.skips.extend(
                            name.split(',')
                                .filter(|part| !part.is_empty())
                                .map(|part| full_name(&package, part)),
                        );
                    }
                }
                "skipRange" => made.skip_range = rest.value(word)?.to_owned(),
                other => return Err(format!("unknown word {other:?}: use replaces, skips or skipRange")),
            }
        }
        let graph = &mut self.current()?.graph;
        let channel = graph
            .channels
            .last_mut()
            .ok_or("an indented line is an entry and needs a channel line above it")?;
        let name = made.name.clone();
        channel.entries.push(made);
        if !graph.bundles.iter().any(|bundle| bundle.name == name) {
            graph.bundles.push(default_bundle(&package, &name));
        }
        Ok(())
    }

    fn bundle(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        let package = self.package.clone();
        let name = full_name(&package, rest.value("bundle")?);
        let mut made = default_bundle(&package, &name);
        while let Some(word) = rest.next() {
            match word {
                "version" => {
                    let release = made.version.ok().and_then(|(_, release)| release);
                    made.version = Ok((rest.value(word)?.to_owned(), release));
                }
                "release" => {
                    let version = made.version.map(|(version, _)| version).unwrap_or_default();
                    made.version = Ok((version, Some(rest.value(word)?.to_owned())));
                }
                "image" => made.image = rest.value(word)?.to_owned(),
                "property" => {
                    let kind = rest.value(word)?.to_owned();
                    made.properties.push((kind, rest.value("property TYPE")?.to_owned()));
                }
                other => {
                    return Err(format!("unknown word {other:?}: use version, release, image or property"));
                }
            }
        }
        let bundles = &mut self.current()?.graph.bundles;
        bundles.retain(|bundle| bundle.name != made.name);
        bundles.push(made);
        Ok(())
    }

    fn deprecated(&mut self, rest: &mut Rest<'_>) -> Result<(), String> {
        let package = self.package.clone();
        let scope = match rest.next() {
            Some("package") => DeprecatedScope::Package,
            Some("channel") => DeprecatedScope::Channel(rest.value("channel")?.into()),
            Some("bundle") => DeprecatedScope::Bundle(full_name(&package, rest.value("bundle")?).into()),
            _ => return Err("deprecated needs package, channel NAME or bundle VERSION".to_owned()),
        };
        let message = rest.next().unwrap_or("deprecated").to_owned();
        self.current()?.graph.deprecations.push((scope, message));
        Ok(())
    }

    fn question(&mut self, who: Who, rest: &mut Rest<'_>, line: usize, text: &str) -> Result<(), String> {
        let mut made = Question {
            line,
            text: text.to_owned(),
            who,
            installed: None,
            channels: Vec::new(),
            version: String::new(),
            policy: Policy::CatalogProvided,
            major_updates: self.major_updates,
            starting: None,
            to: None,
            expected: None,
        };
        while let Some(word) = rest.next() {
            match word {
                "installed" => {
                    made.installed = Some(rest.value(word)?)
                        .filter(|text| *text != "none")
                        .map(|text| full_name(&self.package, text));
                }
                "channel" | "channels" => {
                    made.channels.extend(rest.value(word)?.split(',').map(str::to_owned));
                }
                "version" => made.version = rest.value(word)?.to_owned(),
                "policy" => {
                    made.policy = match rest.value(word)? {
                        "CatalogProvided" => Policy::CatalogProvided,
                        "SelfCertified" => Policy::SelfCertified,
                        other => {
                            return Err(format!(
                                "unknown policy {other:?}: use CatalogProvided or SelfCertified"
                            ));
                        }
                    }
                }
                "majorUpdates" => made.major_updates = major_updates(rest)?,
                "startingCSV" => made.starting = Some(full_name(&self.package, rest.value(word)?)),
                "to" => made.to = Some(rest.value(word)?.to_owned()),
                "=>" => {
                    made.expected = Some(expected(rest)?);
                    break;
                }
                other => {
                    return Err(format!(
                        "unknown word {other:?}: use installed, channels, version, policy, majorUpdates, startingCSV, to or =>"
                    ));
                }
            }
        }
        self.questions.push(made);
        Ok(())
    }

    fn finish(mut self) -> Result<Scenario, String> {
        if self.package.is_empty() {
            return Err("there is no package line; write package NAME".to_owned());
        }
        let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
        for catalog in &self.catalogs {
            if seen.insert(&catalog.name, ()).is_some() {
                return Err(format!("catalog {:?} is there twice", catalog.name));
            }
        }
        if self.title.is_empty() {
            self.title = format!("package {}", self.package);
        }
        let Self { title, package, catalogs, questions, .. } = self;
        Ok(Scenario { title, package, catalogs, questions })
    }
}

fn expected(rest: &mut Rest<'_>) -> Result<Reply, String> {
    let first = rest.value("=>")?;
    let answer = match first {
        "stay" | "—" => Reply::Stay,
        "unreachable" => Reply::Unreachable,
        "error" | "E" => Reply::Error(rest.next().unwrap_or_default().to_owned()),
        _ => {
            let mut all = vec![first.to_owned()];
            while let Some(more) = rest.next() {
                all.push(more.to_owned());
            }
            return Ok(Reply::Versions(all));
        }
    };
    match rest.next() {
        None => Ok(answer),
        Some(more) => Err(format!("{more:?} is too much after the answer")),
    }
}

/// A version stands for the bundle `<package>.v<version>`; anything that does not begin with a digit is a name.
fn full_name(package: &str, text: &str) -> String {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        format!("{package}.v{text}")
    } else {
        text.to_owned()
    }
}

/// A bundle whose version is in its name.
fn default_bundle(package: &str, name: &str) -> BundleDraft {
    let version = match name.strip_prefix(package).and_then(|rest| rest.strip_prefix(".v")) {
        Some(version) => Ok((version.to_owned(), None)),
        None => Err(format!("no package property found in bundle {name:?}")),
    };
    let image = format!("registry.example/{package}:{}", name.replace('+', "_"));
    BundleDraft { name: name.to_owned(), image, version, ..BundleDraft::default() }
}
