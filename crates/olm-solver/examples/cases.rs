//! Answers cases from standard input, one JSON object a line, in the format of `olm_solver::testing`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::io::BufRead;

use olm_solver::testing::{Case, render_answer};
use olm_solver::{Limits, solve};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let case = Case::parse(&line?)?;
        println!("{}", render_answer(&case.id, &solve(&case.namespace, Limits::default())));
    }
    Ok(())
}
