//! The form of messages in conditions and events (decision 33): the first line has who, what and the remedy; details follow from the
//! second line.

/// Characters of the first line, at most, with object names of up to 40.
pub const MAX_FIRST_LINE: usize = 200;
/// Characters of a remedy that stands behind a beginning that is cut, at most.
const MAX_REMEDY: usize = 120;
/// Characters of the innermost cause and the remedy together, at most, so that the beginning keeps a name of 40 characters.
const MAX_CAUSE_AND_REMEDY: usize = 132;
/// Lines of details below the first line, at most.
pub const MAX_DETAILS: usize = 10;
/// Bytes of details, at most.
pub const MAX_DETAIL_BYTES: usize = 2048;

/// The part of a message for `Ready`, `Stalled`, events and logs, which show one line.
#[must_use]
pub fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default()
}

/// A message in this form, whatever text it is made from. A first line that is too long becomes its beginning, which names the object,
/// its innermost cause and its remedy, and stands in full among the details.
#[must_use]
pub fn fit(text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let is_short = first.chars().count() <= MAX_FIRST_LINE;
    let full = (!is_short).then_some(first);
    let details: Vec<String> = full.into_iter().chain(rest.lines()).map(cut).collect();
    let first = if is_short { first.to_owned() } else { shortened(first) };
    with_details(&first, details.iter().map(String::as_str))
}

/// A text of the system in lower case, without the number that it gives an error: `connection refused`.
#[must_use]
pub fn plain(text: &str) -> String {
    let text = text.split_once(" (os error ").map_or(text, |(text, _)| text);
    let is_word = text.chars().nth(1).is_some_and(char::is_lowercase);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if is_word => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

/// A line that leaves space for others among the details.
fn cut(line: &str) -> String {
    let end = line.floor_char_boundary(MAX_DETAIL_BYTES / 4 * 3);
    if end == line.len() { line.to_owned() } else { format!("{}…", &line[..end]) }
}

/// The words of the beginning that fit, the innermost cause, and the remedy: cause and remedy follow the last colon and the last
/// semicolon, if they are short.
fn shortened(line: &str) -> String {
    let (body, remedy) = match line.rsplit_once("; ") {
        Some((body, remedy)) if remedy.chars().count() <= MAX_REMEDY => (body, Some(remedy)),
        _ => (line, None),
    };
    let fits = |cause: &str| {
        cause.chars().count() + remedy.map_or(0, |remedy| remedy.chars().count()) <= MAX_CAUSE_AND_REMEDY
    };
    // no part ends in parentheses, or at a colon between blanks: `removed field : v1.^.spec.size`
    let is_end = |at: &usize| {
        let count = |bracket| body[*at..].matches(bracket).count();
        !body[..*at].ends_with(' ') && count('(') == count(')')
    };
    let colon = body.rmatch_indices(": ").map(|(at, _)| at).find(is_end);
    let (about, cause) = match colon.map(|at| (&body[..at], &body[at + 2..])) {
        Some((about, cause)) if fits(cause) => (about, Some(cause)),
        _ => (body, None),
    };
    let end: Vec<&str> = cause.into_iter().chain(remedy).collect();
    let end = if end.is_empty() { String::new() } else { format!(" {}", end.join("; ")) };
    let space = MAX_FIRST_LINE - 1 - end.chars().count();
    format!("{}…{end}", whole_words(about, space))
}

/// The words of a text that fit into so many characters; letters where one word is longer than that.
fn whole_words(text: &str, space: usize) -> &str {
    let kept = text.char_indices().nth(space).map_or(text, |(at, _)| &text[..at]);
    let is_whole = text.len() == kept.len() || text[kept.len()..].starts_with(' ');
    let words = if is_whole { kept } else { kept.rsplit_once(' ').map_or(kept, |(words, _)| words) };
    let kept = if words.len() * 2 > kept.len() { words } else { kept };
    kept.trim_end()
}

/// The rules of this form that a message breaks.
#[must_use]
pub fn violations(message: &str) -> Vec<String> {
    let first = first_line(message).chars().count();
    let details = || message.lines().skip(1);
    let is_yaml =
        |line: &str| line == "---" || ["apiVersion:", "kind:", "- {"].iter().any(|it| line.starts_with(it));
    // a struct of Go (`&Owner{Kind:…`) or Rust (`Owner { kind: …`), a map of Go, a debugged option
    let structs = ["{", "map[", "Some(", "Err(", "0x", "\\n"];
    let found = [
        (message.is_empty(), "is empty".to_owned()),
        (first > MAX_FIRST_LINE, format!("has {first} characters in its first line")),
        (details().count() > MAX_DETAILS, format!("has {} lines of details", details().count())),
        (
            details().map(str::len).sum::<usize>() > MAX_DETAIL_BYTES,
            "has too many bytes of details".to_owned(),
        ),
        (details().any(is_yaml), "has YAML".to_owned()),
        (structs.iter().any(|text| message.contains(text)), "prints values of a program".to_owned()),
    ];
    found.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, text)| text).collect()
}

/// A message of a first line and details. Lines that are more than [`MAX_DETAILS`] or exceed [`MAX_DETAIL_BYTES`] together are
/// counted in the last line.
#[must_use]
pub fn with_details<'a>(first: &str, details: impl IntoIterator<Item = &'a str>) -> String {
    with_counted(first, details, "line")
}

/// As [`with_details`]; the last line counts what was left out by this noun.
#[must_use]
pub fn with_counted<'a>(first: &str, details: impl IntoIterator<Item = &'a str>, noun: &str) -> String {
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
        1 => text.push_str(&format!("\n… and 1 more {noun}")),
        more => text.push_str(&format!("\n… and {more} more {noun}s")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn message_fits_whatever_it_is_made_from() {
        let long = |length: usize| "x".repeat(length);
        let words = |count: usize| "word ".repeat(count);
        let full = format!("bundle \"b\": reading: {}; publish another", long(169));
        let cut = format!("{}…", long(199));
        for (text, want) in [
            ("short; do this\ndetail".to_owned(), "short; do this\ndetail".to_owned()),
            (full.clone(), format!("bundle \"b\": reading: {}… publish another\n{full}", long(162))),
            (format!("bundle \"b\": {}: a : refused; publish another\ndetail", words(40).trim_end()),
                format!("bundle \"b\": {}word… a : refused; publish another\nbundle \"b\": {}: a : refused; publish another\ndetail",
                    words(30), words(40).trim_end())),
            (format!("bundle \"b\": {}; {}", words(40), long(121)),
                format!("bundle \"b\": {}word…\nbundle \"b\": {}; {}", words(36), words(40), long(121))),
            (format!("{}: {}", words(60).trim_end(), long(80)),
                format!("{}word… {}\n{}: {}", words(22), long(80), words(60).trim_end(), long(80))),
            (long(300), format!("{cut}\n{}", long(300))),
            (long(5000), format!("{cut}\n{}…", long(1536))),
        ] {
            assert_eq!(fit(&text), want);
            assert_eq!(fit(&want), want, "twice");
            assert_eq!(violations(&want), Vec::<String>::new());
        }
        assert_eq!(fit(&"a\n".repeat(30)).lines().count(), 1 + MAX_DETAILS);
    }

    #[test]
    fn message_violations_are_named() {
        for (text, want) in [
            ("fine; do this\nlines of it", &[][..]),
            ("", &["is empty"]),
            (&"x".repeat(201), &["has 201 characters in its first line"]),
            (&"a\n".repeat(12), &["has 11 lines of details"]),
            ("a\napiVersion: v1", &["has YAML"]),
            ("a\n- {\"verbs\": 1}", &["has YAML", "prints values of a program"]),
            ("owner &OwnerReference{Kind:x}", &["prints values of a program"]),
            ("Error { kind: Some(1) }", &["prints values of a program"]),
        ] {
            assert_eq!(violations(text), want, "{text}");
        }
    }

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
        assert!(with_counted("first", ["a"; 12], "rule").ends_with("\n… and 3 more rules"));
    }
}
