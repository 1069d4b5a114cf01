//! Vector selectors of a PromQL expression. Not a parser: enough to find metrics that no program exposes, and selectors without
//! matchers. `hack/tools/rule-test` parses the same expressions with Prometheus' own parser.

/// Words whose parentheses hold labels.
const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Other words of PromQL that stand where a metric's name could.
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
/// A longer one before those that begin it.
const OPERATORS: [&str; 4] = ["=~", "!~", "!=", "="];

/// A metric's name (empty in `{__name__="…"}`) and its matchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) name: String,
    pub(crate) matchers: Vec<Matcher>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    pub(crate) operator: &'static str,
    /// As it is written between the quotes.
    pub(crate) value: String,
}

/// The selectors, in order. Ranges, strings, numbers, functions and label lists are passed over.
pub(crate) fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    let mut after_list_word = false;
    while let Some(first) = rest.chars().next() {
        match first {
            '{' => {
                let (matchers, next) = parse_matchers(rest.get(1..).unwrap_or(""));
                found.push(Selector { name: String::new(), matchers });
                rest = next;
            }
            '[' => rest = behind(rest, ']'),
            '"' | '\'' => rest = parse_string(rest).1,
            '(' if after_list_word => rest = behind(rest, ')'),
            'a'..='z' | 'A'..='Z' | '_' => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
                let (word, next) = rest.split_at(end.unwrap_or(rest.len()));
                after_list_word = LABEL_LISTS.contains(&word);
                rest = next;
                let behind = next.trim_start();
                // a function or aggregation, whose labels may come before what it aggregates
                let function =
                    ["(", "by ", "by(", "without ", "without("].iter().any(|it| behind.starts_with(it));
                if !after_list_word && !WORDS.contains(&word) && !function {
                    let (matchers, next) = behind.strip_prefix('{').map_or((vec![], rest), parse_matchers);
                    found.push(Selector { name: word.to_owned(), matchers });
                    rest = next;
                }
                continue;
            }
            // a number with its unit
            '0'..='9' => rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.'),
            ' ' | '\n' => {
                rest = rest.get(1..).unwrap_or("");
                continue;
            }
            other => rest = rest.get(other.len_utf8()..).unwrap_or(""),
        }
        after_list_word = false;
    }
    found
}

/// The matchers of `text`, which begins behind `{`, and what follows `}`.
fn parse_matchers(text: &str) -> (Vec<Matcher>, &str) {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\n', ',']);
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let (label, next) = rest.split_at(end.unwrap_or(rest.len()));
        let next = next.trim_start();
        let operator = OPERATORS.into_iter().find(|operator| next.starts_with(operator));
        let Some(operator) = operator else { return (found, behind(rest, '}')) };
        let value;
        (value, rest) = parse_string(next.get(operator.len()..).unwrap_or("").trim_start());
        found.push(Matcher { label: label.to_owned(), operator, value: value.to_owned() });
    }
}

/// What is between the quotes that `text` begins with, and what follows them; nothing and `text`, if it begins with none.
fn parse_string(text: &str) -> (&str, &str) {
    let Some(quote) = text.chars().next().filter(|first| ['"', '\''].contains(first)) else {
        return ("", text);
    };
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        if letter == quote && !escaped {
            return (&text[1..at], &text[at + 1..]);
        }
        escaped = letter == '\\' && !escaped;
    }
    (&text[1..], "")
}

fn behind(text: &str, end: char) -> &str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promql_finds_names_and_nothing_else() {
        for (expression, want) in [
            ("up", &["up"][..]),
            (r#"sum by (name, reason) (rate(a_total{job="b_total",c=~"d"}[5m])) > 0.5"#, &["a_total"]),
            ("histogram_quantile(0.99, sum by (le) (rate(a_bucket[5m])))", &["a_bucket"]),
            ("(a - time()) / 86400 < 7 and on (name) b unless c offset 1h", &["a", "b", "c"]),
            ("count(a == 1) without (x) or vector(0)", &["a"]),
            ("changes(a[15m]) * on(name) group_left(x) b{y=\"z\"}", &["a", "b"]),
            (r#"label_replace(a, "b", "c d", "e", "(.*)") or absent(f)"#, &["a", "f"]),
            (r#"{job="a"} + b"#, &["", "b"]),
        ] {
            let names: Vec<String> = selectors(expression).into_iter().map(|it| it.name).collect();
            assert_eq!(names, want, "{expression}");
        }
    }

    #[test]
    fn promql_matchers_are_split() {
        for (expression, want) in [
            ("up", &[][..]),
            ("up{}", &[]),
            (
                r#"up {a="b", c != 'd' , e=~"5..|<f>",g!~"}\"h",} > 1"#,
                &[("a", "=", "b"), ("c", "!=", "d"), ("e", "=~", "5..|<f>"), ("g", "!~", "}\\\"h")],
            ),
            (r#"rate(up{a="b"}[5m])"#, &[("a", "=", "b")]),
            (r#"up{a="b"#, &[("a", "=", "b")]),
            ("up{a=b}", &[("a", "=", "")]),
        ] {
            let found = selectors(expression);
            let matchers: Vec<(&str, &str, &str)> = found
                .iter()
                .flat_map(|it| &it.matchers)
                .map(|it| (it.label.as_str(), it.operator, it.value.as_str()))
                .collect();
            assert_eq!((found.len(), matchers.as_slice()), (1, want), "{expression}");
        }
    }
}
