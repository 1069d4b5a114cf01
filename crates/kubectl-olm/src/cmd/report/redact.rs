//! Removal of secrets: from texts by their shape, from objects by the fields that may hold some. Pure.
//!
//! It removes too much rather than too little: a report is sent to other people.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// What stands in place of a secret.
pub(super) const REDACTED: &str = "[redacted]";

/// Words of names whose values are secret.
const WORDS: &str = "password|passwd|passphrase|pwd|token|secret|credential|api[-_]?key|access[-_]?key|private[-_]?key|client[-_]?key|\
                     signing[-_]?key|dockerconfigjson|dockercfg";

/// Endings of names that hold a word and name an object.
const NAMES_OF_OBJECTS: [&str; 6] =
    ["secretname", "secretref", "pull-secret", "pullsecret", "pull-secrets", "pullsecrets"];

/// The prefix of annotations whose values OLM defines.
const OWN_ANNOTATIONS: &str = "olm.operatorframework.io/";

/// What a match becomes.
type Replace = fn(&Captures<'_>) -> String;

/// A pattern, and what a match becomes.
struct Rule {
    pattern: Regex,
    replace: Replace,
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let value = r#"("?\[redacted\]"?|"(?:[^"\\\n]|\\.)*"?|\\"(?:[^"\\\n]|\\[^"\n])*(?:\\")?|'[^'\n]*'?|[^\s,;&}\]"']+)"#;
    let rules: [(String, Replace); 10] = [
        // an end without its begin: the text starts within a key
        (r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)".to_owned(), |_| REDACTED.to_owned()),
        (r"(?s)\A.*-----END [A-Z0-9 ]+-----".to_owned(), |_| REDACTED.to_owned()),
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>]*@"#.to_owned(), |found| format!("{}{REDACTED}@", &found[1])),
        (
            r#"(?i)\b((?:proxy-)?authorization|(?:set-)?cookie|x-[a-z-]*(?:token|key))(\\?["']?\s*[:=]\s*)(\\?"[^"\n]*"|'[^'\n]*'|[^\n"',}]+)"#
                .to_owned(),
            |found| format!("{}{}{REDACTED}", &found[1], &found[2]),
        ),
        (r"(?i)\b(bearer|basic|digest|negotiate)(\s+)([A-Za-z0-9._~+/=-]{6,})".to_owned(), |found| {
            match found[3].chars().all(|c| c.is_ascii_lowercase()) {
                true => found[0].to_owned(),
                false => format!("{}{}{REDACTED}", &found[1], &found[2]),
            }
        }),
        (r"\beyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*".to_owned(), |_| REDACTED.to_owned()),
        (
            format!(r#"(?i)([A-Za-z0-9_.-]*(?:{WORDS})[A-Za-z0-9_.-]*)(\\?["']?\s*(?::=|=>|[:=]|\bis\b)\s*){value}"#),
            |found| match is_kept(found) {
                true => found[0].to_owned(),
                false => format!("{}{}{REDACTED}", &found[1], &found[2]),
            },
        ),
        (format!(r"(?i)(--?[a-z0-9-]*(?:{WORDS})[a-z0-9-]*)(\s+){value}"), |found| match is_kept(found) {
            true => found[0].to_owned(),
            false => format!("{}{}{REDACTED}", &found[1], &found[2]),
        }),
        (
            r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|gh[opsru]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[a-z]-[\w-]{10,})".to_owned(),
            |_| REDACTED.to_owned(),
        ),
        (r"[A-Za-z0-9+/_-]{40,}={0,2}".to_owned(), |found| {
            let has = |is: fn(&char) -> bool| found[0].chars().any(|c| is(&c));
            let is_random = has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
            if is_random { REDACTED.to_owned() } else { found[0].to_owned() }
        }),
    ];
    let compiled = rules.into_iter().filter_map(|(pattern, replace)| {
        let pattern = Regex::new(&pattern);
        debug_assert!(pattern.is_ok(), "{pattern:?}");
        Some(Rule { pattern: pattern.ok()?, replace })
    });
    compiled.collect()
});

static SENSITIVE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!("(?i)(?:{WORDS}|authorization|cookie)")).ok());

/// Whether the value in the third group is the name of an object, or was replaced before.
fn is_kept(found: &Captures<'_>) -> bool {
    names_an_object(&found[1]) || found[3].trim_matches('"') == REDACTED
}

fn names_an_object(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES_OF_OBJECTS.iter().any(|ending| name.ends_with(ending))
}

/// Whether the value of a field, a flag or a variable of this name is secret.
fn is_sensitive(name: &str) -> bool {
    SENSITIVE.as_ref().is_none_or(|words| words.is_match(name)) && !names_an_object(name)
}

/// The text without secrets.
pub(super) fn text(text: &str) -> String {
    let mut clean = Cow::Borrowed(text);
    for rule in RULES.iter() {
        let replaced = match rule.pattern.replace_all(&clean, rule.replace) {
            Cow::Borrowed(_) => continue,
            Cow::Owned(replaced) => replaced,
        };
        clean = Cow::Owned(replaced);
    }
    clean.into_owned()
}

/// Removes secrets and what only machines read from an object. Of the objects in a revision their identity stays.
pub(super) fn object(value: &mut Value) {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    for phase in value.pointer_mut("/spec/phases").and_then(Value::as_array_mut).into_iter().flatten() {
        let objects = phase.get_mut("objects").and_then(Value::as_array_mut);
        objects.into_iter().flatten().for_each(identity_only);
    }
    if let Some(inline) = value.pointer_mut("/spec/config/inline") {
        scalars(inline);
    }
    fields(value);
}

/// Reduces an object of a phase to its identity.
fn identity_only(entry: &mut Value) {
    let Some(content) = entry.get_mut("object").filter(|content| content.is_object()) else { return };
    let metadata = |key: &str| content.pointer(&format!("/metadata/{key}")).cloned().unwrap_or(Value::Null);
    let of = |key: &str| content.get(key).cloned().unwrap_or(Value::Null);
    *content = serde_json::json!({
        "apiVersion": of("apiVersion"), "kind": of("kind"),
        "metadata": {"name": metadata("name"), "namespace": metadata("namespace")},
    });
}

/// Replaces every scalar.
fn scalars(value: &mut Value) {
    match value {
        Value::Object(map) => map.values_mut().for_each(scalars),
        Value::Array(items) => items.iter_mut().for_each(scalars),
        Value::Null | Value::Bool(_) => {}
        Value::Number(_) | Value::String(_) => *value = Value::from(REDACTED),
    }
}

fn fields(value: &mut Value) {
    match value {
        Value::Object(map) => map.iter_mut().for_each(|(key, value)| field(key, value)),
        Value::Array(items) => {
            // the value of a flag may be an item of its own
            let mut is_secret = false;
            for item in items {
                let is_flag = item
                    .as_str()
                    .is_some_and(|word| word.starts_with('-') && !word.contains('=') && is_sensitive(word));
                match item {
                    Value::String(word) if is_secret && !word.starts_with('-') => REDACTED.clone_into(word),
                    item => fields(item),
                }
                is_secret = is_flag;
            }
        }
        Value::String(string) => *string = text(string),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn field(key: &str, value: &mut Value) {
    match (key, &mut *value) {
        ("env" | "httpHeaders", Value::Array(items)) => {
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                replace(item, "value");
                item.values_mut().for_each(fields);
            }
        }
        ("annotations", Value::Object(annotations)) => {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
            for (name, value) in annotations.iter_mut() {
                match value {
                    Value::String(string) if name.starts_with(OWN_ANNOTATIONS) => *string = text(string),
                    value => scalars(value),
                }
            }
        }
        ("data" | "stringData" | "binaryData", value) => scalars(value),
        (key, Value::String(_)) if is_sensitive(key) => *value = Value::from(REDACTED),
        (_, value) => fields(value),
    }
}

fn replace(map: &mut Map<String, Value>, key: &str) {
    if let Some(value) = map.get_mut(key) {
        *value = Value::from(REDACTED);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    #[rustfmt::skip]
    fn redact_removes_secrets_from_texts() {
        for (case, want) in [
            ("Authorization: Bearer X1Y2Z3\nnext", "Authorization: [redacted]\nnext"),
            (r#"headers={"Authorization":"Basic dXNlcg==","Accept":"a"}"#, r#"headers={"Authorization":[redacted],"Accept":"a"}"#),
            ("sent Bearer abc.DEF-1", "sent Bearer [redacted]"),
            ("basic authentication is off", "basic authentication is off"),
            ("GET https://user:p@ss@host:5000/v2?a=b", "GET https://[redacted]@host:5000/v2?a=b"),
            ("GET https://host/v2/a@sha256:12", "GET https://host/v2/a@sha256:12"),
            ("DB_PASSWORD=hunter2 retries=3", "DB_PASSWORD=[redacted] retries=3"),
            (r#"{"registryToken":"a \"b","n":1}"#, r#"{"registryToken":[redacted],"n":1}"#),
            (r#"{\"password\":\"hunter2\"}"#, r#"{\"password\":[redacted]}"#),
            ("password: 'two words' end", "password: [redacted] end"),
            ("the password is hunter2", "the password is [redacted]"),
            ("run --token hunter2 --v=2", "run --token [redacted] --v=2"),
            ("--global-pull-secret=olm/pull --v=2", "--global-pull-secret=olm/pull --v=2"),
            ("secretName: webhook-cert", "secretName: webhook-cert"),
            ("a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b", "a [redacted] b"),
            ("a -----BEGIN PRIVATE KEY-----\nMII", "a [redacted]"),
            ("MII\n-----END PRIVATE KEY-----\nb", "[redacted]\nb"),
            ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln end", "jwt [redacted] end"),
            ("key AKIAABCDEFGHIJKLMNOP", "key [redacted]"),
            ("dGhpcyBpcyBhIHZlcnkgbG9uZyBzZWNyZXQgdmFsdWUhMTIz", "[redacted]"),
            ("sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
            ("operator-controller-controller-manager-7d4b5c6f9-abcde", "operator-controller-controller-manager-7d4b5c6f9-abcde"),
        ] {
            assert_eq!(text(case), want, "{case}");
            assert_eq!(text(&text(case)), want, "{case}: again");
        }
    }

    #[test]
    #[rustfmt::skip]
    fn redact_removes_secrets_from_objects() {
        for (case, mut found, want) in [
            (
                "environment",
                json!({"env": [{"name": "A", "value": "S"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k"}}}]}),
                json!({"env": [{"name": "A", "value": "[redacted]"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "n", "key": "k"}}}]}),
            ),
            ("flags", json!({"args": ["--password", "S", "--token=S", "--v=2", "--leader-elect"]}),
                json!({"args": ["--password", "[redacted]", "--token=[redacted]", "--v=2", "--leader-elect"]})),
            (
                "annotations",
                json!({"metadata": {"managedFields": [1], "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "S", "mine": "S", "olm.operatorframework.io/paused": "true"}}}),
                json!({"metadata": {"annotations": {"mine": "[redacted]", "olm.operatorframework.io/paused": "true"}}}),
            ),
            ("configuration", json!({"spec": {"config": {"configType": "Inline", "inline": {"a": {"b": ["S", 7, true]}}}}}),
                json!({"spec": {"config": {"configType": "Inline", "inline": {"a": {"b": ["[redacted]", "[redacted]", true]}}}}})),
            (
                "content of a revision",
                json!({"spec": {"phases": [{"name": "p", "objects": [{"object": {"kind": "Secret", "apiVersion": "v1", "data": {"a": "S"},
                    "metadata": {"name": "n", "namespace": "m", "labels": {"l": "S"}}}}, {"ref": {"name": "r"}}]}]}}),
                json!({"spec": {"phases": [{"name": "p", "objects": [{"object": {"kind": "Secret", "apiVersion": "v1",
                    "metadata": {"name": "n", "namespace": "m"}}}, {"ref": {"name": "r"}}]}]}}),
            ),
            (
                "fields with such names",
                json!({"adminPassword": "S", "secretName": "n", "automountServiceAccountToken": true, "data": {"a": "S"}}),
                json!({"adminPassword": "[redacted]", "secretName": "n", "automountServiceAccountToken": true, "data": {"a": "[redacted]"}}),
            ),
            ("headers", json!({"httpHeaders": [{"name": "A", "value": "S"}]}),
                json!({"httpHeaders": [{"name": "A", "value": "[redacted]"}]})),
            ("messages", json!({"message": "token=S"}), json!({"message": "token=[redacted]"})),
        ] {
            object(&mut found);
            assert_eq!(found, want, "{case}");
        }
    }
}
