//! Suggestions for a name that does not exist.

/// A question with up to three of `names` that are similar to `name`; `otherwise`, if there is none.
pub(crate) fn hint(name: &str, names: &[String], otherwise: &str) -> String {
    match similar(name, names, 3).join(", ") {
        none if none.is_empty() => otherwise.to_owned(),
        similar => format!("did you mean {similar}?"),
    }
}

/// The error for a channel that is not in `package`.
pub(crate) fn no_channel<'a>(
    channel: &str,
    package: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    format!("channel {channel:?} not found in {package}; available: {}", known.join(", "))
}

/// At most `most` of `names`, the nearest first: those that contain it, or that are few letters away.
fn similar(name: &str, names: &[String], most: usize) -> Vec<String> {
    let allowed = 1 + name.chars().count() / 4;
    let mut near: Vec<(usize, &String)> = names
        .iter()
        .filter_map(|other| {
            let letters = strsim::levenshtein(name, other);
            let contains = !name.is_empty() && (other.contains(name) || name.contains(other.as_str()));
            (letters <= allowed || contains).then_some((letters, other))
        })
        .collect();
    near.sort();
    near.into_iter().take(most).map(|(_, other)| other.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_finds_near_names() {
        let names: Vec<String> = ["argocd-operator", "grafana", "kueue-operator"].map(str::to_owned).into();
        for (name, want) in [
            ("argocd", &["argocd-operator"][..]),
            ("grafanna", &["grafana"]),
            ("kueue-oprator", &["kueue-operator"]),
            ("zzz", &[]),
            ("", &[]),
        ] {
            assert_eq!(similar(name, &names, 3), want, "{name}");
        }
    }
}
