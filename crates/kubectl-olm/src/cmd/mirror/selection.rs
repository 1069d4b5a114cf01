//! The packages, channels and versions to mirror: the flags, and the bundles that they select.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use clap::Args;
use olm_core::{ChannelName, PackageName, VersionRelease};
use olm_fbc::{Bundle, PackageContents, summarise};
use olm_resolver::{ReleaseField, Request, Rules, parse_range};

use super::super::show::version;
use crate::failure::CommandError;
use crate::similar::no_channel;
use crate::sources::{Found, Sources};

/// What to mirror.
#[derive(Debug, Args)]
pub(super) struct Selection {
    /// Packages; PACKAGE/CHANNEL, PACKAGE@RANGE and PACKAGE/CHANNEL@RANGE give one a channel and versions of its own
    #[arg(id = "package", required = true, value_name = "PACKAGE")]
    packages: Vec<PackageFilter>,
    /// Only bundles in this channel, for packages without one of their own; may be repeated
    #[arg(long)]
    channel: Vec<String>,
    /// Only versions in this range, for packages without one of their own; written as in spec.source.catalog.version
    #[arg(long, value_name = "RANGE")]
    version: Option<String>,
    /// Only the head of each channel
    #[arg(long)]
    pub(super) heads: bool,
    /// Another image, such as those of OLM itself; may be repeated
    #[arg(long, value_name = "REF")]
    add_image: Vec<String>,
    /// The image that the directory of --dir is published as
    #[arg(long, value_name = "REF", requires = "dir")]
    catalog_image: Option<String>,
    #[command(flatten)]
    pub(super) sources: Sources,
}

/// A package of the command line: `PACKAGE[/CHANNEL][@RANGE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PackageFilter {
    package: String,
    channel: Option<String>,
    range: Option<String>,
}

impl FromStr for PackageFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, range) = text.split_once('@').map_or((text, None), |(name, range)| (name, Some(range)));
        let (package, channel) =
            name.split_once('/').map_or((name, None), |(package, channel)| (package, Some(channel)));
        if package.is_empty() || channel == Some("") || range == Some("") {
            return Err("write PACKAGE, PACKAGE/CHANNEL, PACKAGE@RANGE or PACKAGE/CHANNEL@RANGE");
        }
        Ok(Self {
            package: package.to_owned(),
            channel: channel.map(str::to_owned),
            range: range.map(str::to_owned),
        })
    }
}

/// The selected bundles of a package in one catalog.
#[derive(Debug)]
pub(super) struct PackageChoice {
    pub(super) catalog: String,
    /// The image of the catalog; `None` for a directory that has none.
    pub(super) catalog_image: Option<String>,
    pub(super) package: String,
    contents: PackageContents,
    /// The names of the selected bundles, by channel. None is empty.
    chosen: BTreeMap<String, BTreeSet<String>>,
}

/// The selected bundles of a channel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChannelChoice<'a> {
    pub(super) name: &'a str,
    /// The lowest and the highest selected version; `None` if a selected bundle has no version that can be read.
    pub(super) versions: Option<(VersionRelease, VersionRelease)>,
    /// Bundles of the channel between these that are not selected.
    pub(super) between: Vec<&'a str>,
}

impl PackageChoice {
    /// The selected bundles, by name.
    pub(super) fn bundles(&self) -> impl Iterator<Item = &Bundle> {
        let names: BTreeSet<&String> = self.chosen.values().flatten().collect();
        let of_name: BTreeMap<&String, &Bundle> =
            self.contents.bundles.iter().map(|bundle| (&bundle.name, bundle)).collect();
        names.into_iter().filter_map(move |name| of_name.get(name).copied())
    }

    /// The channel that the catalog takes by default, empty if it names none.
    pub(super) fn default_channel(&self) -> &str {
        self.contents.package.as_ref().map_or("", |package| &package.default_channel)
    }

    /// The channels with selected bundles, by name.
    pub(super) fn channels(&self) -> Vec<ChannelChoice<'_>> {
        self.chosen.iter().map(|(name, chosen)| self.channel(name, chosen)).collect()
    }

    fn channel<'a>(&'a self, name: &'a str, chosen: &BTreeSet<String>) -> ChannelChoice<'a> {
        let of_name = |name: &str| self.contents.bundles.iter().find(|bundle| bundle.name == name);
        let version_of = |name: &str| of_name(name).and_then(version);
        let versions: Option<Vec<VersionRelease>> = chosen.iter().map(|name| version_of(name)).collect();
        let versions = versions.and_then(|all| Some((all.iter().min()?.clone(), all.iter().max()?.clone())));
        let mut between = Vec::new();
        if let Some((lowest, highest)) = &versions {
            let is_between = |name: &str| {
                version_of(name).is_some_and(|version| version >= *lowest && version <= *highest)
            };
            let entries = self.contents.channels.iter().filter(|channel| channel.name == name);
            let names = entries.flat_map(|channel| &channel.entries).map(|entry| entry.name.as_str());
            between.extend(names.filter(|name| !chosen.contains(*name) && is_between(name)));
            between.sort_unstable();
            between.dedup();
        }
        ChannelChoice { name, versions, between }
    }
}

impl Selection {
    /// Images that the user adds.
    pub(super) fn added(&self) -> &[String] {
        &self.add_image
    }

    /// The selected bundles, by catalog and package.
    pub(super) async fn read(&self) -> Result<Vec<PackageChoice>, CommandError> {
        let filters = self.filters();
        let requests = filters.iter().map(request).collect::<Result<Vec<_>, _>>()?;
        let reader = self.sources.open().await?;
        let mut images = self.sources.catalog_images(reader.catalogs()).await?;
        let mut choices: BTreeMap<(String, String), PackageChoice> = BTreeMap::new();
        for (filter, request) in filters.iter().zip(&requests) {
            let found = self.sources.package_from(&reader, &filter.package).await?;
            let chosen = chosen(filter, request, &found, self.heads, &self.sources.flags())?;
            for (Found { catalog, content }, chosen) in found.into_iter().zip(chosen) {
                if chosen.is_empty() {
                    continue;
                }
                let catalog = catalog.name.to_string();
                if let Some(image) = &self.catalog_image {
                    images.insert(catalog.clone(), image.clone());
                }
                let choice = choices.entry((catalog.clone(), filter.package.clone()));
                let choice = choice.or_insert_with(|| PackageChoice {
                    catalog_image: images.get(&catalog).cloned(),
                    catalog,
                    package: filter.package.clone(),
                    contents: content.contents,
                    chosen: BTreeMap::new(),
                });
                for (channel, names) in chosen {
                    choice.chosen.entry(channel).or_default().extend(names);
                }
            }
        }
        Ok(choices.into_values().collect())
    }

    /// The packages with the channels and ranges that apply to them.
    fn filters(&self) -> Vec<Filter> {
        let own = |filter: &PackageFilter| Filter {
            package: filter.package.clone(),
            channels: filter.channel.clone().map_or_else(|| self.channel.clone(), |channel| vec![channel]),
            range: filter.range.clone().or_else(|| self.version.clone()),
        };
        self.packages.iter().map(own).collect()
    }
}

/// A package, its channels (none: all) and its versions.
#[derive(Debug)]
struct Filter {
    package: String,
    channels: Vec<String>,
    range: Option<String>,
}

fn request(filter: &Filter) -> Result<Request, CommandError> {
    let bad = |field: &str, error: &dyn std::fmt::Display| CommandError::Usage(format!("{field}: {error}"));
    let package = filter.package.parse::<PackageName>().map_err(|error| bad("PACKAGE", &error))?;
    let channels = filter.channels.iter().map(|name| name.parse::<ChannelName>());
    let channels = channels.collect::<Result<Vec<_>, _>>().map_err(|error| bad("--channel", &error))?;
    let range = parse_range(filter.range.as_deref().unwrap_or_default());
    let range = range.map_err(|error| CommandError::Usage(error.condition_message()))?;
    Ok(Request { channels, range, ..Request::new(package) })
}

/// The names of the selected bundles by channel, for each of the catalogs that have the package. `flags` are those of another command
/// that is to read these catalogs.
fn chosen(
    filter: &Filter,
    request: &Request,
    found: &[Found],
    heads: bool,
    flags: &str,
) -> Result<Vec<BTreeMap<String, BTreeSet<String>>>, CommandError> {
    let package = &filter.package;
    let known: BTreeSet<&str> = found
        .iter()
        .flat_map(|found| &found.content.contents.channels)
        .map(|channel| channel.name.as_str())
        .collect();
    if let Some(missing) = filter.channels.iter().find(|name| !known.contains(name.as_str())) {
        let text = no_channel(missing, &format!("package {package}"), known);
        return Err(CommandError::NotFound(text));
    }
    let all: Vec<_> = found.iter().map(|found| in_catalog(filter, request, found, heads)).collect();
    if all.iter().all(BTreeMap::is_empty) {
        let range = filter.range.as_deref().unwrap_or_default();
        return Err(CommandError::NotFound(match range {
            "" => {
                format!(
                    "package {package} has no bundle in a channel; see `kubectl olm versions {package}{flags}`"
                )
            }
            range => format!(
                "no version of {package} matches {range:?}; `kubectl olm versions {package}{flags}` lists all"
            ),
        }));
    }
    Ok(all)
}

fn in_catalog(
    filter: &Filter,
    request: &Request,
    found: &Found,
    heads: bool,
) -> BTreeMap<String, BTreeSet<String>> {
    let contents = &found.content.contents;
    let graph = found.content.clone().into_graph(ReleaseField::Counts);
    let rules = Rules::new(request, &graph);
    let is_eligible =
        |name: &str| graph.find_bundle(name).is_some_and(|bundle| rules.eligible(bundle).is_ok());
    let summary = summarise(&filter.package, contents);
    let is_head = |channel: &str, name: &str| {
        let mut heads =
            summary.channels.iter().filter(|known| known.name == channel).flat_map(|it| &it.heads);
        heads.any(|head| head.name == name)
    };
    let mut chosen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for channel in &contents.channels {
        if !filter.channels.is_empty() && !filter.channels.contains(&channel.name) {
            continue;
        }
        let names = channel.entries.iter().map(|entry| &entry.name);
        let names: BTreeSet<String> = names
            .filter(|name| is_eligible(name) && (!heads || is_head(&channel.name, name)))
            .cloned()
            .collect();
        if !names.is_empty() {
            chosen.insert(channel.name.clone(), names);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_filter_is_read() {
        let filter = |package: &str, channel: Option<&str>, range: Option<&str>| PackageFilter {
            package: package.to_owned(),
            channel: channel.map(str::to_owned),
            range: range.map(str::to_owned),
        };
        for (text, want) in [
            ("a", Some(filter("a", None, None))),
            ("a/stable", Some(filter("a", Some("stable"), None))),
            ("a@>=1.0.0 <2", Some(filter("a", None, Some(">=1.0.0 <2")))),
            ("a/4.18@1.x || 2.x", Some(filter("a", Some("4.18"), Some("1.x || 2.x")))),
            ("", None),
            ("/stable", None),
            ("a/", None),
            ("a@", None),
        ] {
            assert_eq!(text.parse::<PackageFilter>().ok(), want, "{text:?}");
        }
    }
}
