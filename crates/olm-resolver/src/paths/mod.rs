//! Ways through a package, under the rules of v1 and of OLM Classic: hop by hop until nothing more is offered.
//!
//! Rules: update-graph §2, §3, §11. v1 hops are made by `resolve` itself; nothing is decided a second time here.

mod classic;
mod walk;

pub use classic::{ClassicError, ClassicRequest, ClassicStep, classic_step};
pub use walk::{End, Hop, NotOffered, Path, PathQuery, RuleSet, Target, path, paths};
