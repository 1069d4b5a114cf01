//! Layout of generated YAML: a string with line breaks is a literal block, every other string stays on one line.

use anyhow::Result;
use serde_json::Value;

/// The document, ending in a newline.
pub(crate) fn block(value: &Value) -> Result<String> {
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    Ok(serde_saphyr::to_string_with_options(value, options)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn yaml_quotes_what_yaml_1_1_would_misread() {
        let long = "a word ".repeat(30) + "end";
        let value = json!({"bool": "yes", "key": {"on": "n"}, "lines": "one\n\n  two\n", "list": [{"k": []}], "long": long, "number": "1"});
        let want = format!(
            "bool: \"yes\"\nkey:\n  \"on\": \"n\"\nlines: |\n  one\n  \n    two\nlist:\n- k: []\nlong: {long}\nnumber: \"1\"\n"
        );
        assert_eq!(block(&value).unwrap(), want);
    }
}
