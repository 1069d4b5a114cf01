//! The certificates that the revisions of one extension need, read from their content. Pure.
//!
//! Several revisions can be in force at a time: while one replaces another, what either needs is kept. A Secret that some
//! revision has another provider issue is left to that provider.

use std::collections::{BTreeMap, BTreeSet};

use olm_bundle::{CaTarget, WebhookCertificate, called_services, certificates_to_issue, mounted_secrets};
use olm_core::Object;

/// Namespace and name of a Secret.
pub type SecretRef = (String, String);

/// The certificates that the content of one revision needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    /// What the built-in issuer is to issue.
    pub issue: Vec<WebhookCertificate>,
    /// Secrets that its pods mount, of any provider.
    pub mounted: BTreeSet<SecretRef>,
    /// Its CustomResourceDefinitions, and whether a webhook converts them.
    pub crds: BTreeMap<String, bool>,
}

impl Content {
    /// Reads objects as they are in a revision.
    #[must_use]
    pub(crate) fn from_objects(objects: &[Object]) -> Self {
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
    pub issue: BTreeMap<SecretRef, WebhookCertificate>,
    /// Secrets that pods mount: not to be deleted.
    pub mounted: BTreeSet<SecretRef>,
    /// CustomResourceDefinitions that the newest revision converts no more: a `caBundle` would make the
    /// apiserver refuse the new definition.
    pub unconverted: BTreeSet<String>,
}

impl Needs {
    /// Joins the needs of revisions, oldest first.
    #[must_use]
    pub(crate) fn from_revisions(revisions: &[&Content]) -> Self {
        let mut needs = Self::default();
        for content in revisions {
            needs.mounted.extend(content.mounted.iter().cloned());
            for certificate in &content.issue {
                let secret = (certificate.namespace.clone(), certificate.secret.clone());
                let contested = revisions.iter().any(|other| {
                    other.mounted.contains(&secret)
                        && !other.issue.iter().any(|one| one.namespace == secret.0 && one.secret == secret.1)
                });
                if contested {
                    continue;
                }
                let joined = needs.issue.entry(secret).or_insert_with(|| certificate.clone());
                joined.ca_targets.extend(certificate.ca_targets.iter().cloned());
                joined.ca_targets.sort();
                joined.ca_targets.dedup();
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

    fn secret_ref(secret: &str) -> SecretRef {
        ("n".to_owned(), secret.to_owned())
    }

    fn content(issue: &[WebhookCertificate], mounted: &[&str], crds: &[(&str, bool)]) -> Content {
        Content {
            issue: issue.to_vec(),
            mounted: mounted.iter().map(|secret| secret_ref(secret)).collect(),
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
    fn needs_of_revisions_in_force_are_joined() {
        let old = content(&[certificate("a", &[hook("x"), crd("c")])], &["a"], &[("c", true)]);
        let new = content(
            &[certificate("a", &[hook("y")]), certificate("b", &[hook("z")])],
            &["a", "b"],
            &[("c", false)],
        );
        let needs = Needs::from_revisions(&[&old, &new]);
        let targets: Vec<_> =
            needs.issue.values().map(|one| (one.secret.as_str(), one.ca_targets.clone())).collect();
        assert_eq!(targets, [("a", vec![hook("x"), hook("y")]), ("b", vec![hook("z")])]);
        assert_eq!(needs.unconverted, BTreeSet::from(["c".to_owned()]), "the newest decides");
        assert_eq!(needs.mounted.len(), 2);
        let back = Needs::from_revisions(&[&new, &old]);
        assert!(back.unconverted.is_empty());
        assert_eq!(back.issue[&secret_ref("a")].ca_targets, [crd("c"), hook("x"), hook("y")]);
    }

    #[test]
    fn needs_leave_out_secrets_of_other_providers() {
        let ours = content(&[certificate("a", &[hook("x")])], &["a"], &[]);
        let theirs = content(&[], &["a"], &[]);
        for order in [[&ours, &theirs], [&theirs, &ours]] {
            let needs = Needs::from_revisions(&order);
            assert!(needs.issue.is_empty() && needs.mounted.contains(&secret_ref("a")));
        }
        assert_eq!(Needs::from_revisions(&[]), Needs::default());
    }
}
