//! The form of messages in conditions and events (decision 33): the first line has who, what and the remedy; details follow from the
//! second line.

/// Lines of details below the first line, at most.
pub const MAX_DETAILS: usize = 10;
/// Bytes of details, at most.
pub const MAX_DETAIL_BYTES: usize = 2048;

/// The part of a message for `Ready`, `Stalled`, events and logs, which show one line.
#[must_use]
pub fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// A message of a first line and details. Lines that are more than [`MAX_DETAILS`] or exceed [`MAX_DETAIL_BYTES`] together are
/// counted in the last line.
#[must_use]
pub fn with_details<'a>(first: &str, details: impl IntoIterator<Item = &'a str>) -> String {
    let lines: Vec<&str> = details.into_iter().collect();
    let mut bytes = 0;
    let fits = |line: &&&str| {
        bytes += line.len() + 1;
        bytes <= MAX_DETAIL_BYTES
    };
    let limit = if lines.len() > MAX_DETAILS { MAX_DETAILS - 1 } else { MAX_DETAILS };
    let shown = lines.iter().take(limit).take_while(fits).count();
    let mut text = first.to_owned();
    for line in &lines[..shown] {
        text.push('\n');
        text.push_str(line);
    }
    match lines.len() - shown {
        0 => {}
        1 => text.push_str("\n… and 1 more line"),
        more => text.push_str(&format!("\n… and {more} more lines")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_details_are_limited() {
        for (lines, want) in [
            (vec![], "first".to_owned()),
            (vec!["a", "b"], "first\na\nb".to_owned()),
            (vec!["a"; 10], format!("first{}", "\na".repeat(10))),
            (vec!["a"; 12], format!("first{}\n… and 3 more lines", "\na".repeat(9))),
            (
                vec![&"a".repeat(2000) as &str, &"b".repeat(100)],
                format!("first\n{}\n… and 1 more line", "a".repeat(2000)),
            ),
        ] {
            let text = with_details("first", lines);
            assert_eq!(text, want);
            assert_eq!(first_line(&text), "first");
        }
        assert_eq!(first_line(""), "");
    }
}
