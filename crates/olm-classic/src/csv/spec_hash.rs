//! Hashes of specifications, byte for byte those of the reference, so that a cluster that it managed is taken over without a rollout.
//!
//! The reference hashes the JSON of a Go struct: members in the order of the struct, unset optional ones left out, quantities in their
//! canonical form. `go_members.json` has the structs (made by `examples/go_members/main.go` from Kubernetes 1.36); members that it does not
//! have do not count, as Go drops them.
//!
//! Rule: classic-apis §6.5.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use olm_core::{digits, go};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha224};

/// A member of a Go struct: its JSON name, when it is written, its type.
#[derive(Deserialize)]
struct Member(String, When, String);

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum When {
    Always,
    /// Unless it is empty; a struct is never empty.
    Set,
    /// Unless it is zero.
    Nonzero,
}

static MEMBERS: LazyLock<BTreeMap<String, Vec<Member>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("go_members.json")).unwrap_or_default());

/// Levels of the value that count; Deployments have some ten.
const DEPTH: usize = 64;

/// The hash of the specification of a Deployment.
pub(super) fn deployment(spec: &Value) -> String {
    hash(spec, "DeploymentSpec")
}

/// The specification of a Deployment as the apiserver stores it, without its defaults: quantities in their canonical form, nothing that is
/// empty or that Go does not have.
pub(super) fn canonical_deployment(spec: &Value) -> Value {
    let mut text = String::new();
    write(Some(spec), "DeploymentSpec", DEPTH, &mut text);
    serde_json::from_str(&text).unwrap_or_default()
}

/// The hash of a webhook of a CSV.
pub(super) fn webhook(description: &Value) -> String {
    hash(description, "WebhookDescription")
}

fn hash(value: &Value, type_: &str) -> String {
    let mut text = String::new();
    write(Some(value), type_, DEPTH, &mut text);
    text.push('\n');
    digits(&Sha224::digest(text.as_bytes()), 62)
}

/// Writes a value as Go encodes one of this type.
fn write(value: Option<&Value>, type_: &str, depth: usize, out: &mut String) {
    let value = value.filter(|value| !value.is_null());
    let Some(depth) = depth.checked_sub(1) else { return out.push_str("null") };
    if let Some(pointed) = type_.strip_prefix('*') {
        return match value {
            None => out.push_str("null"),
            Some(value) => write(Some(value), pointed, depth, out),
        };
    }
    if let Some(item) = type_.strip_prefix("[]") {
        return match value.and_then(Value::as_array) {
            None => out.push_str("null"),
            Some(items) => {
                separated(out, ['[', ']'], items, |value, out| write(Some(value), item, depth, out));
            }
        };
    }
    if let Some(item) = type_.strip_prefix("{}") {
        return match value.and_then(Value::as_object) {
            None => out.push_str("null"),
            Some(members) => {
                let sorted: BTreeMap<_, _> = members.iter().collect();
                separated(out, ['{', '}'], sorted, |(key, value), out| {
                    out.push_str(&quoted(key));
                    out.push(':');
                    write(Some(value), item, depth, out);
                });
            }
        };
    }
    if let Some(members) = MEMBERS.get(type_) {
        let member = |name: &str| value.and_then(|value| value.get(name));
        let written = members.iter().filter(|Member(name, when, type_)| match when {
            When::Always => true,
            When::Set => !is_empty(member(name), type_),
            When::Nonzero => member(name).is_some_and(|value| !value.is_null()),
        });
        return separated(out, ['{', '}'], written, |Member(name, _, type_), out| {
            out.push_str(&quoted(name));
            out.push(':');
            write(member(name), type_, depth, out);
        });
    }
    match (type_, value) {
        ("quantity", Some(Value::String(text))) => out.push_str(&quoted(&quantity(text))),
        ("quantity", Some(Value::Number(number))) => out.push_str(&quoted(&quantity(&number.to_string()))),
        (_, Some(value)) => out.push_str(&go::json_string(value)),
        ("string", None) => out.push_str("\"\""),
        ("quantity", None) => out.push_str("\"0\""),
        ("bool", None) => out.push_str("false"),
        ("int" | "int-or-string", None) => out.push('0'),
        (_, None) => out.push_str("null"),
    }
}

fn separated<T>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write(item, out);
    }
    out.push(close);
}

/// Whether Go's `omitempty` leaves a member out.
fn is_empty(value: Option<&Value>, type_: &str) -> bool {
    let is_struct = MEMBERS.contains_key(type_) || matches!(type_, "quantity" | "int-or-string" | "time");
    match value {
        None | Some(Value::Null) => !is_struct,
        Some(_) if type_.starts_with('*') => false,
        Some(Value::String(text)) => !is_struct && text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Object(members)) => type_.starts_with("{}") && members.is_empty(),
        Some(Value::Bool(value)) => !*value,
        Some(Value::Number(number)) => !is_struct && number.as_i64() == Some(0),
    }
}

fn quoted(text: &str) -> String {
    go::json_string(&Value::from(text))
}

const NANO: i128 = 1_000_000_000;

/// The canonical form of a quantity: the largest suffix of its family with which the number is whole. A text that is no quantity, or is too
/// large, stays.
fn quantity(text: &str) -> String {
    canonical(text).unwrap_or_else(|| text.to_owned())
}

fn canonical(text: &str) -> Option<String> {
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [(&str, u32); 10] = [
        ("E", 27),
        ("P", 24),
        ("T", 21),
        ("G", 18),
        ("M", 15),
        ("k", 12),
        ("", 9),
        ("m", 6),
        ("u", 3),
        ("n", 0),
    ];
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    if number.is_empty() {
        return None;
    }
    let binary = BINARY.iter().position(|known| *known == suffix && !suffix.is_empty());
    let exponent = suffix.strip_prefix(['e', 'E']).and_then(|exponent| exponent.parse::<i32>().ok());
    let nanos = if let Some(power) = binary {
        nanos(number, 9)?.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()?)?)?
    } else if let Some(exponent) = exponent {
        nanos(number, exponent.checked_add(9)?)?
    } else {
        let (_, power) = DECIMAL.iter().find(|(known, _)| *known == suffix)?;
        nanos(number, i32::try_from(*power).ok()?)?
    };
    let units = nanos / NANO;
    if binary.is_some() && units.abs() >= 1024 {
        let mut whole = if nanos % NANO == 0 { units } else { units + nanos.signum() };
        let mut power = 0;
        while whole % 1024 == 0 && power + 1 < BINARY.len() {
            whole /= 1024;
            power += 1;
        }
        return Some(format!("{whole}{}", BINARY[power]));
    }
    if nanos == 0 {
        return Some("0".to_owned());
    }
    let (suffix, power) = DECIMAL.iter().find(|(_, power)| nanos % 10_i128.pow(*power) == 0)?;
    let whole = nanos / 10_i128.pow(*power);
    match exponent {
        Some(_) if *power != 9 => Some(format!("{whole}e{}", i64::from(*power) - 9)),
        Some(_) => Some(whole.to_string()),
        None => Some(format!("{whole}{suffix}")),
    }
}

/// A decimal number times a power of ten, rounded up to a whole one.
fn nanos(number: &str, power: i32) -> Option<i128> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: i128 = all.parse().ok()?;
    let shift = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = 10_i128.checked_pow(shift.unsigned_abs())?;
    let scaled =
        if shift >= 0 { value.checked_mul(scale)? } else { value / scale + i128::from(value % scale != 0) };
    Some(sign * scaled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn spec_hash_has_the_structs_of_kubernetes() {
        assert_eq!(MEMBERS.len(), 115);
        let known = ["string", "int", "bool", "quantity", "int-or-string", "time", "any"];
        for Member(name, _, type_) in MEMBERS.values().flatten() {
            let type_ = type_.trim_start_matches(['*', '[', ']', '{', '}']);
            assert!(MEMBERS.contains_key(type_) || known.contains(&type_), "{name}: {type_}");
        }
    }

    #[test]
    fn spec_hash_encodes_as_go() {
        let mut out = String::new();
        let spec = json!({
            "template": {"spec": {"containers": [{
                "resources": {"limits": {"memory": "1024Mi", "cpu": 0.5}}, "name": "a<b", "env": [], "unknown": 1,
                "livenessProbe": {"httpGet": {"path": "/"}}, "tty": false,
            }]}},
            "replicas": 0,
        });
        write(Some(&spec), "DeploymentSpec", DEPTH, &mut out);
        assert_eq!(
            out,
            "{\"replicas\":0,\"selector\":null,\"template\":{\"metadata\":{},\"spec\":{\"containers\":[{\"name\":\"a\\u003cb\",\
             \"resources\":{\"limits\":{\"cpu\":\"500m\",\"memory\":\"1Gi\"}},\"livenessProbe\":{\"httpGet\":{\"path\":\"/\",\"port\":0}}}]}},\
             \"strategy\":{}}"
        );
    }

    #[test]
    fn quantity_becomes_canonical() {
        for (text, want) in [
            ("1", "1"),
            ("0", "0"),
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("64Mi", "64Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("-2000m", "-2"),
            ("100E", "100E"),
            ("x", "x"),
            ("", ""),
            ("1.0000000001", "1000000001n"),
            ("999999999999999999999999999999999999999999", "999999999999999999999999999999999999999999"),
        ] {
            assert_eq!(quantity(text), want, "{text}");
        }
    }
}
