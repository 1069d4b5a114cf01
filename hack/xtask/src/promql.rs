//! The metrics that a PromQL expression asks for. Not a parser: enough to find names that no program exposes.

/// Words whose parentheses hold labels.
const LABEL_LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Other words of PromQL that stand where a metric's name could.
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// The names, in order. Matchers, ranges, strings, numbers, functions and label lists are passed over.
pub(crate) fn metrics(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = expression;
    let mut after_list_word = false;
    while let Some(first) = rest.chars().next() {
        match first {
            '{' => rest = behind(rest, '}'),
            '[' => rest = behind(rest, ']'),
            '"' => rest = rest.get(1..).map_or("", |rest| behind(rest, '"')),
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
                    found.push(word.to_owned());
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
        ] {
            assert_eq!(metrics(expression), want, "{expression}");
        }
    }
}
