//! The result: what was aimed at, what was measured, and the ratio first.

use std::fmt;

/// Rows in sections.
#[derive(Debug, Default)]
pub(crate) struct Table {
    notes: Vec<String>,
    rows: Vec<[String; 4]>,
    details: Vec<(String, Vec<Vec<String>>)>,
}

impl Table {
    /// A goal: `met` is decided by the caller, `None` where there is no goal.
    pub(crate) fn row(&mut self, what: &str, goal: &str, measured: &str, met: Option<bool>) {
        let met = met.map_or("", |met| if met { "met" } else { "**missed**" });
        eprintln!("  {what}: {measured} (goal: {goal}) {met}");
        self.rows.push([what, goal, measured, met].map(str::to_owned));
    }

    /// A remark above the table.
    pub(crate) fn remark(&mut self, text: String) {
        eprintln!("  {text}");
        self.notes.push(text);
    }

    /// A table of its own; the first row is its head.
    pub(crate) fn detail(&mut self, title: &str, rows: Vec<Vec<String>>) {
        self.details.push((title.to_owned(), rows));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in &self.notes {
            writeln!(f, "- {note}")?;
        }
        writeln!(f, "\n| what | goal | measured | |\n|---|---|---|---|")?;
        for [what, goal, measured, met] in &self.rows {
            writeln!(f, "| {what} | {goal} | {measured} | {met} |")?;
        }
        for (title, rows) in &self.details {
            writeln!(f, "\n{title}\n")?;
            for (at, row) in rows.iter().enumerate() {
                writeln!(f, "| {} |", row.join(" | "))?;
                if at == 0 {
                    writeln!(f, "|{}", "---|".repeat(row.len()))?;
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}
