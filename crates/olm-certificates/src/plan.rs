//! The next step for one serving certificate. A pure state machine: the whole state is in the Secret and in
//! what callers trust (`caBundle`s, or the ConfigMap of the CA), so that every step can be repeated and another replica can
//! continue after any of them.
//!
//! ```text
//! nothing, or unusable --Issue--> serving
//! serving --Stage--> serving, next one waits   the next authority is published to callers too
//!         --Switch--> serving the next one     pods read it; callers trust both authorities
//!         --Drop--> serving                    callers trust one authority again
//! ```
//!
//! No step takes trust away that a pod still needs: pods that read their certificate only when they start serve with
//! the old one until they restart, so its authority stays trusted until it expires. Rule: decision 13.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::material::{
    self, Authority, CertificateError, Generation, Lifetime, authorities, authority_lifetime, bundle,
};

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Validity of what is issued.
    pub validity: SignedDuration,
    /// How long before its end a certificate is rotated, at most a third of its life.
    pub renew_before: SignedDuration,
    /// How long callers get to learn of a new authority before it is served, at most half of what is left.
    pub settle: SignedDuration,
}

impl Default for Timing {
    /// 730 days, as cert-manager is asked for (rule: bundle-rendering §10); rotated 30 days before the end, so that most pods
    /// restart within the overlap; five minutes for apiservers to take in a changed `caBundle`.
    fn default() -> Self {
        Self {
            validity: SignedDuration::from_hours(730 * 24),
            renew_before: SignedDuration::from_hours(30 * 24),
            settle: SignedDuration::from_mins(5),
        }
    }
}

/// What the Secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateState {
    /// What pods serve with.
    pub current: Generation,
    /// What they will serve with.
    pub next: Option<Generation>,
    /// Authorities of what they served with before, as PEM.
    pub previous: String,
}

impl CertificateState {
    /// The authorities that callers must trust.
    #[must_use]
    pub fn trust(&self) -> String {
        let next = self.next.as_ref().map(|next| next.authority.as_str());
        bundle([self.current.authority.as_str()].into_iter().chain(next).chain([self.previous.as_str()]))
    }
}

/// Why a certificate that can be served with is to be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Its end is near.
    Ends(Timestamp),
    /// It is valid only later, also for clocks that are late.
    Begins(Timestamp),
    /// The Service has other names.
    Names(String),
    /// What was staged cannot be served with.
    Next(CertificateError),
}

/// The times of a certificate that can be served with, in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When it was issued, if it is one of ours.
    pub issued: Timestamp,
    /// When its rotation begins.
    pub rotate_at: Timestamp,
}

/// The next write to the Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// None: it is as it should be.
    Nothing,
    /// A fresh certificate without delay; callers still trust `keep`, which pods may still serve with.
    Issue {
        /// What is wrong with what there is.
        fault: CertificateError,
        /// PEM.
        keep: String,
    },
    /// A fresh certificate beside the present one.
    Stage(Due),
    /// The staged certificate takes the place of the present one.
    Switch,
    /// Authorities that no pod serves with any more are removed.
    Drop,
}

/// The next write, and when to plan again if nothing changes meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The write.
    pub step: Step,
    /// When the next one is due.
    pub recheck_at: Option<Timestamp>,
}

impl Plan {
    fn now(step: Step) -> Self {
        Self { step, recheck_at: None }
    }
}

/// Decides. `trusted` is what each of the callers that there are trusts (PEM), `names` the names that the server has.
#[must_use]
pub fn plan(
    stored: Option<&CertificateState>,
    names: &[String],
    trusted: &[&str],
    now: Timestamp,
    timing: &Timing,
) -> Plan {
    let Some(stored) = stored else {
        return Plan::now(Step::Issue {
            fault: CertificateError::Missing,
            keep: still_valid(trusted.iter().copied(), now),
        });
    };
    let next = stored.next.as_ref().map(|next| material::check(next, names));
    let (lifetime, renamed) = match usable(&stored.current, names, now) {
        Ok(found) => found,
        // a staged one is known to callers already, or will be as soon as any other
        Err(_) if matches!(next, Some(Ok(lifetime)) if now < lifetime.not_after) => {
            return Plan::now(Step::Switch);
        }
        Err(fault) => {
            let known = [stored.current.authority.as_str(), &stored.previous];
            let keep = still_valid(known.into_iter().chain(trusted.iter().copied()), now);
            return Plan::now(Step::Issue { fault, keep });
        }
    };

    let (kept, expired) = split(&stored.previous, lifetime, now, timing);
    if expired {
        return Plan::now(Step::Drop);
    }
    let drop = kept.iter().map(|one| drop_at(one, lifetime, timing)).min();

    let renewal = renew_at(lifetime, timing);
    match (next, &stored.next) {
        (Some(Ok(next_lifetime)), Some(next)) => {
            let switch = switch_at(next_lifetime.issued(), lifetime, timing);
            let known = trusted.iter().all(|trusted| trusted.contains(next.authority.trim()));
            if known && now >= switch {
                return Plan::now(Step::Switch);
            }
            // callers that do not know it yet wake the issuer when they do; the end of the present one is the last moment
            let look = if known { switch } else { lifetime.not_after };
            Plan { step: Step::Nothing, recheck_at: Some(earliest(look, drop)) }
        }
        (Some(Err(fault)), _) => Plan::now(Step::Stage(Due::Next(fault))),
        (_, _) if renamed.is_some() => Plan::now(Step::Stage(Due::Names(renamed.unwrap_or_default()))),
        (_, _) if now >= renewal => Plan::now(Step::Stage(Due::Ends(lifetime.not_after))),
        (_, _) if now < lifetime.not_before => Plan::now(Step::Stage(Due::Begins(lifetime.not_before))),
        (_, _) => Plan { step: Step::Nothing, recheck_at: Some(earliest(renewal, drop)) },
    }
}

/// The times of a certificate; `None` for one that cannot be served with.
#[must_use]
pub fn schedule(current: &Generation, timing: &Timing) -> Option<Schedule> {
    let lifetime = material::check(current, &[]).ok()?;
    let rotate_at = renew_at(lifetime, timing);
    let rotate_at = Timestamp::from_second(rotate_at.as_second()).unwrap_or(rotate_at);
    Some(Schedule { issued: lifetime.issued(), rotate_at })
}

/// The Secret after a step. `fresh` is what was issued for [`Step::Issue`] and [`Step::Stage`].
#[must_use]
pub fn after(
    step: &Step,
    stored: Option<CertificateState>,
    fresh: Option<Generation>,
    now: Timestamp,
    timing: &Timing,
) -> Option<CertificateState> {
    match (step, stored, fresh) {
        (Step::Nothing, stored, _) => stored,
        (Step::Issue { keep, .. }, _, Some(fresh)) => {
            Some(CertificateState { current: fresh, next: None, previous: keep.clone() })
        }
        (Step::Stage(_), Some(stored), Some(fresh)) => Some(CertificateState { next: Some(fresh), ..stored }),
        (Step::Switch, Some(CertificateState { current, next: Some(next), previous }), _) => {
            let previous = still_valid([current.authority.as_str(), &previous].into_iter(), now);
            Some(CertificateState { current: next, next: None, previous })
        }
        (Step::Drop, Some(stored), _) => {
            let lifetime = authority_lifetime(&stored.current.authority)?;
            let (kept, _) = split(&stored.previous, lifetime, now, timing);
            let previous = bundle(kept.iter().map(|one| one.pem.as_str()));
            Some(CertificateState { previous, ..stored })
        }
        (Step::Issue { .. } | Step::Stage(_) | Step::Switch | Step::Drop, stored, _) => stored,
    }
}

/// The lifetime of a certificate that can be served with now, and a name that it lacks.
fn usable(
    current: &Generation,
    names: &[String],
    now: Timestamp,
) -> Result<(Lifetime, Option<String>), CertificateError> {
    let (lifetime, renamed) = match material::check(current, names) {
        Ok(lifetime) => (lifetime, None),
        // pods still serve under the names that it has
        Err(CertificateError::OtherName(name)) => (material::check(current, &[])?, Some(name)),
        Err(fault) => return Err(fault),
    };
    if now > lifetime.not_after {
        Err(CertificateError::Expired(lifetime.not_after))
    } else {
        Ok((lifetime, renamed))
    }
}

fn renew_at(lifetime: Lifetime, timing: &Timing) -> Timestamp {
    let whole = lifetime.not_after.duration_since(lifetime.not_before);
    back(lifetime.not_after, timing.renew_before.min(whole / 3))
}

/// When what was staged at `staged` may be served with.
fn switch_at(staged: Timestamp, current: Lifetime, timing: &Timing) -> Timestamp {
    let left = current.not_after.duration_since(staged).max(SignedDuration::ZERO);
    back(staged, -timing.settle.min(left / 2))
}

/// Until when an authority of former times is trusted: no pod serves with what it signed after that.
fn drop_at(authority: &Authority, current: Lifetime, timing: &Timing) -> Timestamp {
    authority.not_after.min(back(current.issued(), -(timing.renew_before + timing.settle)))
}

/// Former authorities that are still to be trusted, and whether there are others.
fn split(previous: &str, current: Lifetime, now: Timestamp, timing: &Timing) -> (Vec<Authority>, bool) {
    let all = authorities(previous);
    let count = all.len();
    let kept: Vec<_> = all.into_iter().filter(|one| now < drop_at(one, current, timing)).collect();
    let others = kept.len() < count || (count == 0 && !previous.trim().is_empty());
    (kept, others)
}

/// The authorities in these texts that have not expired, at most [`MAX_PREVIOUS`].
fn still_valid<'a>(texts: impl Iterator<Item = &'a str>, now: Timestamp) -> String {
    let all: Vec<Authority> = texts.flat_map(authorities).filter(|one| now < one.not_after).collect();
    bundle(all.iter().take(MAX_PREVIOUS).map(|one| one.pem.as_str()))
}

/// More former authorities than that are dropped, or edits of the Secret could make them grow.
const MAX_PREVIOUS: usize = 8;

fn back(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_sub(by).unwrap_or(time)
}

fn earliest(time: Timestamp, other: Option<Timestamp>) -> Timestamp {
    other.map_or(time, |other| other.min(time))
}

#[cfg(test)]
mod tests;
