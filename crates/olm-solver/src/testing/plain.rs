//! The choice without a SAT solver: the search of the decision page with its steps back, as a second opinion.

use std::collections::VecDeque;

use crate::reach::{Id, ListId, Reach};
use crate::solve::Selection;

/// Alternatives after which a search ends without an answer.
const MAX_TRIES: u32 = 20_000;

struct OutOfTries;

#[derive(Clone)]
struct State<'a> {
    queue: VecDeque<ListId>,
    chosen: Vec<Id>,
    selection: Selection<'a>,
}

impl State<'_> {
    /// Takes a candidate, and asks for its dependencies; false if it contradicts what was taken.
    fn take(&mut self, reach: &Reach<'_>, id: Id) -> bool {
        let is_taken = self.selection.take(id);
        if is_taken {
            self.chosen.push(id);
            self.queue.extend(reach.candidates[id].needs.iter().map(|need| need.list));
        }
        is_taken
    }
}

/// What is chosen, in order; `Some(None)` if there is no solution, `None` if the search is too long.
pub(crate) fn choose(reach: &Reach<'_>) -> Option<Option<Vec<Id>>> {
    let mut state = State { queue: VecDeque::new(), chosen: Vec::new(), selection: Selection::new(reach) };
    if !reach.unreferenced.iter().all(|&id| state.take(reach, id)) {
        return Some(None);
    }
    for subscribed in &reach.subscriptions {
        match subscribed.alternatives {
            Ok(list) => state.queue.push_back(list),
            Err(_) => return Some(None),
        }
    }
    search(reach, state, &mut 0).ok()
}

fn search(reach: &Reach<'_>, mut state: State<'_>, tries: &mut u32) -> Result<Option<Vec<Id>>, OutOfTries> {
    while let Some(list) = state.queue.pop_front() {
        let list = &reach.lists[list];
        if list.iter().any(|id| state.chosen.contains(id)) {
            continue;
        }
        for &id in list {
            *tries += 1;
            if *tries > MAX_TRIES {
                return Err(OutOfTries);
            }
            let mut next = state.clone();
            if next.take(reach, id)
                && let Some(found) = search(reach, next, tries)?
            {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    Ok(Some(state.chosen))
}
