//! Install plans: steps and their order, approval, phases and retries.
//!
//! [`install_plan`] makes a plan of what the solver chose. [`next_phase`] moves it: while it is Installing, the controller runs
//! [`decide_step`] for each step in order, carries the action out, and calls it again with what the steps came to. [`decide_unpack`] does
//! the same for bundles that are images. A definition that exists is compared by [`update_crd`], its objects by [`check_object`].
//! Rules: classic-apis §4 rows 9 to 11, §5.

mod approval;
mod crd;
mod make;
mod phase;
mod rbac;
mod reference;
mod step;
#[cfg(test)]
mod tests;
mod unpack;

pub use approval::Approval;
pub use crd::{CrdUpdate, CrdUpdateError, check_object, judged_versions, object_judge, update_crd};
pub use make::{PROPERTIES_ANNOTATION, PlanError, PlanRequest, PlannedBundle, bundle_objects, install_plan};
pub use phase::{
    AccountError, PLAN_ROWS, PlanDecision, PlanNext, PlanObserved, PlanPhase, PlanRow, PlanRule, PlanRun,
    REQUEUE, RETRY_WINDOW, WAITING_EVENT, failed_wait, next_phase, plan_account, plan_wait,
};
pub use reference::{MAX_INLINE, StepManifest, StepReference, step_object, unpacked_name};
pub use step::{
    Handling, KINDS, StepAction, StepError, StepKind, StepObserved, StepStatus, decide_step,
    has_owner_labels, step_kind, warning_event,
};
pub use unpack::{
    SettingError, UNPACK_ROWS, UnpackDecision, UnpackNext, UnpackObserved, UnpackRow, UnpackRule,
    UnpackSettings, decide_unpack, reported_unpack,
};
