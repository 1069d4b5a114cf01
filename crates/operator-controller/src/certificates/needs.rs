//! Which certificates the revisions of one extension need, told from their content. Pure.
//!
//! Several revisions can be in force at a time: while one replaces another, what either needs is kept. A Secret that some
//! revision has another provider issue is left to that provider.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::{CaTarget, WebhookCertificate, called_services, certificates_to_issue, mounted_secrets};
use olm_core::Object;

/// Namespace and name of a Secret.
pub type Place = (String, String);

/// What the content of one revision says about certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// What we are to issue.
    pub issue: Vec<WebhookCertificate>,
    /// Secrets that its pods mount, whoever fills them.
    pub mounted: BTreeSet<Place>,
    /// Its CustomResourceDefinitions, and whether a webhook converts them.
    pub crds: BTreeMap<String, bool>,
}

impl Content {
    /// Reads objects as they are in a revision.
    #[must_use]
    pub fn of(objects: &[Object]) -> Self {
        let crds = objects.iter().filter(|object| object.kind() == "CustomResourceDefinition");
        Self {
            issue: certificates_to_issue(objects),
            mounted: mounted_secrets(objects).into_keys().collect(),
            crds: crds.map(|crd| (crd.name().to_owned(), !called_services(crd).is_empty())).collect(),
        }
    }
}

/// What the revisions in force need together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Certificates by the Secret that holds them.
    pub issue: BTreeMap<Place, WebhookCertificate>,
    /// Secrets that pods mount: not to be deleted.
    pub mounted: BTreeSet<Place>,
    /// CustomResourceDefinitions that the newest revision converts no more: a `caBundle` of ours would make the
    /// apiserver refuse the new definition.
    pub unconverted: BTreeSet<String>,
}

impl Needs {
    /// Joins what revisions say, given oldest first.
    #[must_use]
    pub fn of(revisions: &[&Content]) -> Self {
        let mut needs = Self::default();
        for content in revisions {
            needs.mounted.extend(content.mounted.iter().cloned());
            for certificate in &content.issue {
                let place = (certificate.namespace.clone(), certificate.secret.clone());
                let contested = revisions.iter().any(|other| {
                    other.mounted.contains(&place)
                        && !other.issue.iter().any(|one| one.namespace == place.0 && one.secret == place.1)
                });
                if contested {
                    continue;
                }
                let known = needs.issue.entry(place).or_insert_with(|| certificate.clone());
                known.ca_targets.extend(certificate.ca_targets.iter().cloned());
                known.ca_targets.sort();
                known.ca_targets.dedup();
            }
            for (name, converted) in &content.crds {
                if *converted {
                    needs.unconverted.remove(name);
                } else {
                    needs.unconverted.insert(name.clone());
                }
            }
        }
        for certificate in needs.issue.values_mut() {
            certificate.ca_targets.retain(|target| match target {
                CaTarget::CustomResourceDefinition(name) => !needs.unconverted.contains(name),
                CaTarget::MutatingWebhookConfiguration(_) | CaTarget::ValidatingWebhookConfiguration(_) => {
                    true
                }
            });
        }
        needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(secret: &str, targets: &[CaTarget]) -> WebhookCertificate {
        WebhookCertificate {
            deployment: "d".to_owned(),
            namespace: "n".to_owned(),
            service: "s".to_owned(),
            secret: secret.to_owned(),
            dns_names: vec!["s.n".to_owned()],
            ca_targets: targets.to_vec(),
        }
    }

    fn place(secret: &str) -> Place {
        ("n".to_owned(), secret.to_owned())
    }

    fn content(issue: &[WebhookCertificate], mounted: &[&str], crds: &[(&str, bool)]) -> Content {
        Content {
            issue: issue.to_vec(),
            mounted: mounted.iter().map(|secret| place(secret)).collect(),
            crds: crds.iter().map(|(name, converted)| ((*name).to_owned(), *converted)).collect(),
        }
    }

    fn crd(name: &str) -> CaTarget {
        CaTarget::CustomResourceDefinition(name.to_owned())
    }

    fn hook(name: &str) -> CaTarget {
        CaTarget::ValidatingWebhookConfiguration(name.to_owned())
    }

    #[test]
    fn revisions_in_force_are_joined() {
        let old = content(&[certificate("a", &[hook("x"), crd("c")])], &["a"], &[("c", true)]);
        let new = content(
            &[certificate("a", &[hook("y")]), certificate("b", &[hook("z")])],
            &["a", "b"],
            &[("c", false)],
        );
        let needs = Needs::of(&[&old, &new]);
        let targets: Vec<_> =
            needs.issue.values().map(|one| (one.secret.as_str(), one.ca_targets.clone())).collect();
        assert_eq!(targets, [("a", vec![hook("x"), hook("y")]), ("b", vec![hook("z")])]);
        assert_eq!(needs.unconverted, BTreeSet::from(["c".to_owned()]), "the newest decides");
        assert_eq!(needs.mounted.len(), 2);
        let back = Needs::of(&[&new, &old]);
        assert!(back.unconverted.is_empty());
        assert_eq!(back.issue[&place("a")].ca_targets, [crd("c"), hook("x"), hook("y")]);
    }

    #[test]
    fn another_provider_is_not_disturbed() {
        let ours = content(&[certificate("a", &[hook("x")])], &["a"], &[]);
        let theirs = content(&[], &["a"], &[]);
        for order in [[&ours, &theirs], [&theirs, &ours]] {
            let needs = Needs::of(&order);
            assert!(needs.issue.is_empty() && needs.mounted.contains(&place("a")));
        }
        assert_eq!(Needs::of(&[]), Needs::default());
    }
}
