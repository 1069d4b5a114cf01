//! Custom resources that an uninstall deletes, by kind and namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use olm_api::{ClusterObjectSet, annotations};
use olm_install::resolution::revision;
use olm_runtime::error_text::chain;

use crate::extensions;
use crate::rights::in_words;

/// Custom resources of a kind that are listed.
const MAX_LISTED: u32 = 500;
/// Names of a namespace that are printed.
const MAX_NAMES: usize = 10;

/// Custom resources, and what could not be listed.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    kinds: Vec<Kind>,
    unread: Vec<String>,
}

#[derive(Debug)]
struct Kind {
    /// Name of the CustomResourceDefinition.
    name: String,
    total: usize,
    /// Names by namespace, as far as they are listed; the empty namespace has those that live in none.
    names: BTreeMap<String, Vec<String>>,
}

impl Losses {
    /// Adds resources of a kind with their namespaces and names, and the number of those that were not listed.
    pub(super) fn add<'a>(
        &mut self,
        kind: &str,
        listed: impl IntoIterator<Item = (Option<&'a str>, &'a str)>,
        more: usize,
    ) {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (namespace, name) in listed {
            names.entry(namespace.unwrap_or_default().to_owned()).or_default().push(name.to_owned());
        }
        let total = names.values().map(Vec::len).sum::<usize>() + more;
        if total > 0 {
            self.kinds.push(Kind { name: kind.to_owned(), total, names });
        }
    }

    /// A line for each kind and namespace; `None` when nothing is lost.
    pub(super) fn text(&self) -> Option<String> {
        let mut lines = Vec::new();
        for Kind { name, total, names } in &self.kinds {
            lines.push(format!("  {name}: {total}"));
            for (namespace, names) in names {
                let place =
                    if namespace.is_empty() { String::new() } else { format!("namespace {namespace}: ") };
                let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
                let more = names.len().saturating_sub(MAX_NAMES);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                lines.push(format!("    {place}{shown}{more}"));
            }
            let listed: usize = names.values().map(Vec::len).sum();
            if listed < *total {
                lines.push(format!("    {} more were not listed", total - listed));
            }
        }
        lines.extend(self.unread.iter().map(|text| format!("  unknown: {text}")));
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Lists the custom resources of the CRDs that the newest revision controls and that are not kept.
pub(super) async fn read(client: &Client, own: &[ClusterObjectSet]) -> Losses {
    let mut losses = Losses::default();
    let Some(newest) = revision::newest(own) else { return losses };
    let objects = match extensions::objects(client, newest).await {
        Ok(objects) => objects,
        Err(error) => {
            losses.unread.push(format!("content of {}: {error}", newest.name_any()));
            return losses;
        }
    };
    let uids: BTreeSet<String> = own.iter().filter_map(kube::ResourceExt::uid).collect();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let goes = |crd: &CustomResourceDefinition| {
        let is_own = crd.owner_references().iter().any(|owner| uids.contains(&owner.uid));
        is_own && !annotations::keeps_objects(crd.annotations())
    };
    for object in objects.iter().filter(|object| object.kind() == "CustomResourceDefinition") {
        let crd = match crds.get_opt(object.name()).await {
            Ok(Some(crd)) if goes(&crd) => crd,
            Ok(_) => continue,
            Err(error) => {
                losses.unread.push(format!("{}: {}", object.name(), in_words(&chain(&error))));
                continue;
            }
        };
        let Some(version) = crd.spec.versions.iter().find(|version| version.served) else { continue };
        let kind = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &crd.spec.names.plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        match api.list_metadata(&ListParams::default().limit(MAX_LISTED)).await {
            Ok(list) => {
                let more = list.metadata.remaining_item_count.unwrap_or(0);
                let listed = list.items.iter().map(|item| {
                    (item.metadata.namespace.as_deref(), item.metadata.name.as_deref().unwrap_or_default())
                });
                losses.add(object.name(), listed, usize::try_from(more).unwrap_or(0));
            }
            Err(error) => losses.unread.push(format!("{}: {}", object.name(), in_words(&chain(&error)))),
        }
    }
    losses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_by_kind_and_namespace() {
        let mut losses = Losses::default();
        assert_eq!(losses.text(), None);
        losses.add("empties.example.com", [], 0);
        assert_eq!(losses.text(), None);
        losses.add("wholes.example.com", [(None, "a"), (None, "b")], 0);
        let many: Vec<String> = (0..12).map(|n| format!("n{n:02}")).collect();
        losses.add("many.example.com", many.iter().map(|name| (Some("x"), name.as_str())), 3);
        losses.unread.push("hidden.example.com: forbidden".to_owned());
        let want = "  wholes.example.com: 2\n    a, b\n  many.example.com: 15\n    namespace x: n00, n01, n02, n03, n04, n05, n06, n07, \
                    n08, n09 and 2 more\n    3 more were not listed\n  unknown: hidden.example.com: forbidden";
        assert_eq!(losses.text().as_deref(), Some(want));
    }
}
