//! Evaluating a rule, with a budget: a hostile rule costs a bounded amount of time and memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::rc::Rc;

use olm_core::Version;
use serde_json::Value as Json;

use super::parse::{Expr, Fold, Function, Operator};

/// Steps of evaluation; a step is an expression visited, or 16 bytes or items made or compared.
const BUDGET: usize = 200_000;

/// A value. Copies are cheap.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Rc<str>),
    List(Rc<[Value]>),
    Map(Rc<BTreeMap<String, Value>>),
}

/// Why there is no value; the text is for debugging only, an error counts as false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EvaluationError(&'static str);

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn map<const N: usize>(members: [(String, Value); N]) -> Self {
        Self::Map(Rc::new(members.into()))
    }

    pub(super) fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(value) => Self::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(int) => Self::Int(int),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::text(text),
            Json::Array(items) => Self::List(items.iter().map(Self::from_json).collect()),
            Json::Object(members) => Self::Map(Rc::new(
                members.iter().map(|(key, value)| (key.clone(), Self::from_json(value))).collect(),
            )),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Double(_) => 1,
            Self::Text(text) => text.len(),
            Self::List(items) => items.len(),
            Self::Map(members) => members.len(),
        }
    }
}

pub(super) fn evaluate(expr: &Expr, properties: Vec<Value>) -> (Result<Value, EvaluationError>, usize) {
    let mut machine =
        Machine { left: BUDGET, names: vec![("properties".into(), Value::List(properties.into()))] };
    let value = machine.value(expr);
    let steps = if matches!(value, Err(OUT)) { BUDGET } else { BUDGET - machine.left };
    (value, steps)
}

struct Machine {
    left: usize,
    names: Vec<(Box<str>, Value)>,
}

const OUT: EvaluationError = EvaluationError("too much work");

impl Machine {
    fn pay(&mut self, size: usize) -> Result<(), EvaluationError> {
        self.left = self.left.checked_sub(1 + size / 16).ok_or(OUT)?;
        Ok(())
    }

    fn value(&mut self, expr: &Expr) -> Result<Value, EvaluationError> {
        self.pay(0)?;
        Ok(match expr {
            Expr::Null => Value::Null,
            Expr::Bool(value) => Value::Bool(*value),
            Expr::Int(value) => Value::Int(*value),
            Expr::Double(value) => Value::Double(*value),
            Expr::Text(text) => {
                self.pay(text.len())?;
                Value::text(text)
            }
            Expr::List(items) => {
                Value::List(items.iter().map(|item| self.value(item)).collect::<Result<_, _>>()?)
            }
            Expr::Map(members) => {
                let mut made = BTreeMap::new();
                for (key, member) in members {
                    let Value::Text(key) = self.value(key)? else {
                        return Err(EvaluationError("a key is no text"));
                    };
                    made.insert(key.to_string(), self.value(member)?);
                }
                Value::Map(Rc::new(made))
            }
            Expr::Name(name) => {
                let found = self.names.iter().rev().find(|(known, _)| known == name);
                found.map(|(_, value)| value.clone()).ok_or(EvaluationError("no such name"))?
            }
            Expr::Field(of, field) => match self.value(of)? {
                Value::Map(members) => {
                    members.get(&**field).cloned().ok_or(EvaluationError("no such key"))?
                }
                _ => return Err(EvaluationError("no map")),
            },
            Expr::Has(of, field) => match self.value(of)? {
                Value::Map(members) => Value::Bool(members.contains_key(&**field)),
                _ => return Err(EvaluationError("no map")),
            },
            Expr::Index(of, index) => match (self.value(of)?, self.value(index)?) {
                (Value::List(items), Value::Int(at)) => usize::try_from(at)
                    .ok()
                    .and_then(|at| items.get(at))
                    .cloned()
                    .ok_or(EvaluationError("no such item"))?,
                (Value::Map(members), Value::Text(key)) => {
                    members.get(&*key).cloned().ok_or(EvaluationError("no such key"))?
                }
                _ => return Err(EvaluationError("cannot be indexed")),
            },
            Expr::Not(inner) => Value::Bool(!self.truth(inner)?),
            Expr::Negate(inner) => match self.value(inner)? {
                Value::Int(value) => Value::Int(value.checked_neg().ok_or(EvaluationError("overflow"))?),
                Value::Double(value) => Value::Double(-value),
                _ => return Err(EvaluationError("no number")),
            },
            Expr::Binary(Operator::And, left, right) => Value::Bool(self.either(left, right, false)?),
            Expr::Binary(Operator::Or, left, right) => Value::Bool(self.either(left, right, true)?),
            Expr::Binary(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                self.binary(*operator, left, right)?
            }
            Expr::Choose(parts) => {
                let [condition, yes, no] = &**parts;
                if self.truth(condition)? { self.value(yes)? } else { self.value(no)? }
            }
            Expr::Fold(fold, of, name, body) => self.fold(*fold, of, name, body)?,
            Expr::Matches(of, regex) => match self.value(of)? {
                Value::Text(text) => {
                    self.pay(text.len())?;
                    Value::Bool(regex.is_match(&text))
                }
                _ => return Err(EvaluationError("no text")),
            },
            Expr::Call(function, arguments) => {
                let values =
                    arguments.iter().map(|argument| self.value(argument)).collect::<Result<Vec<_>, _>>()?;
                self.call(*function, &values)?
            }
        })
    }

    fn truth(&mut self, expr: &Expr) -> Result<bool, EvaluationError> {
        match self.value(expr)? {
            Value::Bool(value) => Ok(value),
            _ => Err(EvaluationError("no bool")),
        }
    }

    /// `&&` and `||`: one side that decides outweighs an error on the other; running out of budget is final.
    fn either(&mut self, left: &Expr, right: &Expr, deciding: bool) -> Result<bool, EvaluationError> {
        let left = match self.truth(left) {
            Ok(value) if value == deciding => return Ok(deciding),
            Err(OUT) => return Err(OUT),
            other => other,
        };
        match self.truth(right) {
            Ok(value) if value == deciding => Ok(deciding),
            other => left.and(other),
        }
    }

    fn fold(&mut self, fold: Fold, of: &Expr, name: &str, body: &Expr) -> Result<Value, EvaluationError> {
        let items: Vec<Value> = match self.value(of)? {
            Value::List(items) => {
                self.pay(items.len())?;
                items.to_vec()
            }
            Value::Map(members) => {
                self.pay(members.len())?;
                members.keys().map(|key| Value::text(key)).collect()
            }
            _ => return Err(EvaluationError("no list")),
        };
        let (mut made, mut count, mut problem) = (Vec::new(), 0usize, None);
        for item in items {
            self.names.push((name.into(), item.clone()));
            let result = self.value(body);
            self.names.pop();
            let truth = match (&result, fold) {
                (Ok(value), Fold::Map) => {
                    made.push(value.clone());
                    continue;
                }
                (Ok(Value::Bool(truth)), _) => *truth,
                (Ok(_), _) => return Err(EvaluationError("no bool")),
                (Err(error), Fold::Exists | Fold::All) if *error != OUT => {
                    problem = Some(error.clone());
                    continue;
                }
                (Err(error), _) => return Err(error.clone()),
            };
            match fold {
                Fold::Exists if truth => return Ok(Value::Bool(true)),
                Fold::All if !truth => return Ok(Value::Bool(false)),
                Fold::Filter if truth => made.push(item),
                _ => count += usize::from(truth),
            }
        }
        match (fold, problem) {
            (_, Some(problem)) => Err(problem),
            (Fold::Exists, None) => Ok(Value::Bool(false)),
            (Fold::All, None) => Ok(Value::Bool(true)),
            (Fold::ExistsOne, None) => Ok(Value::Bool(count == 1)),
            (Fold::Filter | Fold::Map, None) => Ok(Value::List(made.into())),
        }
    }

    fn equal(&mut self, left: &Value, right: &Value) -> Result<bool, EvaluationError> {
        self.pay(left.size().min(right.size()))?;
        Ok(match (left, right) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::Text(a), Value::Text(b)) => a == b,
            (Value::List(a), Value::List(b)) => {
                a.len() == b.len() && self.all_equal(a.iter().zip(b.iter()))?
            }
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len() && a.keys().eq(b.keys()) && self.all_equal(a.values().zip(b.values()))?
            }
            _ => numbers(left, right) == Some(Ordering::Equal),
        })
    }

    fn all_equal<'a>(
        &mut self,
        mut pairs: impl Iterator<Item = (&'a Value, &'a Value)>,
    ) -> Result<bool, EvaluationError> {
        pairs.try_fold(true, |equal, (a, b)| Ok(equal && self.equal(a, b)?))
    }

    fn binary(&mut self, operator: Operator, left: Value, right: Value) -> Result<Value, EvaluationError> {
        let order = |left: &Value, right: &Value| match (left, right) {
            (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
            (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
            _ => numbers(left, right).ok_or(EvaluationError("cannot be compared")),
        };
        self.pay(0)?;
        Ok(match operator {
            Operator::Equal => Value::Bool(self.equal(&left, &right)?),
            Operator::NotEqual => Value::Bool(!self.equal(&left, &right)?),
            Operator::Less => Value::Bool(order(&left, &right)?.is_lt()),
            Operator::AtMost => Value::Bool(order(&left, &right)?.is_le()),
            Operator::Greater => Value::Bool(order(&left, &right)?.is_gt()),
            Operator::AtLeast => Value::Bool(order(&left, &right)?.is_ge()),
            Operator::In => match (&left, &right) {
                (_, Value::List(items)) => {
                    let mut found = false;
                    for item in items.iter() {
                        found = found || self.equal(&left, item)?;
                    }
                    Value::Bool(found)
                }
                (Value::Text(key), Value::Map(members)) => Value::Bool(members.contains_key(&**key)),
                _ => return Err(EvaluationError("in needs a list or a map")),
            },
            Operator::Add => match (&left, &right) {
                (Value::Text(a), Value::Text(b)) => {
                    self.pay(a.len() + b.len())?;
                    Value::Text(format!("{a}{b}").into())
                }
                (Value::List(a), Value::List(b)) => {
                    self.pay((a.len() + b.len()) * 16)?;
                    Value::List(a.iter().chain(b.iter()).cloned().collect())
                }
                _ => arithmetic(&left, &right, i64::checked_add, |a, b| a + b)?,
            },
            Operator::Subtract => arithmetic(&left, &right, i64::checked_sub, |a, b| a - b)?,
            Operator::Multiply => arithmetic(&left, &right, i64::checked_mul, |a, b| a * b)?,
            Operator::Divide => arithmetic(&left, &right, i64::checked_div, |a, b| a / b)?,
            Operator::Remainder => arithmetic(&left, &right, i64::checked_rem, |a, b| a % b)?,
            Operator::And | Operator::Or => return Err(EvaluationError("handled before")),
        })
    }

    fn call(&mut self, function: Function, values: &[Value]) -> Result<Value, EvaluationError> {
        for value in values {
            self.pay(value.size())?;
        }
        let texts = || match values {
            [Value::Text(a), Value::Text(b)] => Ok((&**a, &**b)),
            _ => Err(EvaluationError("no texts")),
        };
        Ok(match function {
            Function::StartsWith => texts().map(|(a, b)| Value::Bool(a.starts_with(b)))?,
            Function::EndsWith => texts().map(|(a, b)| Value::Bool(a.ends_with(b)))?,
            Function::Contains => texts().map(|(a, b)| Value::Bool(a.contains(b)))?,
            Function::SemverCompare => {
                let (a, b) = texts()?;
                let (Ok(a), Ok(b)) = (Version::tolerant(a), Version::tolerant(b)) else {
                    return Err(EvaluationError("no version"));
                };
                Value::Int(match a.cmp(&b) {
                    Ordering::Less => -1,
                    Ordering::Equal => 0,
                    Ordering::Greater => 1,
                })
            }
            Function::Size => {
                let size = match values {
                    [Value::Text(text)] => text.chars().count(),
                    [value @ (Value::List(_) | Value::Map(_))] => value.size(),
                    _ => return Err(EvaluationError("has no size")),
                };
                Value::Int(i64::try_from(size).map_err(|_| OUT)?)
            }
            Function::Int => match values {
                [Value::Int(value)] => Value::Int(*value),
                [Value::Text(text)] => Value::Int(text.parse().map_err(|_| EvaluationError("no int"))?),
                #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
                [Value::Double(value)] if value.abs() < 9e18 => Value::Int(*value as i64),
                _ => return Err(EvaluationError("no int")),
            },
            Function::Double => match values {
                [Value::Double(value)] => Value::Double(*value),
                #[expect(clippy::cast_precision_loss, reason = "that is what a double is")]
                [Value::Int(value)] => Value::Double(*value as f64),
                [Value::Text(text)] => Value::Double(text.parse().map_err(|_| EvaluationError("no double"))?),
                _ => return Err(EvaluationError("no double")),
            },
            Function::Text => match values {
                [Value::Text(text)] => Value::Text(text.clone()),
                [Value::Int(value)] => Value::text(&value.to_string()),
                [Value::Double(value)] => Value::text(&value.to_string()),
                [Value::Bool(value)] => Value::text(&value.to_string()),
                _ => return Err(EvaluationError("no text")),
            },
        })
    }
}

fn numbers(left: &Value, right: &Value) -> Option<Ordering> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "comparison across number types is by double, as CEL does"
    )]
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
        (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
        _ => None,
    }
}

fn arithmetic(
    left: &Value,
    right: &Value,
    ints: fn(i64, i64) -> Option<i64>,
    doubles: fn(f64, f64) -> f64,
) -> Result<Value, EvaluationError> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => {
            ints(*a, *b).map(Value::Int).ok_or(EvaluationError("overflow or division by zero"))
        }
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(doubles(*a, *b))),
        _ => Err(EvaluationError("no such operation")),
    }
}
