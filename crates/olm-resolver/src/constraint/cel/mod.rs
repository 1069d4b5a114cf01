//! The part of the Common Expression Language that `olm.constraint` rules use, with a bound on the work done.
//!
//! A rule sees `properties`, the list of a bundle's `{type, value}`, and must give a bool. Known: literals, lists,
//! selection, indexing, `in`, arithmetic, comparison, `&& || ! ?:`, the macros `has exists all exists_one filter map`,
//! and `size startsWith endsWith contains matches int double string semver_compare`. Anything else is refused when the
//! rule is read, by name. There is no time, and nothing of the cluster (rule: update-graph §7.2).

mod eval;
mod parse;

use serde_json::Value as Json;

use eval::{Value, evaluate};
use parse::{Expr, Type, parse, type_of};

/// Longest rule in bytes.
const MAX_RULE: usize = 16 * 1024;

/// A rule that was read and gives a bool.
#[derive(Debug, Clone)]
pub struct Rule {
    source: Box<str>,
    expr: Expr,
}

impl Rule {
    /// # Errors
    /// When it has no known form, is larger than the limits, or gives something else than a bool.
    pub fn parse(source: &str) -> Result<Self, String> {
        if source.len() > MAX_RULE {
            return Err(format!("cel rule has more than {MAX_RULE} bytes"));
        }
        let expr = parse(source)?;
        match type_of(&expr)? {
            Type::Bool => Ok(Self { source: source.into(), expr }),
            _ => Err("cel expressions must have type Bool".to_owned()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.source
    }

    /// Whether the rule is true for these properties. An error while evaluating, or too much work, counts as false.
    pub fn holds(&self, properties: &[(&str, Json)]) -> bool {
        self.evaluate(properties).0
    }

    /// As [`Self::holds`], with the number of steps that it took.
    pub fn evaluate(&self, properties: &[(&str, Json)]) -> (bool, usize) {
        let list = properties
            .iter()
            .map(|(kind, value)| {
                Value::map([
                    ("type".to_owned(), Value::text(kind)),
                    ("value".to_owned(), Value::from_json(value)),
                ])
            })
            .collect();
        let (value, steps) = evaluate(&self.expr, list);
        (matches!(value, Ok(Value::Bool(true))), steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(rule: &str) -> bool {
        let properties = [
            ("certified", json!("yes")),
            ("version", json!("1.2")),
            ("level", json!(3)),
            ("olm.package", json!({"packageName": "p", "version": "1.0.0", "tags": ["a", "b"]})),
        ];
        Rule::parse(rule).unwrap_or_else(|error| panic!("{rule}: {error}")).holds(&properties)
    }

    #[test]
    fn rules_that_hold() {
        for rule in [
            "true",
            "properties.exists(p, p.type == \"certified\")",
            "properties.exists(p, p.type == 'certified') && properties.exists(p, p.type == 'level' && p.value > 2)",
            "properties.exists(p, p.type == 'version' && semver_compare(p.value, '1.0.0') >= 0)",
            "properties.exists(p, p.type == 'olm.package' && p.value.packageName == 'p')",
            "properties.exists(p, has(p.value.packageName) && 'b' in p.value.tags)",
            "!properties.all(p, p.type == 'certified')",
            "properties.exists_one(p, p.type == 'level')",
            "properties.filter(p, p.type.startsWith('olm.')).size() == 1",
            "size(properties.map(p, p.type)) == 4 && properties.map(p, p.type)[0] == 'certified'",
            "1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 7 % 4 == 3 && -7 / 2 == -3",
            "1.5 < 2 && 2 >= 2.0 && 'a' + 'b' == 'ab' && 'a' < 'b'",
            "true ? true : false",
            "false || properties[99].type == 'x' || true",
            "properties[0]['type'] == 'certified'",
            "[1, 2, 3].exists(x, x == 2) && 4 in [1, 2, 3] == false",
            "semver_compare('1.0', '1.0.0') == 0 && semver_compare('v1.0.0-rc.1', '1.0.0') == -1",
            "int('12') == 12 && string(12) == '12' && double('1.5') == 1.5",
            "'it\\'s\\n' == \"it's\\n\" && null == null",
            "{'a': 1}.a == 1 && 'a' in {'a': 1}",
            "properties.exists(p, p.type == 'certified' && p.value.matches('^[x-z]'))",
            "properties.exists(p, p.type == 'olm.package' && p.value.tags.exists(t, t == 'b'))",
        ] {
            assert!(holds(rule), "{rule}");
        }
    }

    #[test]
    fn rules_that_do_not_hold() {
        for rule in [
            "false",
            "properties.exists(p, p.type == 'absent')",
            "properties[99].type == 'x'",
            "properties.all(p, p.value == 'yes')",
            "properties.exists(p, p.value.missing == 1)",
            "1 / 0 == 1",
            "9223372036854775807 + 1 > 0",
            "semver_compare('x', '1.0.0') == 0",
            "'1' == 1",
        ] {
            assert!(!holds(rule), "{rule}");
        }
    }

    #[test]
    fn rules_that_are_refused() {
        for (rule, want) in [
            ("1", "cel expressions must have type Bool"),
            ("properties[0].value", "cel expressions must have type Bool"),
            ("", "cel rule ends too early"),
            ("true &&", "cel rule ends too early"),
            ("true true", "unexpected \"true\" in cel rule at byte 5"),
            ("unknown == 1", "undeclared reference to \"unknown\" in cel rule"),
            ("properties.exists(p, q)", "undeclared reference to \"q\" in cel rule"),
            ("duration('a')", "unknown function \"duration\" in cel rule"),
            ("'a'.matches(properties[0].type)", "matches() in cel rule takes one value, a text in quotes"),
            ("'a'.matches('(')", "pattern \"(\" of matches() in cel rule: unclosed group"),
            (
                "'a'.matches('(x{1000}){1000}')",
                "pattern \"(x{1000}){1000}\" of matches() in cel rule: Compiled regex exceeds size limit of 65536 bytes.",
            ),
            (
                "properties.exists(p, p.value.exists(a, a == 'b'))",
                "exists() in cel rule needs a list or a map, and the type of a property's value is not known; use `in`, or a \
                 member of the value",
            ),
            ("'a'.lower() == 'a'", "unknown function \"lower\" in cel rule"),
            ("'open", "a text is not closed in cel rule"),
            ("1 && true", "cel rule applies && to something that is no bool"),
            ("99999999999999999999 == 1", "number 99999999999999999999 in cel rule does not fit 64 bits"),
            ("a $ b", "unexpected character '$' in cel rule"),
        ] {
            assert_eq!(Rule::parse(rule).unwrap_err(), want, "{rule}");
        }
        for deep in ["(", "!", "[", "-"] {
            assert_eq!(
                Rule::parse(&deep.repeat(16_384)).unwrap_err(),
                "cel rule is nested deeper than 64",
                "{deep}"
            );
        }
        for long in [
            "true || ".repeat(1_500) + "true",
            format!("properties{}", "[0]".repeat(400)),
            "a.".repeat(4_000),
        ] {
            assert!(Rule::parse(&long).is_err());
        }
        let widest = "(".repeat(20) + "true" + &" || (1 + 1 == 2)".repeat(60) + &" || true)".repeat(20);
        assert!(Rule::parse(&widest).unwrap().holds(&[]), "within the limits");
        assert!(Rule::parse(&" ".repeat(20_000)).unwrap_err().contains("more than 16384 bytes"));
    }

    #[test]
    fn work_is_bounded() {
        let many: Vec<(&str, Json)> = (0..2_000).map(|_| ("t", json!(1))).collect();
        let nested =
            "properties.all(a, properties.all(b, properties.all(c, properties.all(d, a == b || c == d))))";
        assert!(!Rule::parse(nested).unwrap().holds(&many), "too much work is no");
        let doubling = "[0].map(x, properties.map(a, properties.map(b, properties.map(c, c)))).size() == 1";
        assert!(!Rule::parse(doubling).unwrap().holds(&many));
        let long = format!("properties.map(p, {}).size() == 0", vec!["p.type"; 100].join(" + "));
        assert!(!Rule::parse(&long).unwrap().holds(&many));
    }
}
