//! The invariant of one writer: no process writes while the lease names another one.

use std::time::Duration;

use olm_runtime::leader::Timing;

use crate::processes::THIEF;
use crate::{ApiServer, Verb, Write};

/// The holders of a lease.
#[derive(Default)]
pub struct LeaseHistory {
    /// The holder.
    pub leader: Option<String>,
    /// Since when it holds it.
    pub leads_since: Duration,
    /// The process that the lease was taken from, and when.
    deposed: Option<(String, Duration)>,
}

impl LeaseHistory {
    /// Takes a write of the lease in; `false` for another write.
    pub fn record(&mut self, lease: &str, write: &Write) -> bool {
        if write.resource != "leases" || write.name != lease {
            return false;
        }
        let holder = write.after.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let holder = holder.filter(|holder| !holder.is_empty()).map(str::to_owned);
        let before = std::mem::replace(&mut self.leader, holder);
        if self.leader != before {
            self.leads_since = write.at;
        }
        if self.leader.as_deref() == Some(THIEF) {
            if before.as_deref() != Some(THIEF) {
                self.deposed = before.map(|before| (before, write.at));
            }
        } else {
            self.deposed = None;
        }
        true
    }

    /// Checks a write of a process of the controllers.
    pub fn check(&self, write: &Write, server: &ApiServer) -> Result<(), String> {
        match self.leader.as_ref().filter(|leader| **leader != write.process) {
            // a request that is under way when the lease changes hands is executed all the same
            Some(leader) if write.sent >= self.leads_since && !self.has_not_noticed(write, server) => {
                Err(format!("{} writes, and {leader} leads", write.process))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether the lease was taken from the process that writes, and it could not know that when it sent the request.
    fn has_not_noticed(&self, write: &Write, server: &ApiServer) -> bool {
        let Some((_, at)) = self.deposed.as_ref().filter(|(process, _)| *process == write.process) else {
            return false;
        };
        let noticed = server.first_answer(&write.process, Verb::Get, "leases", *at);
        write.sent <= noticed.unwrap_or(Duration::MAX).min(*at + Timing::default().renew)
    }
}
