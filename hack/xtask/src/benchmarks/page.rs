//! The part of docs/internals/benchmarks.md that shows the ratios, and its pictures.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::chart::{Bar, bars};
use super::{Chart, committed, number, text};
use crate::section;

const PAGE: &str = "docs/internals/benchmarks.md";
const MARKS: [&str; 2] = ["<!-- ratios: written by `make generate` -->", "<!-- end of the ratios -->"];

/// The page and a picture for each chart.
pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let charts = committed(&text(root)?)?;
    let mut files = vec![section::written(root, PAGE, MARKS, &section(&charts))?];
    files.extend(charts.iter().map(|chart| (Path::new(PAGE).with_file_name(picture(chart)), drawn(chart))));
    Ok(files)
}

/// From the page's folder.
fn picture(chart: &Chart) -> String {
    format!("benchmarks/{}.svg", chart.title.to_lowercase().replace(' ', "-"))
}

fn section(charts: &[Chart]) -> String {
    let mut text = String::new();
    for chart in charts {
        let Chart { title, command, method, ratios } = chart;
        let gap = if text.is_empty() { "" } else { "\n" };
        let _ =
            write!(text, "{gap}### {title}\n\n`{command}`: {method}\n\n![{title}]({})\n\n", picture(chart));
        text.push_str("| what | to | ratio | at most |\n|---|---|---:|---:|\n");
        for ratio in ratios {
            let [value, bound] = [ratio.value, ratio.bound()].map(number);
            let _ = writeln!(text, "| {} | {} | {value} | {bound} |", ratio.what, ratio.to);
        }
    }
    text
}

fn drawn(chart: &Chart) -> String {
    let ratios = chart.ratios.iter();
    bars(
        &chart.title,
        ratios.map(|ratio| Bar { name: &ratio.what, value: ratio.value, bound: ratio.bound() }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_page_has_picture_command_method_and_table() {
        let chart = serde_json::from_value(serde_json::json!({
            "title": "Reading a catalog", "command": "cargo bench -p x", "method": "Twice.",
            "ratios": [{"what": "a", "to": "a parse", "source": {"figure": "a"}, "value": 2.0, "may_grow": 1.25}]
        }));
        insta::assert_snapshot!(section(&[chart.unwrap()]), @r"
        ### Reading a catalog

        `cargo bench -p x`: Twice.

        ![Reading a catalog](benchmarks/reading-a-catalog.svg)

        | what | to | ratio | at most |
        |---|---|---:|---:|
        | a | a parse | 2.00 | 2.50 |
        ");
    }
}
