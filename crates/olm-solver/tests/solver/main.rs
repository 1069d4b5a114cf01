//! The rules of OLM Classic as tables, recorded answers of it, and hostile input.

mod common;
mod dependencies;
mod hostile;
mod recorded;
mod upgrade_graph;
