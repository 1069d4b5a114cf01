//! Namespaces of OLM Classic: catalogs, Subscriptions and CSVs, with the constraints and CEL rules in them.

use olm_solver::testing::Case;
use olm_solver::{Limits, solve};

use crate::texts;

/// A namespace as JSON. The same question has the same answer within limits, and an error has a text.
pub(crate) fn solver(input: &[u8]) {
    let [text] = texts::<1>(input);
    let Ok(case) = Case::parse(&text) else { return };
    let limits = Limits { steps: 200_000, decisions: 20_000 };
    let one = solve(&case.namespace, limits);
    assert_eq!(one, solve(&case.namespace, limits));
    if let Err(error) = one {
        assert!(!error.to_string().is_empty());
    }
}
