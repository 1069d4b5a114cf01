//! The output formats: tables and trees for people, JSON, YAML and names for programs.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use k8s_openapi::jiff::Timestamp;
use olm_api::condition;
use olm_core::message::{MAX_FIRST_LINE, first_line};
use serde::Serialize;

/// `-o` of verbs that list findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Form {
    /// One line a finding.
    #[default]
    Text,
    /// A JSON list.
    Json,
    /// The same as YAML.
    Yaml,
}

/// One line of text, or one JSON or YAML object, a row.
pub(crate) fn rows<T: Serialize>(form: Form, rows: &[T], text: impl Fn(&T) -> String) -> String {
    match form {
        Form::Text => rows.iter().map(|row| text(row) + "\n").collect(),
        Form::Json => serde_json::to_string_pretty(rows).unwrap_or_default() + "\n",
        Form::Yaml => serde_saphyr::to_string(&rows).unwrap_or_default(),
    }
}

/// `-o` of reading verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with a wide screen.
    Wide,
    /// One JSON document.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names alone, one a line.
    Name,
}

/// The output flag of reading verbs.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// How to print
    #[arg(short = 'o', long = "output", value_enum, default_value_t, value_name = "FORM")]
    pub(crate) format: Format,
}

impl Output {
    /// Whether a table is printed.
    pub(crate) fn is_for_people(self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// The output in the selected format. The argument of `people` is true for the wide table.
    pub(crate) fn print<T: Serialize>(
        self,
        answer: &T,
        names: impl FnOnce() -> Vec<String>,
        people: impl FnOnce(bool) -> String,
    ) -> String {
        match self.format {
            Format::Table => people(false),
            Format::Wide => people(true),
            Format::Json => serde_json::to_string_pretty(answer).unwrap_or_default() + "\n",
            Format::Yaml => yaml(answer),
            Format::Name => names().into_iter().map(|name| name + "\n").collect(),
        }
    }
}

/// YAML that keeps references and messages on one line.
pub(crate) fn yaml(answer: &impl Serialize) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    serde_saphyr::to_string_with_options(answer, options).unwrap_or_default()
}

/// A table with columns as wide as their content.
#[derive(Debug, Default)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heads: impl IntoIterator<Item = &'static str>) -> Self {
        Self { heads: heads.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row; cells beyond the heads are left out.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let one_line = |cell: String| cell.split_whitespace().collect::<Vec<_>>().join(" ");
        self.rows.push(cells.into_iter().take(self.heads.len()).map(one_line).collect());
    }

    /// The text, each line indented by `indent`; nothing for no rows.
    pub(crate) fn text(&self, indent: &str) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or_default();
            widest.max(self.heads[column].len())
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut text = indent.to_owned();
            for (cell, width) in cells.zip(&widths) {
                text.push_str(cell);
                text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 3));
            }
            text.truncate(text.trim_end().len());
            text + "\n"
        };
        let mut text = bold(line(&mut self.heads.iter().copied()).trim_end_matches('\n')) + "\n";
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(String::as_str)));
        }
        text
    }
}

/// Characters of a note in a narrow table.
pub(crate) const MAX_NOTE: usize = 50;

/// At most `most` characters, the last of which shows that some are left out.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// The message of a condition, without a first line that the second one has in full.
pub(crate) fn full_message(message: &str) -> &str {
    let Some((first, rest)) = message.split_once('\n') else { return message };
    let full = first_line(rest);
    let is_full = |begin: &str| full.starts_with(begin.trim_end()) && full.chars().count() > MAX_FIRST_LINE;
    match first.split_once('…') {
        Some((begin, _)) if is_full(begin) => rest,
        _ => message,
    }
}

/// The message of a condition for people; `as Progressing` if it only repeats the message of that condition.
pub(crate) fn condition_message<'a>(type_: &str, message: &'a str, progressing: &str) -> &'a str {
    let may_repeat = [condition::READY, condition::STALLED, condition::RECONCILING].contains(&type_);
    let repeats = message == progressing || message == first_line(progressing);
    if may_repeat && !message.is_empty() && repeats { "as Progressing" } else { full_message(message) }
}

/// A text of several lines, those after the first one indented.
pub(crate) fn indented(text: &str, indent: &str) -> String {
    text.lines().collect::<Vec<_>>().join(&format!("\n{indent}"))
}

/// A number with its noun: `1 catalog`, `2 catalogs`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// The time since `then` as kubectl prints it, such as `5m30s`, `47h` or `12d`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - then.as_second()).max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |whole: i64, unit: &str, rest: i64, smaller: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit}{rest}{smaller}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

/// A dash for nothing.
pub(crate) fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

/// Colours are for terminals, unless the environment disables them.
fn colours() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal()
        && !is_set("NO_COLOR")
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn painted(code: &str, text: &str) -> String {
    if colours() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

pub(crate) fn bold(text: &str) -> String {
    painted("1", text)
}

/// Text about a good state.
pub(crate) fn good(text: &str) -> String {
    painted("32", text)
}

/// Text about a bad state.
pub(crate) fn bad(text: &str) -> String {
    painted("31", text)
}

#[cfg(test)]
mod tests {
    use olm_core::message;

    use super::*;

    #[test]
    fn age_prints_as_kubectl() {
        let second = |at: i64| Timestamp::from_second(at).unwrap();
        for (seconds, want) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (3000, "50m"),
            (3 * 3600 + 60, "3h1m"),
            (47 * 3600, "47h"),
            (3 * 86_400 + 3600, "3d1h"),
            (20 * 86_400, "20d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(age(second(1000), second(1000 + seconds)), want, "{seconds}");
        }
        assert_eq!(age(second(1000), second(0)), "0s", "a clock that is behind");
    }

    #[test]
    fn condition_message_is_printed_in_full_and_once() {
        let long = format!("bundle \"b\": {}: refused; publish another", "word ".repeat(40));
        let short = message::fit(&format!("{long}\ndetail"));
        let full = format!("{long}\ndetail");
        let shortened = first_line(&short);
        assert!(short.contains('…'), "{short}");
        let same = "as Progressing";
        for (type_, text, progressing, want) in [
            ("Progressing", short.as_str(), short.as_str(), full.as_str()),
            ("Ready", &short, &short, same),
            ("Ready", shortened, &short, same),
            ("Stalled", "a", "a\nb", same),
            ("Reconciling", "a", "a", same),
            ("Installed", "a", "a", "a"),
            ("Ready", "", "", ""),
            ("Ready", "b", "a", "b"),
            ("Ready", &short, "a", &full),
            ("Progressing", "first… line\nfirst of others", "", "first… line\nfirst of others"),
        ] {
            assert_eq!(condition_message(type_, text, progressing), want, "{type_} {text}");
        }
        assert_eq!(indented("a\nb\nc", "  "), "a\n  b\n  c");
    }

    #[test]
    fn table_notes_are_cut() {
        for (text, want) in
            [("short", "short"), ("five words that go", "five…"), ("éééééé", "éééé…"), ("", "")]
        {
            assert_eq!(cut(text, 5), want, "{text}");
        }
        assert_eq!(cut(&"a".repeat(60), MAX_NOTE).chars().count(), MAX_NOTE);
    }

    #[test]
    fn table_columns_fit_their_cells() {
        let mut table = Table::new(["NAME", "VERSION"]);
        assert_eq!(table.text(""), "");
        table.row(["a-long-name".to_owned(), "1.0.0".to_owned(), "left out".to_owned()]);
        table.row(["b\n c".to_owned(), String::new()]);
        assert_eq!(table.text("  "), "  NAME          VERSION\n  a-long-name   1.0.0\n  b c\n");
    }
}
