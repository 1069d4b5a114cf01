//! Every command of the documentation, run as a reader would: a home without anything in it, no shared material, `kubectl` and
//! `kubectl-olm` in `PATH`, and a cluster on which nothing is installed yet.
//!
//! The blocks of a page run from the top to the end in one shell. `sh` must succeed; below each `$ command` of a
//! `console` block stands what it prints (`…` stands for anything); `yaml` that is whole objects is offered to the apiserver as a
//! dry run, unknown fields refused, and lies in the folder under the name that the line above gives it, as does `json`.
//!
//! Below `<!-- on another cluster -->` a block runs on a second empty cluster. A block that cannot run here has a mark in the line above it:
//! `<!-- not run: REASON; covered by make TARGET -->` (see `coverage`), or `<!-- run by CI step NAME -->`, which is looked up in
//! `.ci/run`. Commands within prose and blocks that do not run are
//! read: what they name (verbs, flags, targets, packages, tests, files) must exist.
//!
//! `UPDATE_DOCS=1` writes what commands print into the pages; `OLM_DOCS=how-to` runs README.md and pages with such a name only;
//! `OLM_RECORDINGS=DIR` records the commands and what they print, a file for each page.

mod coverage;
mod examples;
mod named;
mod page;
mod recording;
mod shell;
mod site;
mod walkthroughs;
