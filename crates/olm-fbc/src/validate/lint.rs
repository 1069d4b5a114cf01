//! Findings of our own: what the reference accepts and is hardly meant (fbc §14 rows 10 and 14).

use olm_core::go;

use super::load::Loaded;
use crate::{
    Finding, Subject, property,
    schema::{BUNDLE, CHANNEL, PACKAGE},
};

pub(super) fn lint(loaded: &Loaded, findings: &mut Vec<Finding>) {
    for package in &loaded.packages {
        let subject =
            Subject { schema: PACKAGE.to_owned(), name: package.name.clone(), ..Subject::default() };
        if let Some(icon) = &package.icon
            && !icon.data.0.is_empty()
            && !icon.media_type.starts_with("image/")
        {
            let message = format!("the icon's media type {} is not an image", go::quote(&icon.media_type));
            let finding = Finding::warning("icon", subject, message).at(package.position.clone());
            findings.push(finding.with_hint("such as image/png or image/svg+xml"));
        }
    }
    for (channel, _) in &loaded.channels {
        let subject = || Subject {
            package: channel.package.clone(),
            schema: CHANNEL.to_owned(),
            name: channel.name.clone(),
        };
        for entry in &channel.entries {
            if let Some(oddity) = suspicious_range(&entry.skip_range) {
                let message = format!(
                    "entry {}: skipRange {} {oddity}",
                    go::quote(&entry.name),
                    go::quote(&entry.skip_range)
                );
                let finding = Finding::warning("skip-range-odd", subject(), message);
                findings.push(finding.at(channel.position.clone()));
            }
        }
    }
    for bundle in &loaded.bundles {
        if bundle.properties_of(property::CSV_METADATA).count() > 1 {
            let message = "more than one property of type \"olm.csv.metadata\"; the first counts";
            let subject = Subject {
                package: bundle.package.clone(),
                schema: BUNDLE.to_owned(),
                name: bundle.name.clone(),
            };
            findings.push(Finding::warning("property", subject, message).at(bundle.position.clone()));
        }
    }
    findings.extend(loaded.object_findings.iter().cloned());
}

/// What a blang range does that its author can hardly want.
fn suspicious_range(range: &str) -> Option<&'static str> {
    let tokens: Vec<&str> = range.split(' ').filter(|token| !token.is_empty()).collect();
    if tokens.contains(&"!") {
        return Some("has a space after \"!\", which drops the negation");
    }
    if tokens.iter().any(|token| token.len() == 1 && !matches!(*token, "<" | ">" | "=")) {
        return Some("has a token of one character, which is dropped");
    }
    tokens.iter().find_map(|token| suspicious_wildcard(token))
}

/// What a token with an `x` anywhere in it comes to (fbc §12.2, wildcards).
fn suspicious_wildcard(token: &str) -> Option<&'static str> {
    if !token.contains('x') {
        return None;
    }
    let (operator, version) = token.split_at(token.find(|c: char| c.is_numeric())?);
    let pre_release = version.split_once('-').map_or("", |(_, rest)| rest);
    match operator {
        "!" | "!=" => Some("negates a wildcard, which matches nothing"),
        _ if pre_release.contains(".x") => Some("has a pre-release whose \".x\" is read as \".0\""),
        "" | "=" | "==" | ">" | "<=" if version.ends_with(".x.x") => {
            Some("ends in \".x.x\", which speaks of the minor version 0 alone; write one \".x\"")
        }
        "" | "=" | "==" | ">" | ">=" | "<" | "<=" => None,
        _ => Some("has an operator that does not exist beside a wildcard, so it means one version only"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lint_suspicious_ranges() {
        for (range, suspicious) in [
            (">=1.0.0 <2.0.0", false),
            (">= 1.18.0 < 1.18.11", false),
            ("! 1.0.0", true),
            ("!=1.2.x", true),
            (">=1.0.0 5", true),
            ("1.x.x", true),
            ("<=1.x.x", true),
            (">=1.x.x <2.x.x", false),
            ("1.x", false),
            ("~1.x", true),
            (">>1.2.x", true),
            (">=1.0.0-rc.x", true),
            (">=1.0.0-next", false),
            ("", false),
        ] {
            assert_eq!(suspicious_range(range).is_some(), suspicious, "{range}");
        }
    }

    /// The ranges do what the warnings claim.
    #[test]
    fn lint_warnings_describe_the_ranges() {
        let matches = |range: &str, version: &str| {
            olm_core::Range::blang(range).unwrap().contains(&version.parse().unwrap())
        };
        for (range, version, matched) in [
            ("1.x.x", "1.0.9", true),
            ("1.x.x", "1.1.0", false),
            ("<=1.x.x", "1.1.0", false),
            (">1.x.x", "1.1.0", true),
            ("~1.x", "1.0.0", true),
            ("~1.x", "1.2.0", false),
            (">=1.0.0-rc.x", "1.0.0-rc.0", true),
            ("!=1.2.x", "1.1.0", false),
        ] {
            assert_eq!(matches(range, version), matched, "{range} {version}");
        }
    }
}
