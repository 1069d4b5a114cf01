//! The revisions of one extension: which number is next, which old ones may go, which are superseded.
//!
//! Rule: revisions §4.3, §4.5 and §10; decision 9.

/// Archived revisions that are kept behind a new one, at most.
pub const MAX_ARCHIVED: usize = 5;

/// What is to be known of one revision of an extension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevisionFacts {
    pub name: String,
    pub number: i64,
    /// Archived or about to be, no longer enforced.
    pub archived: bool,
    /// It rolled out completely at least once.
    pub succeeded: bool,
}

/// The number of the next revision: one more than the latest, 1 when there is none.
pub fn next_number(revisions: &[RevisionFacts]) -> i64 {
    revisions.iter().map(|revision| revision.number).max().unwrap_or(0).saturating_add(1)
}

/// The revisions to delete before a new one is created: in ascending order all but the newest five, if they are
/// archived.
pub fn expired(revisions: &[RevisionFacts]) -> Vec<&str> {
    let mut sorted: Vec<&RevisionFacts> = revisions.iter().collect();
    sorted.sort_by_key(|revision| revision.number);
    let old = sorted.len().saturating_sub(MAX_ARCHIVED);
    sorted
        .into_iter()
        .take(old)
        .filter(|revision| revision.archived)
        .map(|revision| revision.name.as_str())
        .collect()
}

/// The revisions that `complete` leaves behind once all its objects are in place: every lower-numbered one that is not
/// archived yet, ascending.
pub fn outdated_by(complete: i64, siblings: &[RevisionFacts]) -> Vec<&str> {
    let mut old: Vec<&RevisionFacts> =
        siblings.iter().filter(|sibling| !sibling.archived && sibling.number < complete).collect();
    old.sort_by_key(|sibling| sibling.number);
    old.into_iter().map(|sibling| sibling.name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revisions(states: &[(i64, bool, bool)]) -> Vec<RevisionFacts> {
        states
            .iter()
            .map(|&(number, archived, succeeded)| RevisionFacts {
                name: format!("e-{number}"),
                number,
                archived,
                succeeded,
            })
            .collect()
    }

    #[test]
    fn history_numbers_follow_the_latest() {
        assert_eq!(next_number(&[]), 1);
        assert_eq!(next_number(&revisions(&[(7, false, true), (3, true, true)])), 8);
    }

    #[test]
    fn history_keeps_five_archived_and_all_active_revisions() {
        let archived = |numbers: std::ops::RangeInclusive<i64>| -> Vec<(i64, bool, bool)> {
            numbers.map(|number| (number, true, true)).collect()
        };
        assert_eq!(expired(&revisions(&archived(1..=5))), Vec::<&str>::new());
        assert_eq!(expired(&revisions(&archived(1..=7))), ["e-1", "e-2"]);
        let mut some = archived(1..=7);
        some[0].1 = false;
        some.reverse();
        assert_eq!(expired(&revisions(&some)), ["e-2"]);
    }

    #[test]
    fn history_complete_revision_outdates_lower_ones_only() {
        let siblings = revisions(&[(4, false, false), (2, false, false), (1, false, true), (0, true, true)]);
        assert_eq!(outdated_by(3, &siblings), ["e-1", "e-2"]);
        assert_eq!(outdated_by(1, &siblings), Vec::<&str>::new());
    }
}
