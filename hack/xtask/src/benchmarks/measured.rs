//! The results of a run of the benches.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::source;

/// Figures by name; by criterion's id the time of an iteration in nanoseconds, the median of its samples.
#[derive(Debug, Default)]
pub(super) struct Measured {
    figures: BTreeMap<String, f64>,
    times: BTreeMap<String, f64>,
}

impl Measured {
    /// From the benches' output and criterion's folder.
    pub(super) fn read(output: &Path, criterion: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(output)
            .with_context(|| format!("cannot read {}; run make bench", output.display()))?;
        Ok(Self { figures: figures(&text)?, times: times(criterion)? })
    }

    #[cfg(test)]
    pub(super) fn from_parts(output: &str, times: &[(&str, f64)]) -> Self {
        let times = times.iter().map(|(id, time)| ((*id).to_owned(), *time)).collect();
        Self { figures: figures(output).unwrap(), times }
    }

    /// A figure that a bench printed.
    pub(super) fn figure(&self, name: &str) -> Result<f64> {
        self.figures.get(name).copied().with_context(|| format!("no bench printed the figure {name:?}"))
    }

    /// The names of all of those.
    pub(super) fn figures(&self) -> impl Iterator<Item = &String> {
        self.figures.keys()
    }

    /// The time of the one benchmark whose id begins so.
    pub(super) fn time(&self, id: &str) -> Result<f64> {
        let found: Vec<(&String, &f64)> =
            self.times.range(id.to_owned()..).take_while(|(name, _)| name.starts_with(id)).collect();
        match found[..] {
            [] => bail!("criterion measured nothing that begins with {id:?}"),
            [(_, time)] => Ok(*time),
            [(first, _), (second, _), ..] => bail!("two benchmarks begin with {id:?}: {first}, {second}"),
        }
    }
}

fn figures(text: &str) -> Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("figure: ")) {
        let (value, name) =
            line.split_once(' ').with_context(|| format!("a figure without a name: {line}"))?;
        let value: f64 =
            value.parse().with_context(|| format!("the figure {name:?} is no number: {value}"))?;
        ensure!(figures.insert(name.to_owned(), value).is_none(), "two figures are named {name:?}");
    }
    Ok(figures)
}

/// Criterion keeps each benchmark in a folder `new` with its id and its estimates.
fn times(criterion: &Path) -> Result<BTreeMap<String, f64>> {
    let (mut paths, mut times) = (Vec::new(), BTreeMap::new());
    source::collect(criterion, Path::new(""), "json", &mut paths)?;
    for path in paths.iter().filter(|path| path.ends_with("new/benchmark.json")) {
        let path = criterion.join(path);
        let about: About = read(&path)?;
        let estimates: Estimates = read(&path.with_file_name("estimates.json"))?;
        times.insert(about.full_id, estimates.median.point_estimate);
    }
    Ok(times)
}

#[derive(Deserialize)]
struct About {
    full_id: String,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

fn read<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_figures_are_numbers_with_unique_names() {
        let found = figures("figure: 1.5 a, b\nnoise\n figure: 2 c\nfigure: 0 d\n").unwrap();
        assert_eq!(found, BTreeMap::from([("a, b".to_owned(), 1.5), ("d".to_owned(), 0.0)]));
        for (text, want) in [
            ("figure: 1 a\nfigure: 2 a", "two figures are named \"a\""),
            ("figure: fast a", "the figure \"a\" is no number: fast"),
            ("figure: 1", "a figure without a name: 1"),
        ] {
            assert_eq!(figures(text).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn benchmarks_take_the_median_of_criterion() {
        let folder = tempfile::tempdir().unwrap();
        let new = folder.path().join("a/new");
        std::fs::create_dir_all(&new).unwrap();
        std::fs::write(new.join("benchmark.json"), r#"{"full_id": "a/b"}"#).unwrap();
        let estimates = r#"{"mean": {"point_estimate": 9.0}, "median": {"point_estimate": 4.0}}"#;
        std::fs::write(new.join("estimates.json"), estimates).unwrap();
        assert_eq!(times(folder.path()).unwrap(), BTreeMap::from([("a/b".to_owned(), 4.0)]));
    }

    #[test]
    fn benchmarks_reject_a_name_that_fits_two() {
        let measured = Measured::from_parts("", &[("x/one", 30.0), ("x/two", 10.0)]);
        let error = measured.time("x/").unwrap_err().to_string();
        assert_eq!(error, "two benchmarks begin with \"x/\": x/one, x/two");
    }
}
