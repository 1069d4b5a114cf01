//! The table of a run.

use std::time::Duration;

/// One input and what became of it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Highest resident bytes of the process that read it.
    pub(crate) peak: u64,
    pub(crate) cpu: Duration,
    /// The message of the status.
    pub(crate) message: String,
    /// Why the row fails.
    pub(crate) problems: Vec<String>,
}

/// Prints a line.
#[expect(clippy::print_stdout, reason = "the output of this test program")]
pub(crate) fn log(line: &str) {
    println!("{line}");
}

/// Begins the table.
pub(crate) fn head() {
    log("\n| shape | peak MiB | CPU s | message |\n|---|---:|---:|---|");
}

impl Row {
    /// One line about a row that fails.
    pub(crate) fn failure(&self) -> Option<String> {
        (!self.problems.is_empty()).then(|| format!("{}: {}", self.name, self.problems.join("; ")))
    }

    pub(crate) fn print(&self) {
        let message: String = self.message.chars().take(160).collect();
        let message = message.replace('|', "\\|").replace('\n', " ");
        let (peak, cpu) = (self.peak.div_ceil(1 << 20), self.cpu.as_secs_f64());
        let failed = if self.problems.is_empty() {
            String::new()
        } else {
            format!("**{}** ", self.problems.join("; "))
        };
        log(&format!("| {} | {peak} | {cpu:.1} | {failed}{message} |", self.name));
    }
}
