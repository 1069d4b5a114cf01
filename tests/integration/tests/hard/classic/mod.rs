//! The same faults for OLM Classic's controllers, with a Subscription, its InstallPlans and ClusterServiceVersions.

mod catalogs;
mod kills;
mod namespaces;
mod objects;
mod site;
mod state;
mod writers;
