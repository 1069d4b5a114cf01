//! Deprecations of the installed ClusterServiceVersion, from the subscribed catalog.
//!
//! Rule: classic-apis §3.3.

use olm_api::classic::Subscription;
use olm_resolver::DeprecatedScope;
use olm_solver::Catalog;

/// What the subscribed catalog has about a package.
#[derive(Debug, Clone, Copy)]
pub struct PackageDeprecations<'a> {
    pub catalog: &'a Catalog,
    /// The deprecations, with their messages.
    pub entries: &'a [(DeprecatedScope, String)],
}

/// Types and messages of the conditions, the roll-up last. They describe the entry of the installed ClusterServiceVersion in the subscribed
/// channel: as long as there is none, there are no conditions. A Subscription without a channel has none for a channel.
pub fn deprecation_messages(
    subscription: &Subscription,
    PackageDeprecations { catalog, entries }: PackageDeprecations<'_>,
) -> Vec<(&'static str, String)> {
    let (package, channel) = (subscription.spec.package.as_str(), subscription.spec.channel.as_str());
    let installed = subscription.status.as_ref().map(|it| it.installed_csv.as_str()).unwrap_or_default();
    let mut found = Vec::new();
    if installed.is_empty() || !catalog.has_entry(package, channel, installed) {
        return found;
    }
    for type_ in ["PackageDeprecated", "ChannelDeprecated", "BundleDeprecated"] {
        for (scope, text) in entries.iter().filter(|(_, text)| !text.is_empty()) {
            let message = match (type_, scope) {
                ("PackageDeprecated", DeprecatedScope::Package) => {
                    format!("olm.package/{package}: {text}")
                }
                ("ChannelDeprecated", DeprecatedScope::Channel(name))
                    if !channel.is_empty() && &**name == channel =>
                {
                    format!("olm.channel/{name}: {text}")
                }
                ("BundleDeprecated", DeprecatedScope::Bundle(name)) if &**name == installed => {
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
