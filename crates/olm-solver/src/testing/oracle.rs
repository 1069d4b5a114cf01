//! Generated namespaces, answered by this crate and by the resolver of OLM Classic (the program of `hack/oracles/classic-resolver`).
//!
//! Both agree if they choose the same bundles or refuse with the same kind of error. What the reference answers may depend on the order in
//! which it meets Subscriptions or channels, which is chance; so it is asked several times with its lists in other orders.
//!
//! One difference is decided (decision 50): a list that the reference has tried before it goes back further is not tried from its first
//! alternative again. [`Agreement::GoneBack`] is that difference and no other: the search with steps back that starts every list again
//! chooses as this crate does, and so does the reference itself, without the alternatives that made it go back.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use super::{Case, agreement_key, generate, plain, render_answer};
use crate::reach::Reach;
use crate::solve::bundle;
use crate::sources::Sources;
use crate::{CandidateName, Limits, explain, solve};

/// How often the reference is asked about each case.
const ORDERS: &str = "2";
/// How often about a case that is answered otherwise.
const MORE_ORDERS: &str = "32";
/// Cases that are sent before the first answer is awaited.
const WINDOW: usize = 32;
/// Programs that answer at the same time.
const PROGRAMS: u64 = 4;
/// Disagreements after which a comparison ends.
const MAX_DIFFERENCES: usize = 10;

/// The program that answers as OLM Classic does.
#[derive(Debug)]
pub struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    /// # Errors
    /// When the program cannot be started.
    pub fn start(program: &Path, arguments: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(program);
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (input, output) = pipes.ok_or_else(|| io::Error::other("no pipes"))?;
        Ok(Self { child, input, output: BufReader::new(output) })
    }

    /// # Errors
    /// When the program has ended.
    pub fn send(&mut self, case: &str) -> io::Result<()> {
        writeln!(self.input, "{case}")
    }

    /// The next answer, in the order of the cases.
    ///
    /// # Errors
    /// When the program has ended, or answers no JSON.
    pub fn receive(&mut self) -> io::Result<Value> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// # Errors
    /// As [`Self::send`] and [`Self::receive`].
    pub fn ask(&mut self, case: &str) -> io::Result<Value> {
        self.send(case)?;
        self.receive()
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        // its input is still open
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// How an answer compares with the one of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    Same,
    /// The reference has several answers, one of which is ours.
    Chance,
    /// The difference about going back.
    GoneBack,
    Different,
}

/// Compares our answer with one of the reference, which resolves the case in more orders if they differ.
///
/// # Errors
/// When the program cannot be run.
pub fn agreement(program: &Path, case: &Value, ours: &Value, theirs: &Value) -> io::Result<Agreement> {
    if is_one_of(ours, theirs) {
        let has_several = !theirs["others"].is_null();
        return Ok(if has_several { Agreement::Chance } else { Agreement::Same });
    }
    let mut oracle = Oracle::start(program, &["-orders", MORE_ORDERS])?;
    Ok(match has_answer(&mut oracle, case.clone(), ours)? {
        true => Agreement::Chance,
        false if has_gone_back(&mut oracle, case, ours)? => Agreement::GoneBack,
        false => Agreement::Different,
    })
}

fn has_gone_back(oracle: &mut Oracle, case: &Value, ours: &Value) -> io::Result<bool> {
    let namespace = Case::parse(&case.to_string())?.namespace;
    let Ok(choices) = explain(&namespace, Limits::default()) else { return Ok(false) };
    if plain_key(&namespace).as_deref() != Some(agreement_key(ours).as_str()) {
        return Ok(false);
    }
    let rejected = choices.into_iter().flat_map(|choice| choice.rejected).map(|it| it.candidate);
    let without = without(case.clone(), &rejected.collect::<Vec<_>>());
    Ok(is_one_of(ours, &resolve(&without)?) && has_answer(oracle, without, ours)?)
}

/// Whether the reference answers so in one of its orders; it tries no further one after that.
fn has_answer(oracle: &mut Oracle, mut case: Value, ours: &Value) -> io::Result<bool> {
    case["until"] = json!(agreement_key(ours));
    Ok(is_one_of(ours, &oracle.ask(&case.to_string())?))
}

/// What the search with steps back chooses, as [`agreement_key`].
fn plain_key(namespace: &crate::Namespace) -> Option<String> {
    let limits = Limits::default();
    let sources = Sources::new(namespace);
    let reach = Reach::new(namespace, &sources, limits.steps).ok()?;
    let mut bundles: Vec<_> =
        plain::choose(&reach)??.into_iter().filter_map(|id| bundle(&reach, id)).collect();
    bundles.sort();
    Some(agreement_key(&render_answer("", &Ok(crate::Solution { bundles }))))
}

/// The case with these bundles deprecated, so that no list can take them.
fn without(mut case: Value, rejected: &[CandidateName]) -> Value {
    for catalog in case["catalogs"].as_array_mut().into_iter().flatten() {
        let of: Vec<&str> = rejected
            .iter()
            .filter(|it| catalog["name"] == it.catalog && catalog["namespace"] == it.namespace)
            .map(|it| it.name.as_str())
            .collect();
        for package in catalog["packages"].as_array_mut().into_iter().flatten() {
            let bundles = package["bundles"].as_array_mut().into_iter().flatten();
            for bundle in bundles.filter(|it| it["name"].as_str().is_some_and(|name| of.contains(&name))) {
                let mut properties = bundle["properties"].as_array().cloned().unwrap_or_default();
                if properties.is_empty() {
                    let provided = bundle["providedAPIs"].as_array().into_iter().flatten();
                    properties.extend(provided.map(|api| json!({"type": "olm.gvk", "value": api})));
                }
                properties.push(json!({"type": "olm.deprecated", "value": {}}));
                bundle["properties"] = json!(properties);
            }
        }
    }
    case
}

/// What became of the cases.
#[derive(Debug, Default)]
pub struct Comparison {
    pub seed: u64,
    /// Cases by what the reference answers: `solution`, `nothing new`, or the kind of error.
    pub answers: BTreeMap<String, usize>,
    /// Cases with something wrong on purpose.
    pub faulty: usize,
    /// Cases about which the reference has several answers; ours is one of them.
    pub chance: usize,
    /// Cases with the difference about going back.
    pub gone_back: usize,
    /// Conflicts with the clauses of the reference, and all.
    pub equal_clauses: (usize, usize),
    pub differences: Vec<Difference>,
}

/// A case that is answered otherwise, as small as it still is.
#[derive(Debug)]
pub struct Difference {
    pub case: Value,
    pub ours: Value,
    pub theirs: Value,
}

impl Comparison {
    pub fn cases(&self) -> usize {
        self.answers.values().sum()
    }

    /// Whether every kind of answer is common enough, and chance rare, so that the comparison means something.
    ///
    /// # Errors
    /// With the share that is not as it should be.
    pub fn check_mix(&self) -> Result<(), String> {
        let answers = |name: &str| self.answers.get(name).copied().unwrap_or_default();
        let refused = self.cases() - answers("solution") - answers("nothing new");
        let shares = [
            ("solution", answers("solution"), 60..=75),
            ("nothing new", answers("nothing new"), 7..=15),
            ("unsatisfiable", answers("unsatisfiable"), 14..=22),
            ("ambiguous", answers("ambiguous"), 1..=5),
            ("other", answers("other"), 1..=5),
            ("refused", refused, 19..=27),
            ("with a fault", self.faulty, 17..=23),
            ("several answers", self.chance, 0..=4),
            ("decided", self.gone_back, 0..=0),
        ];
        for (name, count, range) in shares {
            let percent = count * 100 / self.cases().max(1);
            if !range.contains(&percent) {
                return Err(format!("{name}: {percent}% of the cases, not {range:?}"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers: Vec<String> =
            self.answers.iter().map(|(answer, count)| format!("{count} {answer}")).collect();
        let (equal, conflicts) = self.equal_clauses;
        let cases = self.cases();
        write!(
            f,
            "{cases} cases of seed {}, {} with a fault: {}; {} agree, {} of them where the reference has several answers, \
             {} differ as decided after going back, {} differ; {equal} of {conflicts} conflicts have the clauses of the reference",
            self.seed,
            self.faulty,
            answers.join(", "),
            cases - self.differences.len() - self.gone_back,
            self.chance,
            self.gone_back,
            self.differences.len(),
        )?;
        for Difference { case, ours, theirs } in &self.differences {
            let note = case["note"].as_str().unwrap_or_default();
            write!(f, "\ncase ({note}):\n{case}\n  ours: {ours}\n  reference: {theirs}")?;
        }
        Ok(())
    }
}

/// Compares the cases `0..count` of a seed, with several of the programs side by side: most of its time is not processor time. A
/// share of the cases ends early after ten differences.
///
/// # Errors
/// When the program cannot be run.
pub fn compare(program: &Path, seed: u64, count: u64) -> io::Result<Comparison> {
    thread::scope(|scope| {
        let shares: Vec<_> = (0..PROGRAMS)
            .map(|first| {
                let numbers: Vec<u64> = (first..count).step_by(PROGRAMS as usize).collect();
                scope.spawn(move || compare_share(program, seed, &numbers))
            })
            .collect();
        let mut all = Comparison { seed, ..Comparison::default() };
        for share in shares {
            let share = share.join().map_err(|_| io::Error::other("a comparison panicked"))?;
            all.extend(share?);
        }
        Ok(all)
    })
}

fn compare_share(program: &Path, seed: u64, numbers: &[u64]) -> io::Result<Comparison> {
    let mut oracle = Oracle::start(program, &["-orders", ORDERS])?;
    let mut comparison = Comparison { seed, ..Comparison::default() };
    let mut cases = numbers.iter().map(|&number| generate::case(seed, number));
    let mut sent = VecDeque::new();
    loop {
        for case in cases.by_ref().take(WINDOW - sent.len()) {
            oracle.send(&case.to_string())?;
            sent.push_back(case);
        }
        let Some(case) = sent.pop_front() else { break };
        let theirs = oracle.receive()?;
        let ours = resolve(&case)?;
        comparison.add(program, case, &ours, &theirs)?;
        if comparison.differences.len() == MAX_DIFFERENCES {
            break;
        }
    }
    Ok(comparison)
}

impl Comparison {
    fn extend(&mut self, share: Self) {
        let Self { seed: _, answers, faulty, chance, gone_back, equal_clauses, differences } = share;
        for (answer, count) in answers {
            *self.answers.entry(answer).or_default() += count;
        }
        self.faulty += faulty;
        self.chance += chance;
        self.gone_back += gone_back;
        self.equal_clauses.0 += equal_clauses.0;
        self.equal_clauses.1 += equal_clauses.1;
        self.differences.extend(differences);
    }
}

impl Comparison {
    fn add(&mut self, program: &Path, case: Value, ours: &Value, theirs: &Value) -> io::Result<()> {
        let answer = match (theirs["solution"].as_array(), theirs["kind"].as_str()) {
            (Some(bundles), _) if bundles.is_empty() => "nothing new",
            (Some(_), _) => "solution",
            (None, kind) => kind.unwrap_or("no kind"),
        };
        *self.answers.entry(answer.to_owned()).or_default() += 1;
        self.faulty += usize::from(!case["note"].is_null());
        match agreement(program, &case, ours, theirs)? {
            Agreement::Same => {}
            Agreement::Chance => self.chance += 1,
            Agreement::GoneBack => self.gone_back += 1,
            Agreement::Different => return self.add_difference(program, case),
        }
        if theirs["kind"] == "unsatisfiable" && ours["kind"] == "unsatisfiable" {
            self.equal_clauses.1 += 1;
            self.equal_clauses.0 += usize::from(clauses(ours) == clauses(theirs));
        }
        Ok(())
    }

    fn add_difference(&mut self, program: &Path, case: Value) -> io::Result<()> {
        let mut oracle = Oracle::start(program, &["-orders", MORE_ORDERS])?;
        let case = shrink(&mut oracle, case)?;
        let (ours, theirs) = (resolve(&case)?, oracle.ask(&case.to_string())?);
        self.differences.push(Difference { case, ours, theirs });
        Ok(())
    }
}

fn resolve(case: &Value) -> io::Result<Value> {
    let case = Case::parse(&case.to_string())?;
    Ok(render_answer(&case.id, &solve(&case.namespace, Limits::default())))
}

/// Whether the reference answers so, at least in one order.
fn is_one_of(ours: &Value, theirs: &Value) -> bool {
    let ours = agreement_key(ours);
    let others = theirs["others"].as_array().into_iter().flatten();
    [theirs].into_iter().chain(others).any(|it| agreement_key(it) == ours)
}

fn clauses(answer: &Value) -> Vec<&str> {
    let mut clauses: Vec<&str> =
        answer["clauses"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    clauses.sort_unstable();
    clauses
}

/// The case without all items of its lists that the difference does not need.
fn shrink(oracle: &mut Oracle, mut case: Value) -> io::Result<Value> {
    let mut differs = |case: &Value| -> io::Result<bool> {
        let (ours, theirs) = (resolve(case)?, oracle.ask(&case.to_string())?);
        Ok(!is_one_of(&ours, &theirs) && !has_gone_back(oracle, case, &ours)?)
    };
    loop {
        let mut places = Vec::new();
        items(&case, &mut String::new(), &mut places);
        let before = places.len();
        // from the end, so that the places before stay what they are
        for (list, at) in places.into_iter().rev() {
            let Some(Value::Array(items)) = case.pointer_mut(&list) else { continue };
            if at >= items.len() {
                continue;
            }
            let item = items.remove(at);
            if !differs(&case)?
                && let Some(Value::Array(items)) = case.pointer_mut(&list)
            {
                items.insert(at, item);
            }
        }
        let mut left = Vec::new();
        items(&case, &mut String::new(), &mut left);
        if left.len() == before {
            return Ok(case);
        }
    }
}

/// All items of lists, as the pointer to the list and the place in it; those inside of an item follow it.
fn items(value: &Value, pointer: &mut String, found: &mut Vec<(String, usize)>) {
    let length = pointer.len();
    match value {
        Value::Array(list) => {
            for (at, item) in list.iter().enumerate() {
                found.push((pointer.clone(), at));
                pointer.push_str(&format!("/{at}"));
                items(item, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                pointer.push_str(&format!("/{}", name.replace('~', "~0").replace('/', "~1")));
                items(member, pointer, found);
                pointer.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
