//! Label and field selectors.

use serde_json::Value;

/// The conditions of a selector; an object fits if it meets all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    labels: Vec<Condition>,
    fields: Vec<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    key: String,
    /// `None`: whether the key exists.
    values: Option<Vec<String>>,
    is_negated: bool,
}

impl Condition {
    fn new(key: &str, values: Option<Vec<&str>>, is_negated: bool) -> Self {
        let values = values.map(|values| values.into_iter().map(|value| value.trim().to_owned()).collect());
        Self { key: key.trim().to_owned(), values, is_negated }
    }

    fn holds(&self, found: Option<&str>) -> bool {
        let fits = match &self.values {
            None => found.is_some(),
            Some(values) => found.is_some_and(|found| values.iter().any(|value| value == found)),
        };
        fits != self.is_negated
    }
}

impl Selector {
    pub(crate) fn parse(labels: Option<&str>, fields: Option<&str>) -> Self {
        let read =
            |text: Option<&str>| terms(text.unwrap_or_default()).iter().map(|term| condition(term)).collect();
        Self { labels: read(labels), fields: read(fields) }
    }

    pub(crate) fn fits(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"].get(key).and_then(Value::as_str);
        let field = |key: &str| {
            let path = format!("/{}", key.replace('.', "/"));
            object.pointer(&path).and_then(Value::as_str).or(Some(""))
        };
        self.labels.iter().all(|one| one.holds(label(&one.key)))
            && self.fields.iter().all(|one| one.holds(field(&one.key)))
    }
}

/// Splits at commas outside parentheses.
fn terms(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut depth = 0;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match out.last_mut() {
            Some(last) if letter != ',' || depth > 0 => last.push(letter),
            _ => out.push(String::new()),
        }
    }
    out.retain(|term| !term.trim().is_empty());
    out
}

fn condition(term: &str) -> Condition {
    let list = |text: &'_ str| text.trim().trim_start_matches('(').trim_end_matches(')').to_owned();
    if let Some((key, values)) = term.split_once(" notin ") {
        return Condition::new(key, Some(list(values).split(',').collect()), true);
    }
    if let Some((key, values)) = term.split_once(" in ") {
        return Condition::new(key, Some(list(values).split(',').collect()), false);
    }
    if let Some((key, value)) = term.split_once("!=") {
        return Condition::new(key, Some(vec![value]), true);
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return Condition::new(key, Some(vec![value]), false);
    }
    match term.trim().strip_prefix('!') {
        Some(key) => Condition::new(key, None, true),
        None => Condition::new(term, None, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selector_fits() {
        let object = json!({"metadata": {"name": "x", "labels": {"a": "1", "b": "2"}}, "type": "Opaque"});
        for (labels, fields, want) in [
            ("a", "", true),
            ("!a", "", false),
            ("c", "", false),
            ("!c", "", true),
            ("a=1,b==2", "", true),
            ("a!=1", "", false),
            ("c!=1", "", true),
            ("a in (1,3),b notin (3)", "", true),
            ("a in (2, 3)", "", false),
            ("", "metadata.name=x,type!=t", true),
            ("", "metadata.name=y", false),
            ("", "type!=Opaque", false),
        ] {
            let selector = Selector::parse(Some(labels), Some(fields));
            assert_eq!(selector.fits(&object), want, "{labels} {fields}");
        }
    }
}
