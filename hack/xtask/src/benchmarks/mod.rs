//! Ratios of the benches against the recorded ratios; never times.
//!
//! `ratios.json` lists charts of ratios: each ratio is of two things that one run measured, has a value and a factor by which a
//! run may exceed it. `make bench` runs the benches and then [`check`], which fails for a ratio above its bound or without a
//! measurement, and prints the figures that have no record; [`write`] takes the measured values over. A part of
//! docs/internals/benchmarks.md and its pictures are made from the file alone, so that `verify` keeps them current.
//!
//! Two sources: medians of criterion, and lines `figure: <number> <name>` that the other benches print.

mod chart;
mod measured;
mod page;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use measured::Measured;
pub(crate) use page::files;

const RATIOS: &str = "hack/xtask/src/benchmarks/ratios.json";

/// Ratios that one bench measures.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Chart {
    title: String,
    /// Runs the bench alone.
    command: String,
    /// How it is measured; Markdown.
    method: String,
    ratios: Vec<Ratio>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ratio {
    /// What costs.
    what: String,
    /// What that is compared with.
    to: String,
    source: Source,
    /// When it was last written down.
    value: f64,
    /// The factor by which a run may exceed the value.
    may_grow: f64,
}

/// Where the measurement is found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    /// A line `figure:` with this name.
    Figure(String),
    /// The median of one benchmark of criterion to that of another; each is named by how its id begins.
    Criterion { of: String, to: String },
}

impl Ratio {
    fn bound(&self) -> f64 {
        self.value * self.may_grow
    }

    fn now(&self, measured: &Measured) -> Result<f64> {
        let value = match &self.source {
            Source::Figure(name) => measured.figure(name)?,
            Source::Criterion { of, to } => measured.time(of)? / measured.time(to)?,
        };
        ensure!(value.is_finite() && value >= 0.0, "{value} is no ratio");
        Ok(value)
    }
}

/// Compares a run, whose output is in the file `output` and whose estimates are in criterion's folder, with what is written down. Fails for a
/// ratio that is above its bound, or was not measured.
pub(crate) fn check(root: &Path, output: &Path, criterion: &Path) -> Result<()> {
    let charts = committed(&text(root)?)?;
    let found = compare(&charts, &Measured::read(output, criterion)?);
    eprintln!("{}", found.table);
    if !found.unknown.is_empty() {
        eprintln!("figures that {RATIOS} does not name:\n  {}", found.unknown.join("\n  "));
    }
    ensure!(
        found.bad.is_empty(),
        "the benches do not keep their ratios (if that is meant, write it down: make bench WRITE=1):\n  {}",
        found.bad.join("\n  ")
    );
    Ok(())
}

/// Takes the measured values over, all or none.
pub(crate) fn write(root: &Path, output: &Path, criterion: &Path) -> Result<()> {
    let mut charts = committed(&text(root)?)?;
    let measured = Measured::read(output, criterion)?;
    eprintln!("{}", compare(&charts, &measured).table);
    for chart in &mut charts {
        for ratio in &mut chart.ratios {
            let now = ratio.now(&measured).with_context(|| format!("{}: {}", chart.title, ratio.what))?;
            // no more digits than a run can show
            ratio.value = format!("{now:.3e}").parse()?;
        }
    }
    let text = serde_json::to_string_pretty(&charts)? + "\n";
    std::fs::write(root.join(RATIOS), text).with_context(|| format!("cannot write {RATIOS}"))?;
    eprintln!("written  {RATIOS}");
    Ok(())
}

fn text(root: &Path) -> Result<String> {
    std::fs::read_to_string(root.join(RATIOS)).with_context(|| format!("cannot read {RATIOS}"))
}

fn committed(text: &str) -> Result<Vec<Chart>> {
    let charts: Vec<Chart> = serde_json::from_str(text).with_context(|| format!("cannot read {RATIOS}"))?;
    for ratio in charts.iter().flat_map(|chart| &chart.ratios) {
        let sound = ratio.may_grow.is_finite() && ratio.may_grow > 1.0 && ratio.value >= 0.0;
        ensure!(sound, "{RATIOS}: {}: may_grow must be above 1 and value not below 0", ratio.what);
    }
    Ok(charts)
}

/// What a run comes to.
struct Comparison {
    /// Markdown.
    table: String,
    /// A message for each ratio that does not hold.
    bad: Vec<String>,
    /// Figures that a bench printed and no ratio names.
    unknown: Vec<String>,
}

fn compare(charts: &[Chart], measured: &Measured) -> Comparison {
    let mut table = String::from(
        "| bench | what | to | written down | at most | now | |\n|---|---|---|---:|---:|---:|---|\n",
    );
    let mut bad = Vec::new();
    for chart in charts {
        for ratio in &chart.ratios {
            let (Chart { title, command, .. }, Ratio { what, to, value, may_grow, .. }) = (chart, ratio);
            let [written, bound] = [*value, ratio.bound()].map(number);
            let now = match ratio.now(measured) {
                Ok(now) if now > ratio.bound() => {
                    bad.push(format!(
                        "{title}: {what}: {} × {to}, more than the bound {bound} ({written} was written down and may grow by {may_grow}); \
                         alone: {command}",
                        number(now)
                    ));
                    format!("{} | **above its bound**", number(now))
                }
                Ok(now) if now * may_grow < *value => format!("{} | less: write it down", number(now)),
                Ok(now) => format!("{} | ok", number(now)),
                Err(error) => {
                    bad.push(format!("{title}: {what}: {error:#}; alone: {command}"));
                    "– | **not measured**".to_owned()
                }
            };
            let _ = writeln!(table, "| {title} | {what} | {to} | {written} | {bound} | {now} |");
        }
    }
    let named = |name: &&String| {
        let mut sources = charts.iter().flat_map(|chart| &chart.ratios).map(|ratio| &ratio.source);
        sources.any(|source| matches!(source, Source::Figure(figure) if figure == *name))
    };
    let unknown = measured.figures().filter(|name| !named(name)).cloned().collect();
    Comparison { table, bad, unknown }
}

/// With three digits that count.
fn number(value: f64) -> String {
    let digits = match value {
        0.0 => 0,
        value => (2.0 - value.abs().log10()).ceil().max(0.0) as usize,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(what: &str, source: Source, value: f64) -> Ratio {
        Ratio { what: what.to_owned(), to: "a parse".to_owned(), source, value, may_grow: 1.5 }
    }

    fn figure(what: &str, value: f64) -> Ratio {
        ratio(what, Source::Figure(what.to_owned()), value)
    }

    fn chart(ratios: Vec<Ratio>) -> [Chart; 1] {
        let text = |text: &str| text.to_owned();
        [Chart { title: text("Reading"), command: text("cargo bench x"), method: text("m"), ratios }]
    }

    #[test]
    fn benchmarks_ratio_above_its_bound_fails() {
        for (now, want) in [
            ("1.49", None),
            ("1.5", None),
            (
                "1.51",
                Some(
                    "Reading: a: 1.51 × a parse, more than the bound 1.50 (1.00 was written down and may grow by 1.5); \
                     alone: cargo bench x",
                ),
            ),
            ("NaN", Some("Reading: a: NaN is no ratio; alone: cargo bench x")),
            ("-1", Some("Reading: a: -1 is no ratio; alone: cargo bench x")),
        ] {
            let measured = Measured::from_parts(&format!("figure: {now} a\n"), &[]);
            let found = compare(&chart(vec![figure("a", 1.0)]), &measured);
            assert_eq!(found.bad.first().map(String::as_str), want, "{now}");
        }
    }

    #[test]
    fn benchmarks_zero_may_not_grow() {
        let none = chart(vec![figure("writes at rest", 0.0)]);
        assert!(compare(&none, &Measured::from_parts("figure: 0 writes at rest\n", &[])).bad.is_empty());
        assert_eq!(compare(&none, &Measured::from_parts("figure: 0.01 writes at rest\n", &[])).bad.len(), 1);
    }

    #[test]
    fn benchmarks_missing_figure_fails_and_new_figure_is_named() {
        let found = compare(
            &chart(vec![figure("a", 1.0)]),
            &Measured::from_parts("noise\nfigure: 1 b, twice\n", &[]),
        );
        assert_eq!(found.bad, ["Reading: a: no bench printed the figure \"a\"; alone: cargo bench x"]);
        assert_eq!(found.unknown, ["b, twice"]);
        assert!(found.table.ends_with("| Reading | a | a parse | 1.00 | 1.50 | – | **not measured** |\n"));
    }

    #[test]
    fn benchmarks_ratio_that_fell_is_named() {
        let found = compare(&chart(vec![figure("a", 1.0)]), &Measured::from_parts("figure: 0.5 a\n", &[]));
        assert!(found.bad.is_empty());
        assert!(found.table.ends_with("| 0.500 | less: write it down |\n"), "{}", found.table);
    }

    #[test]
    fn benchmarks_divide_times_of_criterion() {
        let source = Source::Criterion { of: "x/o".to_owned(), to: "x/two".to_owned() };
        let charts = chart(vec![ratio("pair", source, 2.5)]);
        let found = compare(&charts, &Measured::from_parts("", &[("x/one", 30.0), ("x/two", 10.0)]));
        assert!(found.bad.is_empty());
        assert!(found.table.ends_with("| pair | a parse | 2.50 | 3.75 | 3.00 | ok |\n"), "{}", found.table);
        let found = compare(&charts, &Measured::from_parts("", &[("x/two", 10.0)]));
        let missing =
            "Reading: pair: criterion measured nothing that begins with \"x/o\"; alone: cargo bench x";
        assert_eq!(found.bad, [missing]);
    }

    #[test]
    fn benchmarks_numbers_have_three_digits() {
        let all = [0.0, 0.000_812, 0.044_4, 0.77, 1.0, 2.431, 17.56, 123.4, 1234.0].map(number);
        assert_eq!(all, ["0", "0.000812", "0.0444", "0.770", "1.00", "2.43", "17.6", "123", "1234"]);
    }

    #[test]
    fn benchmarks_reject_a_factor_below_the_measured_value() {
        let text = serde_json::to_string(&chart(vec![Ratio { may_grow: 1.0, ..figure("a", 1.0) }])).unwrap();
        assert!(committed(&text).unwrap_err().to_string().contains("a: may_grow must be above 1"));
    }
}
