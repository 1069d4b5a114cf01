//! The rules of OLM Classic as tables, recorded answers of it, and hostile input.
#![expect(clippy::print_stdout, reason = "the tables are printed")]

mod common;
mod dependencies;
mod hostile;
mod recorded;
mod report;
mod upgrade_graph;
