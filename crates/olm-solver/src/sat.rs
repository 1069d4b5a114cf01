//! The SAT solver behind the rules: clauses, at-most-one, and an answer within a number of decisions.

use std::cell::Cell;

use batsat::{Callbacks, Lit, Solver, SolverInterface, lbool};

/// Up to this size, at most one of a set is a clause for every pair.
const PAIRWISE: usize = 5;

pub(crate) struct Sat {
    solver: Solver<Budget>,
    /// Reused for every clause.
    clause: Vec<Lit>,
    /// Whether the last answer was yes.
    has_model: bool,
}

/// The solver makes more decisions than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfBudget;

struct Budget {
    left: Cell<u64>,
}

impl Callbacks for Budget {
    /// Called at every decision.
    fn stop(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left == 0
    }
}

impl Sat {
    pub(crate) fn new(decisions: u64) -> Self {
        let budget = Budget { left: Cell::new(decisions) };
        Self {
            solver: Solver::new(batsat::SolverOpts::default(), budget),
            clause: Vec::new(),
            has_model: false,
        }
    }

    pub(crate) fn new_literal(&mut self) -> Lit {
        // what nothing asks for stays out
        Lit::new(self.solver.new_var(lbool::FALSE, true), true)
    }

    /// A literal that follows from others, and is false otherwise: the solver decides nothing about it.
    pub(crate) fn new_auxiliary(&mut self) -> Lit {
        Lit::new(self.solver.new_var(lbool::FALSE, false), true)
    }

    /// At least one of them.
    pub(crate) fn add(&mut self, literals: impl IntoIterator<Item = Lit>) {
        self.clause.clear();
        self.clause.extend(literals);
        self.solver.add_clause_reuse(&mut self.clause);
    }

    /// At most one of them, if `active`; in linear space.
    pub(crate) fn add_at_most_one(&mut self, active: Lit, literals: &[Lit]) {
        if literals.len() <= PAIRWISE {
            for (at, &one) in literals.iter().enumerate() {
                literals[..at].iter().for_each(|&other| self.add([!active, !one, !other]));
            }
            return;
        }
        let mut before: Option<Lit> = None;
        for &literal in literals {
            // true as soon as one of those up to here is
            let so_far = self.new_auxiliary();
            self.add([!literal, so_far]);
            if let Some(before) = before {
                self.add([!before, so_far]);
                self.add([!active, !before, !literal]);
            }
            before = Some(so_far);
        }
    }

    /// Whether all clauses can be met together with these literals.
    pub(crate) fn solve(&mut self, assumptions: &[Lit]) -> Result<bool, OutOfBudget> {
        let answer = self.solver.solve_limited(assumptions);
        self.has_model = answer == lbool::TRUE;
        if answer == lbool::UNDEF {
            return Err(OutOfBudget);
        }
        Ok(self.has_model)
    }

    /// Whether the last answer was yes, and the literal is true in it.
    pub(crate) fn is_true(&self, literal: Lit) -> bool {
        self.has_model && self.solver.value_lit(literal) == lbool::TRUE
    }

    /// Whether the clauses alone make the literal false.
    pub(crate) fn is_impossible(&self, literal: Lit) -> bool {
        self.solver.value_lvl_0(literal) == lbool::FALSE
    }

    /// After an answer that is no: whether the assumption has a part in it.
    pub(crate) fn is_to_blame(&self, assumption: Lit) -> bool {
        self.solver.unsat_core_contains_lit(!assumption)
    }
}
