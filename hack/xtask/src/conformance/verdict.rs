//! The verdicts of the conformance tables.
//!
//! A verdict is the last cell of a row. It begins with one of the words below and may continue with a reason:
//! `same`, `better: kept in memory`, `better (decision 14)`, `same [inst-nons]; watched`. `gap` continues with what a user
//! would notice, always as `gap: you see …`; `out of scope` and `not applicable` continue with the reason.

/// The name of the last column of a conformance table.
const COLUMN: &str = "verdict";
/// What every gap begins with.
const NOTICED: &str = "gap: you see ";

/// How olm-rs compares with the Go reference in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Conformance {
    /// Equal for every client.
    Same,
    /// Different, and the row has the reason why that is an improvement.
    Better,
    /// A user can meet the difference and would want it closed.
    Gap,
    /// Belongs to another product or mode, on purpose.
    OutOfScope,
    /// Cannot happen here: unreachable, or about a part that does not exist.
    NotApplicable,
}

impl Conformance {
    pub(super) const ALL: [Self; 5] =
        [Self::Same, Self::Better, Self::Gap, Self::OutOfScope, Self::NotApplicable];

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Gap => "gap",
            Self::OutOfScope => "out of scope",
            Self::NotApplicable => "not applicable",
        }
    }

    /// Does a row with this verdict claim a behaviour that a test must show?
    pub(super) fn needs_test(self) -> bool {
        matches!(self, Self::Same | Self::Better)
    }

    /// Reads the last cell of a row, which begins with a verdict and has what that verdict needs.
    pub(super) fn parse(cell: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find_map(|verdict| {
            let rest = cell.strip_prefix(verdict.words())?;
            (rest.is_empty() || [":", ";", " (", " ["].iter().any(|next| rest.starts_with(next)))
                .then_some((verdict, rest))
        });
        let Some((verdict, rest)) = found else {
            let all: Vec<&str> = Self::ALL.into_iter().map(Self::words).collect();
            return Err(format!("the verdict `{cell}` begins with none of: {}", all.join(", ")));
        };
        match verdict {
            Self::Gap if cell.strip_prefix(NOTICED).is_none_or(|noticed| noticed.trim().is_empty()) => {
                Err(format!("`{cell}` does not begin with `{NOTICED}`, followed by what a user would notice"))
            }
            Self::OutOfScope | Self::NotApplicable
                if rest.strip_prefix(": ").is_none_or(|reason| reason.trim().is_empty()) =>
            {
                Err(format!("`{cell}` lacks its reason: write `{}: …`", verdict.words()))
            }
            _ => Ok(verdict),
        }
    }
}

/// Every row of the conformance tables of a page: index of the line, the line and its last cell.
pub(super) fn rows(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut header = None;
    text.lines().enumerate().filter_map(move |(number, line)| {
        let Some(cell) = last_cell(line) else {
            header = None;
            return None;
        };
        let in_table = *header.get_or_insert(cell == COLUMN);
        (in_table && cell != COLUMN && !cell.starts_with("---")).then_some((number, line, cell))
    })
}

/// The last cell of a row of a table, without what makes it bold.
fn last_cell(line: &str) -> Option<&str> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    if row.chars().all(|c| "-:| ".contains(c)) {
        return Some("---");
    }
    Some(row.rsplit(" | ").next()?.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_parse() {
        for (cell, want) in [
            ("same", Ok(Conformance::Same)),
            ("same; watched", Ok(Conformance::Same)),
            ("same [inst-nons]; watched", Ok(Conformance::Same)),
            ("better (decision 14): no webhook", Ok(Conformance::Better)),
            ("better: kept", Ok(Conformance::Better)),
            ("gap: you see no event", Ok(Conformance::Gap)),
            ("out of scope: another product", Ok(Conformance::OutOfScope)),
            ("not applicable: no such step", Ok(Conformance::NotApplicable)),
            ("", Err("begins with none of: same, better, gap, out of scope, not applicable")),
            ("missing: no time", Err("begins with none of")),
            ("yes", Err("begins with none of")),
            ("sameness", Err("begins with none of")),
            ("Same", Err("begins with none of")),
            ("**same**", Err("begins with none of")),
            ("better in time", Err("begins with none of")),
            ("gap", Err("what a user would notice")),
            ("gap: no event", Err("what a user would notice")),
            ("gap: you see ", Err("what a user would notice")),
            ("out of scope", Err("write `out of scope: …`")),
            ("not applicable: ", Err("write `not applicable: …`")),
            ("not applicable (decision 1)", Err("write `not applicable: …`")),
        ] {
            match (Conformance::parse(cell), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{cell:?}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{cell:?}: {got}"),
                (got, want) => panic!("{cell:?}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn verdict_cells_are_those_of_conformance_tables() {
        let page = "| § | test | verdict |\n|---|:---:|---|\n| 1 | a \\| b | same |\n| 2 | | gap |\n\n\
                    | row | failed |\n|---|---|\n| 1 | better |\n\n\
                    | § | verdict |\n|---|---|\n| 3 | |\nprose\n| 4 | same |\n";
        let cells: Vec<_> = rows(page).map(|(at, _, cell)| (at, cell)).collect();
        assert_eq!(cells, [(2, "same"), (3, "gap"), (11, "")]);
    }
}
