//! Files for the programs that copy images: oc-mirror's ImageSetConfiguration and skopeo's file for `sync`.

use std::collections::{BTreeMap, BTreeSet};

use olm_core::VersionRelease;
use serde::Serialize;

use super::images::{ImageRow, completed, invalid};
use super::selection::{ChannelChoice, PackageChoice};
use crate::cmd::output::yaml;
use crate::failure::CommandError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ImageSetConfiguration<'a> {
    kind: &'static str,
    api_version: &'static str,
    mirror: Mirror<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Mirror<'a> {
    operators: Vec<Operator<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    additional_images: Vec<AdditionalImage<'a>>,
}

#[derive(Serialize)]
struct Operator<'a> {
    catalog: &'a str,
    packages: Vec<Package<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Package<'a> {
    name: &'a str,
    /// Written if the catalog's own is not among the channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_channel: Option<&'a str>,
    channels: Vec<Channel<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Channel<'a> {
    name: &'a str,
    /// Without versions oc-mirror copies the head alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    min_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_version: Option<String>,
}

#[derive(Serialize)]
struct AdditionalImage<'a> {
    name: &'a str,
}

/// The file, and notes on what differs from `mirror list`.
type Printed = (String, Vec<String>);

/// An ImageSetConfiguration.
pub(super) fn oc_mirror(
    choices: &[PackageChoice],
    added: &[String],
    heads: bool,
) -> Result<Printed, CommandError> {
    let mut notes = Vec::new();
    let mut operators: BTreeMap<&str, Vec<Package<'_>>> = BTreeMap::new();
    for choice in choices {
        let Some(catalog) = &choice.catalog_image else {
            return Err(CommandError::Usage(
                "oc-mirror reads catalogs from images: name the one that the directory of --dir is published as with --catalog-image REF"
                    .to_owned(),
            ));
        };
        let channels = choice.channels();
        for channel in channels.iter().filter(|channel| !heads && !channel.between.is_empty()) {
            notes.push(format!(
                "oc-mirror takes all versions of a channel between two: it will also copy {} of {}/{}",
                channel.between.join(", "),
                choice.package,
                channel.name
            ));
        }
        operators.entry(catalog).or_default().push(package(choice, &channels, heads));
    }
    let operators = operators.into_iter().map(|(catalog, packages)| Operator { catalog, packages });
    let configuration = ImageSetConfiguration {
        kind: "ImageSetConfiguration",
        api_version: "mirror.openshift.io/v2alpha1",
        mirror: Mirror {
            operators: operators.collect(),
            additional_images: added.iter().map(|name| AdditionalImage { name }).collect(),
        },
    };
    Ok((yaml(&configuration), notes))
}

fn package<'a>(choice: &'a PackageChoice, channels: &[ChannelChoice<'a>], heads: bool) -> Package<'a> {
    let default = choice.default_channel();
    let has_default = channels.iter().any(|channel| channel.name == default);
    let highest = |channel: &ChannelChoice<'_>| channel.versions.as_ref().map(|(_, highest)| highest.clone());
    let other = channels.iter().max_by(|a, b| highest(a).cmp(&highest(b))).map(|channel| channel.name);
    let text = |version: &VersionRelease| version.version.to_string();
    let channel = |choice: &ChannelChoice<'a>| {
        let versions = choice.versions.as_ref().filter(|_| !heads);
        Channel {
            name: choice.name,
            min_version: versions.map(|(lowest, _)| text(lowest)),
            max_version: versions.map(|(_, highest)| text(highest)),
        }
    };
    Package {
        name: &choice.package,
        default_channel: other.filter(|_| !has_default),
        channels: channels.iter().map(channel).collect(),
    }
}

#[derive(Serialize)]
struct SkopeoRegistry {
    /// Tags and digests, by repository.
    images: BTreeMap<String, BTreeSet<String>>,
}

/// A file for `skopeo sync --src yaml`.
pub(super) fn skopeo(rows: &[ImageRow]) -> Printed {
    let mut registries: BTreeMap<String, SkopeoRegistry> = BTreeMap::new();
    let mut unread = Vec::new();
    for row in rows {
        let Ok(reference) = completed(&row.image) else {
            unread.push(row.image.clone());
            continue;
        };
        let registry = registries
            .entry(reference.registry().to_owned())
            .or_insert_with(|| SkopeoRegistry { images: BTreeMap::new() });
        let version = match (reference.digest(), reference.tag()) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.unwrap_or_default().to_owned(),
        };
        registry.images.entry(reference.repository().to_owned()).or_default().insert(version);
    }
    (yaml(&registries), invalid(&unread).into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::super::images::Role;
    use super::*;

    #[test]
    fn skopeo_file_keeps_tags_that_look_like_numbers() {
        let row =
            |image: &str| ImageRow { image: image.to_owned(), role: Role::Related, used_by: Vec::new() };
        let (text, notes) =
            skopeo(&["quay.io/a/b:1.0", "quay.io/a/b:007", "quay.io/a/b:on", "Bad/x:"].map(row));
        let read: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, serde_json::json!({"quay.io": {"images": {"a/b": ["007", "1.0", "on"]}}}), "{text}");
        assert_eq!(notes, ["1 image left out, because the reference cannot be read, such as \"Bad/x:\""]);
    }
}
