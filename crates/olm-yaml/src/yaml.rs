//! YAML events to normalised JSON, without a tree (fbc §3.3).
//!
//! The grammar is libyaml's (`libyaml-safer`), meaning is decided here: scalars by [`crate::scalar`], anchors
//! as copies of the JSON they became, merges as members set in place (so what comes later wins). Only the
//! first document of the input counts, as in Go.

use std::collections::HashMap;

use libyaml_safer::{Event, EventData, MappingStyle, Mark, ScalarStyle, SequenceStyle};
use olm_core::go;

use crate::{
    Limits, Normaliser, ParseError,
    engine::{Engine, EngineError, source},
    members::{Member, sort_members},
    scalar::{Scalar, Tagged, tagged},
    syntax::{at, converting, from_utf16, is_utf16, parse_error},
    text::push_escaped,
};

/// Converts the first document of `input` and appends it to `out`; a document without content is `null`.
///
/// # Errors
/// [`ParseError`] with the message of Go's library (`error converting YAML to JSON: yaml: …`), or one that
/// names the limit.
pub fn yaml_to_json(input: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), ParseError> {
    convert(input, out, &mut Normaliser::new(), limits).map(|_| ())
}

/// As [`yaml_to_json`]; integers that fit an `i64` keep all digits, as Kubernetes reads objects.
///
/// # Errors
/// As [`yaml_to_json`].
pub fn yaml_to_json_exact(input: &[u8], out: &mut Vec<u8>, limits: &Limits) -> Result<(), ParseError> {
    convert(input, out, &mut Normaliser::exact(), limits).map(|_| ())
}

/// Bound on the sum of open brackets over all nodes of a document.
const FLOW_WORK: u64 = 20_000_000;

/// What stood in a chunk beside the first document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Converted {
    /// Line (from 0, within the chunk) of content that is never read, if there is any.
    pub(crate) ignored_from: Option<u64>,
    /// Where the document's first node lies, and the first integer that a double cannot hold.
    pub(crate) start: Option<Mark>,
    pub(crate) rounded: Option<Mark>,
}

/// As [`yaml_to_json`]; leaves the members of the outermost mapping in `buffers`.
pub(crate) fn convert(
    input: &[u8],
    out: &mut Vec<u8>,
    buffers: &mut Normaliser,
    limits: &Limits,
) -> Result<Converted, ParseError> {
    let decoded;
    let input = if is_utf16(input) {
        decoded = from_utf16(input)?;
        decoded.as_bytes()
    } else {
        input.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(input)
    };
    // the engine panics on a block scalar or an escape that ends with the input
    let ended;
    let input = if input.ends_with(b"\n") {
        input
    } else {
        ended = [input, b"\n"].concat();
        &ended
    };
    let start = out.len();
    buffers.members.clear();
    let mut sink = Sink {
        nodes: 0,
        first: None,
        rounded: None,
        input,
        out,
        start,
        members: &mut buffers.members,
        scratch: &mut buffers.scratch,
        frames: Vec::new(),
        anchors: HashMap::new(),
        spent: 0,
        flow_depth: 0,
        flow_work: 0,
        limits,
        exact_integers: buffers.exact_integers,
        problem: None,
        slashes: memchr::memmem::find(input, b"\\/").is_some(),
    };
    let result = sink.document();
    let nodes = sink.nodes;
    buffers.nodes = nodes;
    if result.is_err() {
        out.truncate(start);
        buffers.members.clear();
    }
    result
}

/// When Go would have noticed: while decoding or while converting to JSON. The earliest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Decode,
    Convert,
}

enum Anchor {
    /// The node that carries it is not finished.
    Open,
    Done {
        json: Vec<u8>,
        key: Key,
        nodes: u64,
    },
}

/// What a node is as a mapping key; text is escaped, without quotes.
#[derive(Clone)]
enum Key {
    Text(Vec<u8>),
    Null,
    TooLarge(u64),
    Collection,
}

/// What a collection continues with.
enum Expect {
    Item,
    Key,
    Value,
    Merge,
}

struct Frame {
    mapping: bool,
    /// Where the opening bracket lies.
    start: usize,
    first_member: usize,
    ascending: bool,
    expect: Expect,
    /// Written with brackets.
    flow: bool,
    anchor: Option<String>,
    /// Nodes before it.
    nodes: u64,
}

struct Sink<'a> {
    input: &'a [u8],
    out: &'a mut Vec<u8>,
    start: usize,
    members: &'a mut Vec<Member>,
    scratch: &'a mut Vec<u8>,
    frames: Vec<Frame>,
    anchors: HashMap<String, Anchor>,
    /// Bytes copied on behalf of anchors, aliases and merges.
    spent: usize,
    /// How many `[` and `{` are open, and the sum of that over all events.
    flow_depth: u64,
    flow_work: u64,
    /// Nodes so far, those of aliases included.
    nodes: u64,
    first: Option<Mark>,
    rounded: Option<Mark>,
    limits: &'a Limits,
    exact_integers: bool,
    problem: Option<(Phase, ParseError)>,
    /// Whether the input holds `\/` somewhere.
    slashes: bool,
}

/// Stops reading events immediately; an ordinary problem lets them run on, for a syntax error comes first.
struct Stop(ParseError);

impl Sink<'_> {
    fn document(&mut self) -> Result<Converted, ParseError> {
        let mut source = source(self.input);
        let mut engine = Engine::new(&mut source);
        loop {
            let event = engine.event().map_err(|error| parse_error(&error, self.input))?;
            match event.data {
                EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
                EventData::StreamEnd => {
                    if self.out.len() == self.start && self.problem.is_none() {
                        self.out.extend_from_slice(b"null");
                    }
                    break;
                }
                EventData::DocumentEnd { .. } => break,
                _ => self.node(event).map_err(|Stop(error)| error)?,
            }
        }
        if let Some((_, problem)) = self.problem.take() {
            return Err(problem);
        }
        let ignored_from = match engine.event() {
            Ok(Event { data: EventData::StreamEnd, .. }) => None,
            Ok(event) => Some(event.start_mark.line),
            Err(EngineError::Syntax(error)) => Some(error.problem_mark().map_or(0, |mark| mark.line)),
            Err(EngineError::Panicked(mark)) => Some(mark.line),
        };
        Ok(Converted { ignored_from, start: self.first, rounded: self.rounded })
    }

    fn report(&mut self, phase: Phase, mark: Mark, problem: &str) {
        if self.problem.as_ref().is_none_or(|(earlier, _)| phase < *earlier) {
            self.problem = Some((phase, at(mark, converting(problem))));
        }
    }

    fn node(&mut self, event: Event) -> Result<(), Stop> {
        let mark = event.start_mark;
        self.first.get_or_insert(mark);
        if self.out.len() - self.start > self.limits.document_bytes {
            let limit = self.limits.document_bytes;
            return Err(Stop(at(mark, format!("the document is larger than the limit of {limit} bytes"))));
        }
        let nodes = match &event.data {
            EventData::Scalar { .. } | EventData::SequenceStart { .. } | EventData::MappingStart { .. } => 1,
            EventData::Alias { anchor } => match self.anchors.get(anchor) {
                Some(Anchor::Done { nodes, .. }) => *nodes,
                Some(Anchor::Open) | None => 1,
            },
            _ => 0,
        };
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > self.limits.document_nodes {
            return Err(Stop(at(mark, self.limits.too_many_nodes())));
        }
        // the engine looks at every open `[` and `{` for each token
        self.flow_work += self.flow_depth;
        if self.flow_work > FLOW_WORK {
            return Err(Stop(at(mark, converting("yaml: too many nodes in too deep brackets"))));
        }
        match event.data {
            EventData::Scalar { anchor, tag, value, style, .. } => {
                if style == ScalarStyle::DoubleQuoted {
                    self.refuse_escaped_slash(mark, event.end_mark)?;
                }
                let plain = style == ScalarStyle::Plain;
                self.scalar(mark, anchor, tag.as_deref(), &value, plain)
            }
            EventData::Alias { anchor } => self.alias(mark, &anchor),
            EventData::SequenceStart { anchor, style, .. } => {
                self.open(mark, false, style == SequenceStyle::Flow, anchor)
            }
            EventData::MappingStart { anchor, style, .. } => {
                self.open(mark, true, style == MappingStyle::Flow, anchor)
            }
            EventData::SequenceEnd | EventData::MappingEnd => self.close(mark),
            _ => Ok(()),
        }
    }

    /// Whether the next node is a key, and the comma before an item or a key.
    fn arrive(&mut self) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        if matches!(frame.expect, Expect::Item) && self.out.len() > frame.start + 1 {
            self.out.push(b',');
        }
        matches!(frame.expect, Expect::Key)
    }

    /// A value has been written from `start` to the end of the output.
    fn finish(&mut self, mark: Mark, start: usize) -> Result<(), Stop> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        match frame.expect {
            Expect::Item | Expect::Key => {}
            Expect::Value => {
                frame.expect = Expect::Key;
                self.end_member();
            }
            Expect::Merge => {
                frame.expect = Expect::Key;
                let value = self.out.split_off(start);
                self.merge(mark, &value)?;
            }
        }
        Ok(())
    }

    /// The value of the last member ends where the output does.
    fn end_member(&mut self) {
        if let Some(member) = self.members.last_mut() {
            member.end = self.out.len();
        }
    }

    fn open(&mut self, mark: Mark, mapping: bool, flow: bool, anchor: Option<String>) -> Result<(), Stop> {
        if self.frames.len() >= self.limits.depth {
            return Err(Stop(at(mark, "error converting YAML to JSON: yaml: exceeded max depth")));
        }
        if self.arrive() {
            let what = if mapping { "a mapping" } else { "a sequence" };
            self.report(Phase::Decode, mark, &format!("yaml: invalid map key: {what}"));
            self.key(mark, Key::Text(b"?".to_vec()))?;
        }
        if let Some(name) = &anchor {
            self.anchors.insert(name.clone(), Anchor::Open);
        }
        let expect = if mapping { Expect::Key } else { Expect::Item };
        let start = self.out.len();
        self.out.push(if mapping { b'{' } else { b'[' });
        let first_member = self.members.len();
        self.flow_depth += u64::from(flow);
        // it has been counted itself
        let nodes = self.nodes.saturating_sub(1);
        self.frames.push(Frame {
            mapping,
            start,
            first_member,
            ascending: true,
            expect,
            flow,
            anchor,
            nodes,
        });
        Ok(())
    }

    fn close(&mut self, mark: Mark) -> Result<(), Stop> {
        let Some(frame) = self.frames.pop() else { return Ok(()) };
        self.flow_depth -= u64::from(frame.flow);
        if frame.mapping {
            if !frame.ascending {
                sort_members(self.members, frame.first_member, frame.start + 1, self.out, self.scratch);
            }
            self.out.push(b'}');
            if !self.frames.is_empty() {
                self.members.truncate(frame.first_member);
            }
        } else {
            self.out.push(b']');
        }
        if let Some(name) = frame.anchor {
            self.spend(mark, self.out.len() - frame.start)?;
            let json = self.out[frame.start..].to_vec();
            let nodes = self.nodes - frame.nodes;
            self.anchors.insert(name, Anchor::Done { json, key: Key::Collection, nodes });
        }
        self.finish(mark, frame.start)
    }

    fn alias(&mut self, mark: Mark, name: &str) -> Result<(), Stop> {
        let (length, key) = match self.anchors.get(name) {
            None => {
                return Err(Stop(at(mark, converting(&format!("yaml: unknown anchor '{name}' referenced")))));
            }
            Some(Anchor::Open) => {
                self.report(Phase::Decode, mark, &format!("yaml: anchor '{name}' value contains itself"));
                (0, Key::Text(b"?".to_vec()))
            }
            Some(Anchor::Done { json, key, .. }) => (json.len(), key.clone()),
        };
        self.spend(mark, length)?;
        if self.arrive() {
            return self.key(mark, key);
        }
        let start = self.out.len();
        match self.anchors.get(name) {
            Some(Anchor::Done { json, .. }) => self.out.extend_from_slice(json),
            _ => self.out.extend_from_slice(b"null"),
        }
        self.finish(mark, start)
    }

    fn spend(&mut self, mark: Mark, bytes: usize) -> Result<(), Stop> {
        self.spent = self.spent.saturating_add(bytes);
        if self.spent > self.limits.alias_bytes {
            return Err(Stop(at(mark, converting("yaml: document contains excessive aliasing"))));
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        mark: Mark,
        anchor: Option<String>,
        tag: Option<&str>,
        value: &str,
        plain: bool,
    ) -> Result<(), Stop> {
        let decoded;
        let scalar = match tagged(tag, value, plain) {
            Ok(Tagged::Scalar(scalar)) => scalar,
            Ok(Tagged::Binary(bytes)) => {
                decoded = bytes;
                Scalar::Text(&decoded)
            }
            Err(message) => {
                self.report(Phase::Decode, mark, &message);
                Scalar::Text("")
            }
        };
        let is_key = self.arrive();
        if is_key && scalar == Scalar::Merge {
            if let Some(frame) = self.frames.last_mut() {
                frame.expect = Expect::Merge;
            }
            return Ok(());
        }
        if let Some(name) = anchor {
            let mut json = Vec::new();
            push_scalar(scalar, &mut json, self.exact_integers);
            self.spend(mark, json.len())?;
            self.anchors.insert(name, Anchor::Done { json, key: key_of(scalar), nodes: 1 });
        }
        if is_key {
            return self.key(mark, key_of(scalar));
        }
        let is_exact = self.exact_integers && matches!(scalar, Scalar::Int(_));
        if self.rounded.is_none() && !is_exact && scalar.loses_digits(value) {
            self.rounded = Some(mark);
        }
        let start = self.out.len();
        if let Scalar::Float(number) = scalar
            && !number.is_finite()
        {
            let text = match number {
                f64::INFINITY => "+Inf",
                f64::NEG_INFINITY => "-Inf",
                _ => "NaN",
            };
            self.report(Phase::Convert, mark, &format!("json: unsupported value: {text}"));
        }
        push_scalar(scalar, self.out, self.exact_integers);
        self.finish(mark, start)
    }

    /// Writes `"key":` and notes the member.
    fn key(&mut self, mark: Mark, key: Key) -> Result<(), Stop> {
        let text = match key {
            Key::Text(text) => text,
            Key::Null => {
                let message = "unsupported map key of type: %!s(<nil>), key: <nil>";
                self.report(Phase::Convert, mark, message);
                Vec::new()
            }
            Key::TooLarge(number) => {
                let message = format!("unsupported map key of type: uint64, key: {number:#x}");
                self.report(Phase::Convert, mark, &message);
                Vec::new()
            }
            Key::Collection => {
                self.report(Phase::Decode, mark, "yaml: invalid map key: a mapping or a sequence");
                Vec::new()
            }
        };
        if let Some(message) = self.limits.too_long_key(&text) {
            return Err(Stop(at(mark, message)));
        }
        self.push_key(&text);
        if let Some(frame) = self.frames.last_mut() {
            frame.expect = Expect::Value;
        }
        Ok(())
    }

    fn push_key(&mut self, escaped: &[u8]) {
        let Some(frame) = self.frames.last_mut() else { return };
        if self.out.len() != frame.start + 1 {
            self.out.push(b',');
        }
        let start = self.out.len();
        self.out.push(b'"');
        self.out.extend_from_slice(escaped);
        self.out.extend_from_slice(b"\":");
        let member = Member { start, value: self.out.len(), end: self.out.len() };
        if frame.ascending {
            let prior = self.members[frame.first_member..].last();
            frame.ascending = memchr::memchr(b'\\', escaped).is_none()
                && prior.is_none_or(|prior| self.out[prior.key()] < *escaped);
        }
        self.members.push(member);
    }

    /// Sets the members of a mapping, or of a sequence of mappings (the first one wins, so it is set last).
    fn merge(&mut self, mark: Mark, value: &[u8]) -> Result<(), Stop> {
        self.spend(mark, value.len())?;
        let mut mappings = Vec::new();
        let mut ok = true;
        match value.first() {
            Some(b'{') => mappings.push(value),
            Some(b'[') => {
                let mut rest = &value[1..];
                let mut discard = Vec::new();
                while let Some(b'{') = rest.first() {
                    discard.clear();
                    let Ok(used) = Normaliser::new().value(rest, &mut discard, self.limits) else { break };
                    mappings.push(&rest[..used]);
                    rest = &rest[used..];
                    rest = rest.strip_prefix(b",").unwrap_or(rest);
                }
                ok = rest == b"]";
            }
            _ => ok = false,
        }
        if !ok {
            let problem = "yaml: map merge requires map or sequence of maps as the value";
            self.report(Phase::Decode, mark, problem);
            return Ok(());
        }
        for mapping in mappings.into_iter().rev() {
            let mut normaliser = Normaliser::new();
            normaliser.exact_integers = self.exact_integers;
            let mut json = Vec::new();
            if normaliser.value(mapping, &mut json, self.limits).is_err() {
                continue;
            }
            for member in normaliser.members() {
                self.push_key(&json[member.key()]);
                self.out.extend_from_slice(&json[member.value()]);
                self.end_member();
            }
        }
        Ok(())
    }

    /// libyaml reads the escape `\/`, Go refuses it.
    fn refuse_escaped_slash(&mut self, start: Mark, end: Mark) -> Result<(), Stop> {
        if !self.slashes {
            return Ok(());
        }
        // the engine counts bytes in its marks
        let (from, to) = (usize::try_from(start.index).ok(), usize::try_from(end.index).ok());
        let Some(mut rest) = from.zip(to).and_then(|(from, to)| self.input.get(from..to)) else {
            return Ok(());
        };
        while let Some(found) = memchr::memchr(b'\\', rest) {
            if rest.get(found + 1) == Some(&b'/') {
                let line = start.line;
                let position = if line == 0 { String::new() } else { format!("line {}: ", line + 1) };
                let message = converting(&format!("yaml: {position}found unknown escape character"));
                return Err(Stop(at(start, message)));
            }
            rest = rest.get(found + 2..).unwrap_or_default();
        }
        Ok(())
    }
}

fn push_scalar(scalar: Scalar<'_>, out: &mut Vec<u8>, exact_integers: bool) {
    match scalar {
        Scalar::Null => out.extend_from_slice(b"null"),
        Scalar::Bool(true) => out.extend_from_slice(b"true"),
        Scalar::Bool(false) => out.extend_from_slice(b"false"),
        Scalar::Int(number) if exact_integers => out.extend_from_slice(number.to_string().as_bytes()),
        Scalar::Int(number) => push_number(number as f64, out),
        Scalar::Uint(number) => push_number(number as f64, out),
        Scalar::Float(number) => push_number(number, out),
        Scalar::Text(text) => {
            out.push(b'"');
            push_escaped(text.as_bytes(), out);
            out.push(b'"');
        }
        Scalar::Merge => out.extend_from_slice(b"\"<<\""),
    }
}

fn push_number(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(go::json_number(number).as_bytes());
}

/// The text of a float as the key of a mapping.
fn float_key(number: f32) -> String {
    match number {
        f32::INFINITY => ".inf".to_owned(),
        f32::NEG_INFINITY => "-.inf".to_owned(),
        number if number.is_nan() => ".nan".to_owned(),
        number => go::general_f32(number),
    }
}

fn key_of(scalar: Scalar<'_>) -> Key {
    match scalar {
        Scalar::Null => Key::Null,
        Scalar::Uint(number) => Key::TooLarge(number),
        Scalar::Bool(true) => Key::Text(b"true".to_vec()),
        Scalar::Bool(false) => Key::Text(b"false".to_vec()),
        Scalar::Int(number) => Key::Text(number.to_string().into_bytes()),
        Scalar::Float(number) => Key::Text(float_key(number as f32).into_bytes()),
        Scalar::Merge => Key::Text(b"<<".to_vec()),
        Scalar::Text(text) => {
            let mut escaped = Vec::with_capacity(text.len());
            push_escaped(text.as_bytes(), &mut escaped);
            Key::Text(escaped)
        }
    }
}
