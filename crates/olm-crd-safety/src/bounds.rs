//! The limits of a comparison, which ends early when it is cancelled, and when a schema or the findings are too large.

use std::cell::{Cell, RefCell};

use olm_core::Cancellation;

use crate::{Finding, Profile};

/// Bytes that the paths of one schema may take. A long name is in the path of each field below it.
const MAX_PATHS: usize = 8 << 20;
/// Bytes that the findings about one CRD may take. Each pair of versions may repeat them; what such a pair had before does not count.
const MAX_FINDINGS: usize = 4 << 20;
/// Bytes of a path or a finding without its text.
const ENTRY: usize = 64;
/// Characters of a path or a finding that a message has.
const MAX_EXAMPLE: usize = 100;

pub(crate) struct Bounds<'a> {
    pub(crate) profile: Profile,
    cancellation: &'a Cancellation,
    /// Of [`MAX_FINDINGS`].
    findings: Cell<usize>,
    problem: RefCell<Option<String>>,
}

impl<'a> Bounds<'a> {
    pub(crate) fn new(profile: Profile, cancellation: &'a Cancellation) -> Self {
        Self { profile, cancellation, findings: Cell::new(MAX_FINDINGS), problem: RefCell::default() }
    }

    pub(crate) fn cancellation(&self) -> &Cancellation {
        self.cancellation
    }

    /// Whether the comparison must end.
    pub(crate) fn is_over(&self) -> bool {
        self.cancellation.is_cancelled() || self.problem.borrow().is_some()
    }

    /// The error message, if something was too large.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }

    /// The limit of the paths of one schema.
    pub(crate) fn paths(&self) -> Paths<'_> {
        Paths { bounds: self, left: MAX_PATHS }
    }

    /// Whether the finding is within the limit.
    pub(crate) fn take(&self, finding: &Finding) -> bool {
        match self.findings.get().checked_sub(finding.size() + ENTRY) {
            Some(left) => self.findings.set(left),
            None => {
                let start: String = finding.to_string().chars().take(MAX_EXAMPLE).collect();
                self.stop(format!(
                    "the findings take more than {MAX_FINDINGS} bytes, the last is {start:?}; publish a CRD that differs less from the \
                     one in the cluster, and whose versions differ less"
                ));
            }
        }
        !self.is_over()
    }

    /// Findings within the limit that are dropped do not count.
    pub(crate) fn release<'f>(&self, findings: impl IntoIterator<Item = &'f Finding>) {
        let bytes: usize = findings.into_iter().map(|finding| finding.size() + ENTRY).sum();
        self.findings.set(self.findings.get() + bytes);
    }

    fn stop(&self, problem: String) {
        *self.problem.borrow_mut() = Some(problem);
    }
}

pub(crate) struct Paths<'a> {
    bounds: &'a Bounds<'a>,
    /// Of [`MAX_PATHS`].
    left: usize,
}

impl Paths<'_> {
    /// Whether `path` with this segment behind it is within the limit.
    pub(crate) fn take(&mut self, path: &str, segment: &str) -> bool {
        match self.left.checked_sub(path.len() + segment.len() + ENTRY) {
            Some(left) => self.left = left,
            None => {
                let start: String = path.chars().chain(segment.chars()).take(MAX_EXAMPLE).collect();
                self.bounds.stop(format!(
                    "the paths of the schema's fields take more than {MAX_PATHS} bytes, the last is {start:?}; publish a CRD with \
                     shorter names of fields or fewer levels"
                ));
            }
        }
        !self.bounds.is_over()
    }
}
