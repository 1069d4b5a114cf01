//! Pairs of range and version: written by grammar, or real ones with something changed.

use super::Question;

/// A small pseudo-random generator (splitmix64); good enough to choose test cases, and the same everywhere.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// True in `percent` of a hundred throws.
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Ranges that people write for the Masterminds dialect.
#[rustfmt::skip]
const WRITTEN: &[&str] = &[
    ">=1.0.0, <2.0.0", "^1.2", "~1.2.3", "~>1.2", "1.x", "1.2.*", "*", ">=1.0.0-0 <2.0.0-0", "1.0 - 2.0", "1.2.3 || 1.3.x", "!=1.2.3",
    ">1 <=3.x", "^0.2.3", "^0.0.3", "~0", "=1.2.3-rc.1", ">=0.1.0 <=1.0.0 || ^3", "v1.4.0", ">= 1.18.0, != 1.18.4",
    "1.2 - 1.4.5 || >=2.0.0-alpha.1",
];

const PRE: &[&str] = &[
    "rc.1", "alpha", "0", "beta.2", "alpha.1", "1", "10", "a10", "a9", "rc1", "A", "x1", "next", "0a", "-",
    "1.2.3",
];
const BAD_PRE: &[&str] = &["01", "rc..1", "", "a_b", "18446744073709551616", "99999999999999999999.a", "é"];
const BUILD: &[&str] = &["1", "b.7", "001", "xdb5ed32", "-", "0.1655383639.p"];
#[rustfmt::skip]
const ALPHABET: &[&str] = &[
    "0", "1", "2", "9", ".", "-", "+", "x", "X", "*", "v", "V", "|", "||", " || ", ",", " ", "  ", "\t", "\n", "=", "!", ">", "<", "~", "^",
    ">=", "<=", "==", "=>", "=<", "!=", " - ", "-0", "rc", "00", "18446744073709551616", "9223372036854775807", "é", "٣", "a", "_", "(",
    "\"", "\u{a0}", "\u{b}",
];

fn number(dice: &mut Dice) -> String {
    match dice.below(40) {
        0 => "10".into(),
        1 => "18446744073709551615".into(),
        2 => "9223372036854775807".into(),
        3 => "01".into(),
        _ => dice.below(4).to_string(),
    }
}

fn pre(dice: &mut Dice) -> String {
    let from = if dice.chance(3) { BAD_PRE } else { PRE };
    dice.pick(from).into()
}

fn tail(dice: &mut Dice, pre_percent: usize) -> String {
    let mut text = String::new();
    if dice.chance(pre_percent) {
        text = format!("-{}", pre(dice));
    }
    if dice.chance(6) {
        text.push('+');
        text.push_str(dice.pick(BUILD));
    }
    text
}

fn masterminds_version(dice: &mut Dice) -> String {
    let wild = |dice: &mut Dice| dice.pick(&["x", "X", "*"]).to_owned();
    let mut text = String::from(if dice.chance(8) { "v" } else { "" });
    let parts = 1 + dice.below(3).max(dice.below(3));
    for part in 0..parts {
        if part > 0 {
            text.push('.');
        }
        let part = if dice.chance(8) { wild(dice) } else { number(dice) };
        text.push_str(&part);
    }
    text + &tail(dice, 20)
}

fn masterminds_range(dice: &mut Dice) -> String {
    const OPERATORS: &[&str] =
        &["", "", "=", "!=", ">", "<", ">=", "<=", "=>", "=<", "~", "~>", "^", "^", ">=", "<"];
    let mut text = String::new();
    for group in 0..1 + dice.below(3) * dice.below(2) {
        if group > 0 {
            text.push_str(dice.pick(&[" || ", "||", " ||", "|| "]));
        }
        if dice.chance(10) {
            text.push_str(&format!("{} - {}", masterminds_version(dice), masterminds_version(dice)));
            continue;
        }
        for term in 0..1 + dice.below(3) * dice.below(2) {
            if term > 0 {
                text.push_str(dice.pick(&[" ", ", ", ",", "  ", " , ", "\t"]));
            }
            text.push_str(dice.pick(OPERATORS));
            text.push_str(dice.pick(&["", "", "", " "]));
            text.push_str(&masterminds_version(dice));
        }
    }
    text
}

fn blang_version(dice: &mut Dice) -> String {
    let three = format!("{}.{}.{}", number(dice), number(dice), number(dice));
    match dice.below(16) {
        0 => format!("{}.x", number(dice)),
        1 => format!("{}.{}.x", number(dice), number(dice)),
        2 => format!("{}.x.x", number(dice)),
        3 => format!("{}.x.{}", number(dice), number(dice)),
        _ => three + &tail(dice, 20),
    }
}

fn blang_range(dice: &mut Dice) -> String {
    const OPERATORS: &[&str] = &["", "=", "==", "!", "!=", ">", "<", ">=", "<=", ">=", "<", ">=", "<"];
    let mut text = String::new();
    for group in 0..1 + dice.below(3) * dice.below(2) {
        if group > 0 {
            text.push_str(" || ");
        }
        for term in 0..1 + dice.below(3) * dice.below(2) {
            if term > 0 {
                text.push_str(dice.pick(&[" ", " ", "  "]));
            }
            text.push_str(dice.pick(OPERATORS));
            text.push_str(dice.pick(&["", "", "", "", " "]));
            text.push_str(&blang_version(dice));
        }
    }
    text
}

/// Changes a text in one to three places; gently: mostly digits.
fn mutate(dice: &mut Dice, text: &str, gentle: bool) -> String {
    let mut chars: Vec<String> = text.chars().map(String::from).collect();
    for _ in 0..1 + dice.below(3) {
        let digits: Vec<usize> =
            (0..chars.len()).filter(|&at| chars[at].bytes().all(|byte| byte.is_ascii_digit())).collect();
        match dice.below(if gentle { 20 } else { 10 }) {
            // mostly another digit: the range stays one
            0..=5 | 10.. if !digits.is_empty() => {
                let at = digits[dice.below(digits.len())];
                chars[at] = dice.below(10).to_string();
            }
            6 => {
                let at = dice.below(chars.len() + 1);
                chars.insert(at, dice.pick(ALPHABET).into());
            }
            7 if !chars.is_empty() => {
                let at = dice.below(chars.len());
                chars.remove(at);
            }
            8 if !chars.is_empty() => {
                let at = dice.below(chars.len());
                chars[at] = dice.pick(ALPHABET).into();
            }
            _ => {
                let again = chars.concat();
                chars.push(dice.pick(&[" ", " || ", ", "]).into());
                chars.push(again);
            }
        }
    }
    chars.concat()
}

/// A version near a number of the range, so that both answers are likely.
fn version_near(dice: &mut Dice, range: &str) -> String {
    let triples: Vec<Vec<u64>> = range
        .split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .filter(|part| part.starts_with(|c: char| c.is_ascii_digit()))
        .map(|part| part.split('.').take(3).filter_map(|number| number.parse().ok()).collect())
        .collect();
    let mut numbers = [0u64; 3];
    if triples.is_empty() || dice.chance(15) {
        numbers = [0; 3].map(|_| dice.next() % 4);
    } else {
        let near = &triples[dice.below(triples.len())];
        for (number, part) in numbers.iter_mut().zip(near) {
            *number = *part;
        }
        let at = dice.below(3);
        match dice.below(4) {
            0 => numbers[at] = numbers[at].wrapping_add(1),
            1 => numbers[at] = numbers[at].saturating_sub(1),
            2 => numbers[2] = numbers[2].wrapping_add(dice.next() % 5),
            _ => {}
        }
    }
    let [major, minor, patch] = numbers;
    format!("{major}.{minor}.{patch}{}", tail(dice, 15))
}

/// A question, and whether its range is a real one that was changed.
pub(crate) fn question(dice: &mut Dice, dialect: &'static str, real: &[&str]) -> (Question, bool) {
    let mutated = dice.chance(40);
    let mut range = if mutated {
        let from = if dialect == "blang" || dice.chance(50) { dice.pick(real) } else { dice.pick(WRITTEN) };
        mutate(dice, from, dialect == "blang")
    } else if dialect == "blang" {
        blang_range(dice)
    } else {
        masterminds_range(dice)
    };
    if !mutated && dice.chance(20) {
        range = mutate(dice, &range, dialect == "blang");
    }
    if dice.chance(1) {
        // limits: 512 bytes, 32 groups
        let sep = dice.pick(&["||", " ", " || "]);
        range = vec![range; 2 + dice.below(40)].join(sep);
    }
    let mut version = version_near(dice, &range);
    if dialect == "masterminds" && dice.chance(10) {
        version = masterminds_version(dice);
    } else if dice.chance(2) {
        version = mutate(dice, &version, false);
    }
    (Question { dialect, range, version }, mutated)
}
