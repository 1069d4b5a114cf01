//! Figures with their bounds, as one table.

#![expect(clippy::print_stdout, reason = "for benches, which print")]

use anyhow::{Result, ensure};

/// Processor time of kube-apiserver for an install of eight objects on the machine that the bounds in seconds are for.
const APISERVER: f64 = 0.091;

/// How many times slower this machine is than that one, by the processor time of kube-apiserver for an install, in seconds; at least 1.
/// An install is mostly the control plane's work, so its time on another machine means nothing without this.
pub fn slower(apiserver: f64) -> f64 {
    let slower = (apiserver / APISERVER).max(1.0);
    println!("this machine: {slower:.2} times the processor time of kube-apiserver that the bounds are for");
    slower
}

/// What was measured, and the most that it may be.
#[derive(Debug, Default)]
pub struct Bounds(Vec<Row>);

#[derive(Debug)]
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
    pub fn add(&mut self, group: &str, what: &str, unit: &str, figure: f64, bound: f64) {
        let [group, what, unit] = [group, what, unit].map(str::to_owned);
        self.0.push(Row { group, what, unit, figure, bound });
    }

    /// Prints the table.
    pub fn check(&self) -> Result<()> {
        println!("\n| | | figure | at most | |\n|---|---|---:|---:|---|");
        for row in &self.0 {
            let Row { group, what, unit, figure, bound } = row;
            let verdict = if row.is_met() { "" } else { "**above**" };
            println!("| {group} | {what} | {figure:.1} {unit} | {bound:.1} {unit} | {verdict} |");
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
