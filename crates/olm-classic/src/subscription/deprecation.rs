//! Deprecations of the installed ClusterServiceVersion, from the subscribed catalog.
//!
//! Rule: classic-apis §3.3.

use olm_api::classic::Subscription;
use olm_resolver::DeprecatedScope;

/// The deprecations of a package in the subscribed catalog, with their messages.
pub type DeprecatedEntries<'a> = &'a [(DeprecatedScope, String)];

/// Types and messages of the conditions, the roll-up last. A Subscription without a channel has none for a channel; without an installed
/// ClusterServiceVersion there is none for a bundle.
pub fn deprecation_messages(
    subscription: &Subscription,
    entries: DeprecatedEntries<'_>,
) -> Vec<(&'static str, String)> {
    let channel = subscription.spec.channel.as_str();
    let installed = subscription.status.as_ref().map(|it| it.installed_csv.as_str()).unwrap_or_default();
    let mut found = Vec::new();
    for type_ in ["PackageDeprecated", "ChannelDeprecated", "BundleDeprecated"] {
        for (scope, text) in entries.iter().filter(|(_, text)| !text.is_empty()) {
            let message = match (type_, scope) {
                ("PackageDeprecated", DeprecatedScope::Package) => {
                    format!("olm.package/{}: {text}", subscription.spec.package)
                }
                ("ChannelDeprecated", DeprecatedScope::Channel(name))
                    if !channel.is_empty() && &**name == channel =>
                {
                    format!("olm.channel/{name}: {text}")
                }
                ("BundleDeprecated", DeprecatedScope::Bundle(name))
                    if !installed.is_empty() && &**name == installed =>
                {
                    format!("olm.bundle/{name}: {text}")
                }
                (_, DeprecatedScope::Package | DeprecatedScope::Channel(_) | DeprecatedScope::Bundle(_)) => {
                    continue;
                }
            };
            found.push((type_, message));
            break;
        }
    }
    if !found.is_empty() {
        let messages: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
        let all = messages.join("; ");
        found.push(("Deprecated", all));
    }
    found
}
