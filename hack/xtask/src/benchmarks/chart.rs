//! Bars for a few ratios, as SVG that reads on light and dark pages. One measure, so one colour; a thin line where the ratio's bound
//! is, and both numbers beside it.

use std::fmt::Write as _;

const WIDTH: f64 = 900.0;
/// Where the bars begin; the names stand left of it.
const LEFT: f64 = 360.0;
/// Width for the numbers right of the longest line.
const RIGHT: f64 = 140.0;
const TOP: f64 = 42.0;
const STEP: f64 = 26.0;
const BAR: f64 = 16.0;

pub(super) struct Bar<'a> {
    pub(super) name: &'a str,
    pub(super) value: f64,
    pub(super) bound: f64,
}

/// The chart; bars keep their order.
pub(super) fn bars<'a>(title: &str, bars: impl Iterator<Item = Bar<'a>>) -> String {
    let bars: Vec<Bar<'_>> = bars.collect();
    let height = TOP + STEP * bars.len() as f64 + 8.0;
    let most = bars.iter().map(|bar| bar.bound).fold(f64::MIN_POSITIVE, f64::max);
    let title = escaped(title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>{title}: ratios, and the most that each may be</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\" font-weight=\"bold\" fill=\"#1f2933\">{title}</text>\n"
    );
    let length = |value: f64| ((WIDTH - LEFT - RIGHT) * value / most).max(1.0);
    for (at, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * at as f64;
        let text = y + BAR - 3.5;
        let (end, bound) = (length(bar.value), LEFT + length(bar.bound));
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{text:.1}\" text-anchor=\"end\" fill=\"#1f2933\">{}</text>\n\
             <rect x=\"{LEFT:.1}\" y=\"{y:.1}\" width=\"{end:.1}\" height=\"{BAR:.1}\" fill=\"#2b6cb0\"/>\n\
             <path d=\"M{bound:.1} {:.1}v{:.1}\" stroke=\"#c05621\" stroke-width=\"2\"/>\n\
             <text x=\"{:.1}\" y=\"{text:.1}\" fill=\"#52606d\">{} (at most {})</text>\n",
            LEFT - 8.0,
            escaped(bar.name),
            y - 3.0,
            BAR + 6.0,
            bound + 6.0,
            super::number(bar.value),
            super::number(bar.bound)
        );
    }
    out.push_str("</svg>\n");
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benchmarks_chart_has_bars_in_order_with_number_and_bound() {
        let bars = [("twice", 2.0, 2.5), ("none & <none>", 0.0, 0.0)];
        let bars = bars.into_iter().map(|(name, value, bound)| Bar { name, value, bound });
        insta::assert_snapshot!(super::bars("Reading", bars), @r##"
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 102" role="img" font-family="sans-serif" font-size="13">
        <title>Reading: ratios, and the most that each may be</title>
        <rect width="100%" height="100%" fill="#ffffff"/>
        <text x="12" y="24" font-size="15" font-weight="bold" fill="#1f2933">Reading</text>
        <text x="352.0" y="54.5" text-anchor="end" fill="#1f2933">twice</text>
        <rect x="360.0" y="42.0" width="320.0" height="16.0" fill="#2b6cb0"/>
        <path d="M760.0 39.0v22.0" stroke="#c05621" stroke-width="2"/>
        <text x="766.0" y="54.5" fill="#52606d">2.00 (at most 2.50)</text>
        <text x="352.0" y="80.5" text-anchor="end" fill="#1f2933">none &amp; &lt;none&gt;</text>
        <rect x="360.0" y="68.0" width="1.0" height="16.0" fill="#2b6cb0"/>
        <path d="M361.0 65.0v22.0" stroke="#c05621" stroke-width="2"/>
        <text x="367.0" y="80.5" fill="#52606d">0 (at most 0)</text>
        </svg>
        "##);
    }

    #[test]
    fn benchmarks_chart_without_values() {
        let svg = bars("T", [Bar { name: "n", value: 0.0, bound: 0.0 }].into_iter());
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
