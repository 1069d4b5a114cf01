//! GraphQL names from the names in a catalog (rules: catalogd §8.2, §8.3). Pure.

/// Name of the type of a schema or field: `olm.bundle` becomes `OlmBundle`.
pub(super) fn type_name(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let plain = plain.trim_start_matches(|c: char| c.is_ascii_digit());
    let name: String = plain.split('_').map(capitalised).collect();
    let name = name.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
    if name.is_empty() { "Unknown".to_owned() } else { name }
}

/// Name of the root field of a schema: `olm.bundle` becomes `olmbundles`. A name that would begin with a digit gets a
/// prefix; the reference refuses the whole catalog then.
pub(super) fn root_field(schema: &str) -> String {
    let plain: String = schema.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = format!("{}s", plain.to_ascii_lowercase());
    if name.starts_with(|c: char| c.is_ascii_digit()) { format!("schema_{name}") } else { name }
}

/// Name of the field of a key: `package-name` becomes `packageName`.
pub(super) fn field_name(key: &str) -> String {
    if key.is_empty() {
        return "value".to_owned();
    }
    let plain: String = key.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut parts = plain.split('_').filter(|part| !part.is_empty());
    let mut name = parts.next().map(first_part).unwrap_or_default();
    parts.for_each(|part| name.push_str(&capitalised(part)));
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name } else { format!("field_{name}") }
}

/// All lower case if it is all upper case, else with a lower first letter.
fn first_part(part: &str) -> String {
    if !part.chars().any(|c| c.is_ascii_lowercase()) {
        return part.to_ascii_lowercase();
    }
    let mut letters = part.chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

fn capitalised(part: &str) -> String {
    let mut letters = part.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|letter| letter.to_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphql_type_names_of_schemas() {
        for (schema, root, kind) in [
            ("olm.bundle", "olmbundles", "OlmBundle"),
            ("olm.deprecations", "olmdeprecationss", "OlmDeprecations"),
            ("helm-chart", "helmcharts", "HelmChart"),
            ("a3.b", "a3bs", "A3B"),
            ("日本", "s", "Unknown"),
            ("3scale.foo", "schema_3scalefoos", "ScaleFoo"),
            ("1", "schema_1s", "Unknown"),
            ("UPPER", "uppers", "Upper"),
        ] {
            assert_eq!((root_field(schema).as_str(), type_name(schema).as_str()), (root, kind), "{schema}");
        }
    }

    #[test]
    fn graphql_field_names_of_keys() {
        for (key, want) in [
            ("package-name", "packageName"),
            ("FOO_BAR", "fooBar"),
            ("default_channel", "defaultChannel"),
            ("fooBAR_BAZ", "fooBARBaz"),
            ("URL", "url"),
            ("x-Descriptors", "xDescriptors"),
            ("HTTPServer", "hTTPServer"),
            ("aB-cD", "aBCd"),
            ("olm.bundle", "olmBundle"),
            ("_x", "x"),
            ("123invalid", "field_123invalid"),
            ("__typename", "typename"),
            ("日本", "field_"),
            ("--", "field_"),
            ("", "value"),
        ] {
            assert_eq!(field_name(key), want, "{key:?}");
        }
    }
}
