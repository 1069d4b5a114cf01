//! Values as Go prints them, because the condition texts of the reference contain them.

use serde_json::Value;

/// A string in double quotes with Go's escapes.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A bound: a float in its shortest form as `%v` prints it (`3e+07`), a length as an integer.
pub(crate) fn number(value: f64, float: bool) -> String {
    if !float {
        return format!("{value}");
    }
    let shortest = format!("{value:e}");
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go's %v switches to the exponent form below 1e-4 and from 1e+06 on
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    } else {
        format!("{value}")
    }
}

/// The value of a keyword as the condensed text of an unhandled change shows it.
pub(crate) fn value(keyword: &str, value: Option<&Value>) -> String {
    let pointer = matches!(
        keyword,
        "multipleOf"
            | "x-kubernetes-preserve-unknown-fields"
            | "x-kubernetes-list-type"
            | "x-kubernetes-map-type"
            | "$ref"
    );
    match value {
        None => match keyword {
            "format" | "title" | "id" | "$schema" => "\"\"".to_owned(),
            "exclusiveMaximum"
            | "exclusiveMinimum"
            | "uniqueItems"
            | "x-kubernetes-embedded-resource"
            | "x-kubernetes-int-or-string" => "false".to_owned(),
            _ => "nil".to_owned(),
        },
        Some(Value::String(text)) if pointer => format!("&{}", quote(text)),
        Some(Value::String(text)) => quote(text),
        Some(Value::Bool(on)) if pointer => format!("&{on}"),
        Some(Value::Bool(on)) => on.to_string(),
        Some(Value::Number(n)) if pointer => format!("&{n}"),
        Some(Value::Number(n)) => n.to_string(),
        Some(_) => "<complex value>".to_owned(),
    }
}

/// CEL rules.
pub(crate) fn rules(value: Option<&Value>) -> String {
    let Some(Value::Array(list)) = value else { return "nil".to_owned() };
    let shown: Vec<String> = list
        .iter()
        .map(|rule| {
            let member = |json: &str, label: &str| {
                let text = rule.get(json).and_then(Value::as_str).filter(|text| !text.is_empty())?;
                Some(format!("{label}: {}", quote(text)))
            };
            let parts = [
                member("rule", "Rule"),
                member("message", "Message"),
                member("messageExpression", "MessageExpression"),
                member("fieldPath", "FieldPath"),
            ];
            format!("{{{}}}", parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
        })
        .collect();
    format!("ValidationRules{{{}}}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn floats_print_as_go_prints_them() {
        for (value, want) in [
            (10.0, "10"),
            (10.5, "10.5"),
            (3e7, "3e+07"),
            (100_000.0, "100000"),
            (1_234_567.0, "1.234567e+06"),
            (0.5, "0.5"),
        ] {
            assert_eq!(number(value, true), want);
        }
    }
}
