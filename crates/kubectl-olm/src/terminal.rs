//! Output to a terminal: texts of catalogs, bundles and clusters may hold characters that control it (hide, overwrite, retitle,
//! turn the direction of writing). A terminal gets a replacement; a pipe gets every character unchanged.

use std::borrow::Cow;
use std::io::IsTerminal as _;

/// The colours that this program itself writes (see `output.rs`).
const OWN: [&str; 4] = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[31m", "\u{1b}[32m"];

/// Does the character control a terminal, turn the direction of writing, or hide?
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The text without control characters: lines, tabs and the own colours stay.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| steers(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let own = OWN.iter().find(|own| rest.starts_with(**own));
        let taken = own.map_or(c.len_utf8(), |own| own.len());
        match own {
            Some(own) => shown.push_str(own),
            None if steers(c) && !matches!(c, '\n' | '\t') => shown.push('\u{fffd}'),
            None => shown.push(c),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(shown)
}

pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if std::io::stdout().is_terminal() { harmless(text) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        for (text, want) in [
            ("plain, é, 漢\n\tok\n", "plain, é, 漢\n\tok\n"),
            ("\u{1b}[1mHEAD\u{1b}[0m\n", "\u{1b}[1mHEAD\u{1b}[0m\n"),
            ("\u{1b}[2Jgone", "\u{fffd}[2Jgone"),
            ("\u{1b}[8mhidden\u{1b}[0m", "\u{fffd}[8mhidden\u{1b}[0m"),
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("good\rbad", "good\u{fffd}bad"),
            ("a\u{202e}b", "a\u{fffd}b"),
            ("\u{1b}", "\u{fffd}"),
        ] {
            assert_eq!(harmless(text), want, "{text:?}");
        }
    }
}
