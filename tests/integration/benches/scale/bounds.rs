//! Figures with their bounds, as one table.

use anyhow::{Result, ensure};

/// What was measured, and the most that it may be.
#[derive(Default)]
pub(crate) struct Bounds(Vec<Row>);

struct Row {
    group: String,
    what: String,
    unit: String,
    figure: f64,
    bound: f64,
}

impl Row {
    fn is_met(&self) -> bool {
        self.figure <= self.bound
    }
}

impl Bounds {
    /// Adds a figure.
    pub(crate) fn add(&mut self, group: &str, what: &str, unit: &str, figure: f64, bound: f64) {
        let [group, what, unit] = [group, what, unit].map(str::to_owned);
        self.0.push(Row { group, what, unit, figure, bound });
    }

    /// Prints the table.
    ///
    /// # Errors
    /// When a figure is above its bound.
    pub(crate) fn check(&self) -> Result<()> {
        println!("\n| | | figure | at most | |\n|---|---|---:|---:|---|");
        for row in &self.0 {
            let Row { group, what, unit, figure, bound } = row;
            let verdict = if row.is_met() { "" } else { "**above**" };
            println!("| {group} | {what} | {figure:.1} {unit} | {bound} {unit} | {verdict} |");
        }
        let above: Vec<String> = self
            .0
            .iter()
            .filter(|row| !row.is_met())
            .map(|row| format!("{}: {}", row.group, row.what))
            .collect();
        ensure!(above.is_empty(), "above the bound: {}", above.join("; "));
        Ok(())
    }
}
