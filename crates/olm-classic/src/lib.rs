//! The decisions of OLM Classic: what each of its objects becomes next, and why.
//!
//! Pure: values in, values out. Objects are the types of `olm_api::classic`; no client, no clock, no order of events. A controller
//! observes the cluster, calls the function of the object's kind, carries out the actions that it returns, and writes the status.
//! Rules: the page classic-apis of the specification.

pub mod catalog_source;
pub mod csv;
pub mod install_plan;
pub mod operator;
pub mod operator_condition;
pub mod operator_group;
pub mod ownership;
pub mod packages;
pub mod subscription;
