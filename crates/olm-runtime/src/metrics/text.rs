//! From OpenMetrics text to the classic format 0.0.4, and which of the two a client wants.
//!
//! The formats differ little for what we emit: a counter's `TYPE` and `HELP` name the sample (`…_total`), there is no `UNIT` and no
//! `EOF`, and our help texts lose the full stop that the library adds.

use std::fmt::Write as _;

use olm_api::observe::Kind;
use olm_api::{classic, observe};

/// The content type of the classic format.
pub(super) const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// The content type of OpenMetrics.
pub(super) const OPEN: &str =
    "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores";

/// Whether `Accept` asks for OpenMetrics at least as much as for plain text.
pub(super) fn wants_open_metrics(accept: &str) -> bool {
    let weight = |media_type: &str| {
        accept
            .split(',')
            .filter_map(|entry| {
                let mut parts = entry.split(';').map(str::trim);
                let media = parts.next()?;
                if !media.eq_ignore_ascii_case(media_type) {
                    return None;
                }
                let quality =
                    parts.find_map(|part| part.strip_prefix("q=")).map_or(Ok(1.0), str::parse::<f32>);
                Some(quality.unwrap_or(0.0))
            })
            .fold(0.0_f32, f32::max)
    };
    let open = weight("application/openmetrics-text");
    open > 0.0 && open >= weight("text/plain")
}

/// The ending of counters in OpenMetrics.
const TOTAL: &str = "_total";

/// Whether the classic format has a counter of this name, given without its ending, without that ending: the reference named it so.
fn is_plain(name: &str) -> bool {
    let name = name.split('{').next().unwrap_or(name);
    classic::observe::METRICS.iter().any(|row| row.kind == Kind::Counter && row.name == name)
}

/// The names of the table that are summaries.
fn summaries() -> impl Iterator<Item = &'static str> {
    let rows = observe::METRICS.iter().chain(classic::observe::METRICS);
    rows.filter(|row| row.kind == Kind::Summary).map(|row| row.name)
}

/// OpenMetrics text in which the summaries of the table are called so: the library has no such kind.
pub(super) fn with_summaries(open: &str) -> String {
    let comment = |name: &str, kind: &str| format!("# TYPE {name} {kind}\n");
    summaries().fold(open.to_owned(), |text, name| {
        text.replacen(&comment(name, "unknown"), &comment(name, "summary"), 1)
    })
}

/// OpenMetrics text as classic text.
pub(super) fn classic(open: &str) -> String {
    let mut out = String::with_capacity(open.len());
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        if let Some(help) = line.strip_prefix("# HELP ") {
            let counter = lines.peek().is_some_and(|next| is_counter(next));
            let (name, text) = help.split_once(' ').unwrap_or((help, ""));
            push_comment(&mut out, "HELP", name, counter, text.strip_suffix('.').unwrap_or(text));
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, text) = kind.split_once(' ').unwrap_or((kind, ""));
            // what OpenMetrics calls unknown or info is untyped or a gauge in the classic format
            let text = match text {
                "unknown" => "untyped",
                "info" => "gauge",
                other => other,
            };
            push_comment(&mut out, "TYPE", name, is_counter(line), text);
        } else {
            match line.split_once(TOTAL) {
                Some((name, rest)) if is_plain(name) => out.extend([name, rest]),
                _ => out.push_str(line),
            }
            out.push('\n');
        }
    }
    out
}

fn is_counter(line: &str) -> bool {
    line.starts_with("# TYPE ") && line.ends_with(" counter")
}

fn push_comment(out: &mut String, word: &str, name: &str, counter: bool, text: &str) {
    let total = if counter && !is_plain(name) { TOTAL } else { "" };
    // writing to a String cannot fail
    let _ = writeln!(out, "# {word} {name}{total} {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_text_rewrites_comments_only() {
        let open = "# HELP a Counts a.\n# TYPE a counter\na_total{x=\"# EOF\"} 1\n# HELP b_seconds B.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2\n# EOF\n";
        let want = "# HELP a_total Counts a\n# TYPE a_total counter\na_total{x=\"# EOF\"} 1\n# HELP b_seconds B\n# TYPE b_seconds gauge\nb_seconds 2\n";
        assert_eq!(classic(open), want);
        let open =
            "# HELP csv_upgrade_count C.\n# TYPE csv_upgrade_count counter\ncsv_upgrade_count_total 3\n";
        let want = "# HELP csv_upgrade_count C\n# TYPE csv_upgrade_count counter\ncsv_upgrade_count 3\n";
        assert_eq!(classic(open), want, "a counter that the reference named");
    }

    #[test]
    fn metrics_text_follows_accept() {
        for (accept, want) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3", true),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.8", false),
            ("application/openmetrics-text;q=0", false),
        ] {
            assert_eq!(wants_open_metrics(accept), want, "{accept}");
        }
    }
}
