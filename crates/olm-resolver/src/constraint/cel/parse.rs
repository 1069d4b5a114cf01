//! Reading a rule: tokens, precedence, names, types.

use regex::{Regex, RegexBuilder};

const MAX_DEPTH: usize = 64;
/// Most operators and selections; a chain of them nests the tree to the left, so this bounds the stack, too.
const MAX_LINKS: usize = 300;
/// Bytes that the compiled pattern of `matches` may take.
const MAX_PATTERN: usize = 64 * 1024;

#[derive(Debug, Clone)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Box<str>),
    List(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Name(Box<str>),
    Field(Box<Expr>, Box<str>),
    Index(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Binary(Operator, Box<Expr>, Box<Expr>),
    Choose(Box<[Expr; 3]>),
    /// `has(a.b)`
    Has(Box<Expr>, Box<str>),
    /// `list.exists(name, body)` and its like.
    Fold(Fold, Box<Expr>, Box<str>, Box<Expr>),
    Call(Function, Vec<Expr>),
    /// `text.matches('pattern')`; the pattern is compiled when the rule is read.
    Matches(Box<Expr>, Box<Regex>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    Less,
    AtMost,
    Greater,
    AtLeast,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fold {
    Exists,
    All,
    ExistsOne,
    Filter,
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Size,
    StartsWith,
    EndsWith,
    Contains,
    Int,
    Double,
    Text,
    SemverCompare,
}

impl Function {
    fn named(name: &str) -> Option<(Self, usize)> {
        Some(match name {
            "size" => (Self::Size, 1),
            "startsWith" => (Self::StartsWith, 2),
            "endsWith" => (Self::EndsWith, 2),
            "contains" => (Self::Contains, 2),
            "int" => (Self::Int, 1),
            "double" => (Self::Double, 1),
            "string" => (Self::Text, 1),
            "semver_compare" => (Self::SemverCompare, 2),
            _ => return None,
        })
    }
}

/// What an expression gives, as far as that is known beforehand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Bool,
    Other,
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Int(i64),
    Double(f64),
    Text(String),
    Mark(&'static str),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Int(number) => number.fmt(f),
            Self::Double(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::Mark(mark) => f.write_str(mark),
        }
    }
}

const MARKS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}", "=",
];

fn tokens(source: &str) -> Result<Vec<(Token, usize)>, String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        if c.is_whitespace() {
            at += c.len_utf8();
        } else if c.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            let number = &rest[..end];
            let token = if number.contains('.') {
                Token::Double(number.parse().map_err(|_| format!("{number} is no number in cel rule"))?)
            } else {
                Token::Int(
                    number
                        .parse()
                        .map_err(|_| format!("number {number} in cel rule does not fit 64 bits"))?,
                )
            };
            found.push((token, at));
            at += end;
        } else if c.is_alphabetic() || c == '_' {
            let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            found.push((Token::Word(rest[..end].to_owned()), at));
            at += end;
        } else if c == '"' || c == '\'' {
            let (text, length) = text_literal(rest, c)?;
            found.push((Token::Text(text), at));
            at += length;
        } else {
            let mark = MARKS.iter().find(|mark| rest.starts_with(**mark));
            let mark = mark.ok_or_else(|| format!("unexpected character {c:?} in cel rule"))?;
            found.push((Token::Mark(mark), at));
            at += mark.len();
        }
    }
    Ok(found)
}

fn text_literal(rest: &str, quote: char) -> Result<(String, usize), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((text, at + 1)),
            '\\' => match chars.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, 't')) => text.push('\t'),
                Some((_, 'r')) => text.push('\r'),
                Some((_, c @ ('\\' | '\'' | '"' | '`' | '?'))) => text.push(c),
                Some((_, c)) => return Err(format!("unknown escape \\{c} in cel rule")),
                None => break,
            },
            c => text.push(c),
        }
    }
    Err("a text is not closed in cel rule".to_owned())
}

pub(super) fn parse(source: &str) -> Result<Expr, String> {
    let tokens = tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, depth: 0, links: 0, names: vec![("properties".to_owned(), false)] };
    let expr = parser.expression()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some((token, at)) => Err(format!("unexpected {:?} in cel rule at byte {at}", token.to_string())),
    }
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    links: usize,
    /// Names in scope, and whether each is one of the bundle's properties.
    names: Vec<(String, bool)>,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(token, _)| token)
    }

    fn take(&mut self, mark: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Mark(found)) if *found == mark);
        self.at += usize::from(found);
        found
    }

    fn need(&mut self, mark: &str) -> Result<(), String> {
        if self.take(mark) {
            return Ok(());
        }
        match self.tokens.get(self.at) {
            None => Err("cel rule ends too early".to_owned()),
            Some((token, at)) => {
                Err(format!("expected {mark:?}, not {:?}, in cel rule at byte {at}", token.to_string()))
            }
        }
    }

    /// Every way back into the grammar goes through here, which bounds the stack.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("cel rule is nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn expression(&mut self) -> Result<Expr, String> {
        self.deeper(|parser| {
            let condition = parser.binary(0)?;
            if !parser.take("?") {
                return Ok(condition);
            }
            let yes = parser.binary(0)?;
            parser.need(":")?;
            let no = parser.expression()?;
            Ok(Expr::Choose(Box::new([condition, yes, no])))
        })
    }

    fn operator(&self) -> Option<(Operator, u8)> {
        Some(match self.peek()? {
            Token::Mark("||") => (Operator::Or, 1),
            Token::Mark("&&") => (Operator::And, 2),
            Token::Mark("==") => (Operator::Equal, 3),
            Token::Mark("!=") => (Operator::NotEqual, 3),
            Token::Mark("<") => (Operator::Less, 3),
            Token::Mark("<=") => (Operator::AtMost, 3),
            Token::Mark(">") => (Operator::Greater, 3),
            Token::Mark(">=") => (Operator::AtLeast, 3),
            Token::Word(word) if word == "in" => (Operator::In, 3),
            Token::Mark("+") => (Operator::Add, 4),
            Token::Mark("-") => (Operator::Subtract, 4),
            Token::Mark("*") => (Operator::Multiply, 5),
            Token::Mark("/") => (Operator::Divide, 5),
            Token::Mark("%") => (Operator::Remainder, 5),
            _ => return None,
        })
    }

    fn link(&mut self) -> Result<(), String> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(format!("cel rule has more than {MAX_LINKS} operators and selections"));
        }
        Ok(())
    }

    /// Left-associative operators of at least this rank.
    fn binary(&mut self, rank: u8) -> Result<Expr, String> {
        let mut left = self.unary()?;
        while let Some((operator, found)) = self.operator().filter(|&(_, found)| found > rank) {
            self.link()?;
            self.at += 1;
            let right = self.deeper(|parser| parser.binary(found))?;
            left = Expr::Binary(operator, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, String> {
        if self.take("!") {
            return Ok(Expr::Not(Box::new(self.deeper(Self::unary)?)));
        }
        if self.take("-") {
            return Ok(Expr::Negate(Box::new(self.deeper(Self::unary)?)));
        }
        let mut expr = self.primary()?;
        loop {
            if self.take(".") {
                self.link()?;
                let Some(Token::Word(name)) = self.peek().cloned() else {
                    return Err("a name must follow . in cel rule".to_owned());
                };
                self.at += 1;
                expr = if self.take("(") {
                    self.method(expr, &name)?
                } else {
                    Expr::Field(Box::new(expr), name.into())
                };
            } else if self.take("[") {
                self.link()?;
                let index = self.expression()?;
                self.need("]")?;
                expr = Expr::Index(Box::new(expr), Box::new(index));
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, String> {
        let Some((token, at)) = self.tokens.get(self.at).cloned() else {
            return Err("cel rule ends too early".to_owned());
        };
        self.at += 1;
        Ok(match token {
            Token::Int(number) => Expr::Int(number),
            Token::Double(number) => Expr::Double(number),
            Token::Text(text) => Expr::Text(text.into()),
            Token::Word(word) => match word.as_str() {
                "true" => Expr::Bool(true),
                "false" => Expr::Bool(false),
                "null" => Expr::Null,
                name if self.take("(") => self.call(name)?,
                name if self.names.iter().any(|(known, _)| known == name) => Expr::Name(name.into()),
                name => return Err(format!("undeclared reference to {name:?} in cel rule")),
            },
            Token::Mark("(") => {
                let inner = self.expression()?;
                self.need(")")?;
                inner
            }
            Token::Mark("[") => Expr::List(self.list("]")?),
            Token::Mark("{") => {
                let mut members = Vec::new();
                while !self.take("}") {
                    let key = self.expression()?;
                    self.need(":")?;
                    members.push((key, self.expression()?));
                    if !self.take(",") {
                        self.need("}")?;
                        break;
                    }
                }
                Expr::Map(members)
            }
            Token::Mark(mark) => return Err(format!("unexpected {mark:?} in cel rule at byte {at}")),
        })
    }

    fn list(&mut self, end: &str) -> Result<Vec<Expr>, String> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.expression()?);
            if !self.take(",") {
                self.need(end)?;
                break;
            }
        }
        Ok(items)
    }

    fn call(&mut self, name: &str) -> Result<Expr, String> {
        if name == "has" {
            let inner = self.expression()?;
            self.need(")")?;
            return match inner {
                Expr::Field(of, field) => Ok(Expr::Has(of, field)),
                _ => Err("has() in cel rule needs a selection such as a.b".to_owned()),
            };
        }
        let (function, count) = Function::named(name).ok_or_else(|| unknown(name))?;
        let arguments = self.list(")")?;
        arity(name, count, arguments.len())?;
        Ok(Expr::Call(function, arguments))
    }

    fn method(&mut self, of: Expr, name: &str) -> Result<Expr, String> {
        let fold = match name {
            "exists" => Fold::Exists,
            "all" => Fold::All,
            "exists_one" => Fold::ExistsOne,
            "filter" => Fold::Filter,
            "map" => Fold::Map,
            "matches" => {
                let [Expr::Text(pattern)] = &*self.list(")")? else {
                    return Err("matches() in cel rule takes one value, a text in quotes".to_owned());
                };
                let mut builder = RegexBuilder::new(pattern);
                let builder = builder.size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
                let regex = builder.build().map_err(|error| {
                    format!("pattern {pattern:?} of matches() in cel rule: {}", last_line(&error.to_string()))
                })?;
                return Ok(Expr::Matches(Box::new(of), Box::new(regex)));
            }
            _ => {
                let (function, count) = Function::named(name).ok_or_else(|| unknown(name))?;
                let mut arguments = vec![of];
                arguments.extend(self.list(")")?);
                arity(name, count, arguments.len())?;
                return Ok(Expr::Call(function, arguments));
            }
        };
        if self.is_property_member(&of) {
            return Err(format!(
                "{name}() in cel rule needs a list or a map, and the type of a property's value is not known; use `in`, or a member of the value"
            ));
        }
        let Some(Token::Word(variable)) = self.peek().cloned() else {
            return Err(format!("{name}() in cel rule needs a name first"));
        };
        self.at += 1;
        self.need(",")?;
        self.names.push((variable.clone(), self.is_property_list(&of)));
        let body = self.expression();
        self.names.pop();
        let body = body?;
        self.need(")")?;
        Ok(Expr::Fold(fold, Box::new(of), variable.into(), Box::new(body)))
    }

    fn is_property_list(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Name(name) => &**name == "properties",
            Expr::Fold(Fold::Filter, of, _, _) => self.is_property_list(of),
            _ => false,
        }
    }

    /// `p.type`, `p.value`: of type `any` in OLM Classic, which macros do not take. Members of a value may be anything.
    fn is_property_member(&self, expr: &Expr) -> bool {
        let (Expr::Field(of, _) | Expr::Index(of, _)) = expr else { return false };
        match &**of {
            Expr::Name(name) => self
                .names
                .iter()
                .rev()
                .find(|(known, _)| **known == **name)
                .is_some_and(|(_, is_property)| *is_property),
            Expr::Index(of, _) => self.is_property_list(of),
            _ => false,
        }
    }
}

/// What is wrong with a pattern; the lines above it repeat the pattern.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

fn unknown(name: &str) -> String {
    format!("unknown function {name:?} in cel rule")
}

fn arity(name: &str, want: usize, got: usize) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("{name}() in cel rule takes {want} values, not {got}")) }
}

/// The type of an expression; refuses what can never be right.
pub(super) fn type_of(expr: &Expr) -> Result<Type, String> {
    let need_bool = |expr: &Expr, what: &str| match type_of(expr)? {
        Type::Bool | Type::Unknown => Ok(()),
        Type::Other => Err(format!("cel rule applies {what} to something that is no bool")),
    };
    Ok(match expr {
        Expr::Bool(_) | Expr::Has(..) | Expr::Matches(..) => Type::Bool,
        Expr::Null | Expr::Int(_) | Expr::Double(_) | Expr::Text(_) | Expr::List(_) | Expr::Map(_) => {
            Type::Other
        }
        Expr::Name(_) | Expr::Field(..) | Expr::Index(..) => Type::Unknown,
        Expr::Not(inner) => {
            need_bool(inner, "!")?;
            Type::Bool
        }
        Expr::Negate(_) => Type::Other,
        Expr::Binary(operator, left, right) => match operator {
            Operator::And | Operator::Or => {
                let what = if *operator == Operator::And { "&&" } else { "||" };
                need_bool(left, what)?;
                need_bool(right, what)?;
                Type::Bool
            }
            Operator::Equal
            | Operator::NotEqual
            | Operator::Less
            | Operator::AtMost
            | Operator::Greater
            | Operator::AtLeast
            | Operator::In => {
                type_of(left)?;
                type_of(right)?;
                Type::Bool
            }
            Operator::Add
            | Operator::Subtract
            | Operator::Multiply
            | Operator::Divide
            | Operator::Remainder => Type::Other,
        },
        Expr::Choose(parts) => {
            let [condition, yes, no] = &**parts;
            need_bool(condition, "?:")?;
            match (type_of(yes)?, type_of(no)?) {
                (Type::Bool, Type::Bool) => Type::Bool,
                (Type::Unknown, _) | (_, Type::Unknown) => Type::Unknown,
                (Type::Bool | Type::Other, Type::Bool | Type::Other) => Type::Other,
            }
        }
        Expr::Fold(fold, _, _, body) => match fold {
            Fold::Exists | Fold::All | Fold::ExistsOne => {
                need_bool(body, "a macro")?;
                Type::Bool
            }
            Fold::Filter => {
                need_bool(body, "filter")?;
                Type::Other
            }
            Fold::Map => Type::Other,
        },
        Expr::Call(function, _) => match function {
            Function::StartsWith | Function::EndsWith | Function::Contains => Type::Bool,
            Function::Size | Function::Int | Function::Double | Function::Text | Function::SemverCompare => {
                Type::Other
            }
        },
    })
}
