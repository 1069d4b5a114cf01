//! A package in one line, as a list of packages shows it: from catalogd's `packages` answer or summed up here.

use olm_fbc::PackageSummary;
use serde::{Deserialize, Serialize};

/// A package in brief. Absent texts are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageBrief {
    /// Name of the package.
    pub name: String,
    /// Name for users.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Who makes it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The channel that its author recommends.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_channel: String,
    /// The highest version, undeprecated if there is one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub latest_version: String,
    /// Names of its channels.
    pub channels: Vec<String>,
    /// Why the package is deprecated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<String>,
}

/// A line of catalogd's answer, of which only these members matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Line {
    name: String,
    display_name: String,
    provider: String,
    default_channel: String,
    latest_version: String,
    latest: Option<Latest>,
    channels: Vec<Named>,
    deprecation: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Latest {
    version: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

impl PackageBrief {
    /// Reads JSON lines.
    ///
    /// # Errors
    /// When a line is no such object.
    pub fn read(lines: &[u8]) -> Result<Vec<Self>, serde_json::Error> {
        let lines =
            lines.split(|byte| *byte == b'\n').filter(|line| !line.iter().all(u8::is_ascii_whitespace));
        let mut briefs: Vec<Self> = lines
            .map(|line| serde_json::from_slice::<Line>(line).map(Self::from))
            .collect::<Result<_, _>>()?;
        briefs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(briefs)
    }

    /// Whether the term occurs in what is known of the package, in any case of letters.
    #[must_use]
    pub fn mentions(&self, term: &str) -> bool {
        let term = term.to_lowercase();
        [&self.name, &self.display_name, &self.provider]
            .iter()
            .any(|text| text.to_lowercase().contains(&term))
    }
}

impl From<Line> for PackageBrief {
    fn from(line: Line) -> Self {
        let latest = line.latest.map(|latest| latest.version).unwrap_or_default();
        Self {
            name: line.name,
            display_name: line.display_name,
            provider: line.provider,
            default_channel: line.default_channel,
            latest_version: if line.latest_version.is_empty() { latest } else { line.latest_version },
            channels: line.channels.into_iter().map(|channel| channel.name).collect(),
            deprecation: line.deprecation,
        }
    }
}

impl From<PackageSummary> for PackageBrief {
    fn from(summary: PackageSummary) -> Self {
        Self {
            name: summary.name,
            display_name: summary.display_name,
            provider: summary.provider,
            default_channel: summary.default_channel,
            latest_version: summary.latest.map(|latest| latest.version).unwrap_or_default(),
            channels: summary.channels.into_iter().map(|channel| channel.name).collect(),
            deprecation: summary.deprecation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_line_are_read() {
        let lines = br#"{"name":"b","latest":{"name":"b.v2","version":"2.0.0"},"displayName":"The B","channels":[{"name":"x","heads":[]}]}

{"name":"a","latestVersion":"1.0.0","channels":[{"name":"stable","head":"a.v1"}],"icon":{"mediatype":"image/png"}}
"#;
        let briefs = PackageBrief::read(lines).unwrap();
        let shown: Vec<_> = briefs
            .iter()
            .map(|b| (b.name.as_str(), b.latest_version.as_str(), b.channels.join(",")))
            .collect();
        assert_eq!(shown, [("a", "1.0.0", "stable".to_owned()), ("b", "2.0.0", "x".to_owned())]);
        assert!(briefs[1].mentions("the b") && !briefs[0].mentions("the"));
        assert!(PackageBrief::read(b"5\n").is_err());
    }
}
