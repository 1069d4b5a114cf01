//! Notices about a chosen bundle, beside the one that is installed: `plan`, `explain`, `install` and `upgrade` print them.
//! Pure.

use olm_core::VersionRelease;
use olm_install::resolution::{
    self, BundleFacts, ExtensionRequest, RevisionStates, Settings, Target, UpgradeUpdate,
};
use olm_resolver::{CatalogSource, MajorUpdates, Resolution, Via};
use serde::Serialize;

/// A remarkable property of a choice. Part of `-o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Notice {
    pub(crate) kind: NoticeKind,
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum NoticeKind {
    /// The version is lower than the installed one.
    GoesDown,
    /// The version has a higher major version than the installed one.
    NewMajor,
    /// No upgrade edge leads to the bundle; the policy SelfCertified bypasses that.
    Forced,
    /// A higher version exists that is not installed.
    Held,
    /// A higher version exists that the extension's range leaves out.
    #[serde(rename = "Held")]
    OutOfRange,
    /// A first install of a prerelease that no range asks for.
    Prerelease,
    /// A first install from another channel than the default one, that no channel asks for.
    OtherChannel,
}

impl Notice {
    /// The notice as a line on standard error.
    pub(crate) fn line(&self) -> String {
        match self.kind.is_of_first_install() {
            true => format!("note: {}", self.text),
            false => format!("note: {}: {}", self.kind.label().to_lowercase(), self.text),
        }
    }
}

impl NoticeKind {
    /// The name of its line in texts.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::GoesDown => "Goes down",
            Self::NewMajor => "New major",
            Self::Forced => "Forced",
            Self::Held | Self::OutOfRange => "Held",
            Self::Prerelease => "Prerelease",
            Self::OtherChannel => "Channel",
        }
    }

    /// Whether it is about a first install.
    pub(crate) fn is_of_first_install(self) -> bool {
        matches!(self, Self::Prerelease | Self::OtherChannel)
    }
}

/// The facts of a choice.
#[derive(Debug, Default)]
pub(crate) struct Choice<'a> {
    pub(crate) extension: &'a str,
    pub(crate) installed: Option<VersionRelease>,
    pub(crate) chosen: Option<VersionRelease>,
    /// Whether no edge leads to the chosen bundle.
    pub(crate) is_forced: bool,
    pub(crate) is_paused: bool,
    /// The range of the extension.
    pub(crate) range: Option<&'a str>,
    /// The best bundle of any range and major version, and its version.
    pub(crate) best: Option<(String, VersionRelease)>,
    /// The messages of the resolver about bundles that are held: by their major version, or because the cluster does not fit.
    pub(crate) held: Vec<String>,
    /// The default channel and those of the bundle, if the extension names no channel.
    pub(crate) channels: Option<(&'a str, Vec<&'a str>)>,
}

impl<'a> Choice<'a> {
    /// The facts of a resolution.
    pub(crate) fn new(
        (request, states): (&'a ExtensionRequest, &RevisionStates),
        sources: &[CatalogSource],
        settings: &Settings,
        (chosen, target): (Option<&'a Resolution>, Option<&BundleFacts>),
        upgrade: &UpgradeUpdate,
    ) -> Self {
        let UpgradeUpdate { held, unfit, .. } = upgrade;
        let texts = [held.as_ref().map(ToString::to_string), unfit.as_ref().map(ToString::to_string)];
        let held = texts.into_iter().flatten().collect();
        let default = chosen.and_then(|chosen| chosen.graph.default_channel());
        let channels = default.filter(|_| request.channels.is_empty()).map(|default| {
            let all: Option<Vec<&str>> = chosen.map(|chosen| {
                let graph = &chosen.graph;
                graph.channels_of(chosen.index).map(|channel| graph.channel_name(channel)).collect()
            });
            (default, all.unwrap_or_default())
        });
        Self {
            extension: &request.name,
            installed: states.upgraded().and_then(|revision| version_of(&revision.bundle)),
            chosen: target.and_then(version_of),
            is_forced: chosen.is_some_and(|chosen| chosen.via == Via::SelfCertified),
            is_paused: request.paused,
            range: request.range.as_ref().map(|range| range.as_str()),
            best: best(request, states, sources, settings)
                .map(|(bundle, chosen)| (bundle.name, chosen.version)),
            held,
            channels,
        }
    }

    /// What is remarkable, the most important first.
    pub(crate) fn notices(self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut add = |kind, text: String| notices.push(Notice { kind, text });
        let major = |version: &VersionRelease| version.version.major();
        match (&self.installed, &self.chosen) {
            (Some(installed), Some(chosen)) => {
                let other_major =
                    if major(chosen) == major(installed) { "" } else { ", and has another major version" };
                if chosen < installed {
                    add(
                        NoticeKind::GoesDown,
                        format!("{chosen} is lower than the installed {installed}{other_major}"),
                    );
                } else if major(chosen) > major(installed) {
                    add(
                        NoticeKind::NewMajor,
                        format!(
                            "{chosen} has a higher major version than the installed {installed}; read its release notes first"
                        ),
                    );
                }
                if self.is_forced && chosen != installed {
                    add(
                        NoticeKind::Forced,
                        format!(
                            "no upgrade edge leads from {installed} to {chosen}; the policy SelfCertified bypasses the edges"
                        ),
                    );
                }
            }
            (None, Some(chosen)) => {
                if self.range.is_none() && chosen.version.is_prerelease() {
                    add(
                        NoticeKind::Prerelease,
                        format!("{chosen} is a prerelease; a version range chooses another one"),
                    );
                }
                let other = self.channels.filter(|(default, all)| !all.is_empty() && !all.contains(default));
                if let Some((default, all)) = other {
                    add(
                        NoticeKind::OtherChannel,
                        format!(
                            "{chosen} is in channel {}, not in the default channel {default}; name a channel to choose from it alone",
                            all.join(", ")
                        ),
                    );
                }
            }
            (_, None) => {}
        }
        let is_held_otherwise = !self.held.is_empty();
        for text in self.held {
            add(NoticeKind::Held, text);
        }
        let current = self.chosen.as_ref().or(self.installed.as_ref());
        let higher = self.best.filter(|(_, best)| current.is_some_and(|current| best > current));
        // a range that asks for more than there is leaves nothing out
        let is_above_range = |best: &VersionRelease, range: &str| match (&self.chosen, &self.installed) {
            (Some(_), Some(installed)) => best > installed,
            (Some(_), None) => true,
            (None, _) => VersionRelease::parse(range, None).is_ok_and(|asked| *best > asked),
        };
        if let (Some((bundle, best)), Some(range)) = (&higher, self.range)
            && is_above_range(best, range)
            && !is_held_otherwise
        {
            add(
                NoticeKind::OutOfRange,
                format!(
                    "bundle {bundle} has the higher version {best}, which the range {range:?} leaves out; widen spec.source.catalog.version \
                     to install it"
                ),
            );
        }
        if self.is_paused
            && let Some(newest) = higher.map(|(_, best)| best).or(self.chosen)
            && self.installed.is_none_or(|installed| newest > installed)
        {
            add(
                NoticeKind::Held,
                format!(
                    "{newest} is not installed while the extension is paused; `kubectl olm resume {}` ends that",
                    self.extension
                ),
            );
        }
        notices
    }
}

pub(crate) fn version_of(bundle: &BundleFacts) -> Option<VersionRelease> {
    VersionRelease::parse(&bundle.version, bundle.release.as_deref()).ok()
}

/// The bundle that would be chosen if the extension allowed any version and major version.
pub(crate) fn best(
    request: &ExtensionRequest,
    states: &RevisionStates,
    sources: &[CatalogSource],
    settings: &Settings,
) -> Option<(BundleFacts, Resolution)> {
    let any =
        ExtensionRequest { range: None, major_updates: Some(MajorUpdates::Automatic), ..request.clone() };
    let resolved = resolution::resolve(&any, states, sources, settings);
    match resolved.target {
        Ok(Target::Chosen(best)) => resolved.chosen.map(|chosen| (best, chosen)),
        Ok(Target::Installed(_)) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Option<VersionRelease> {
        (!text.is_empty()).then(|| VersionRelease::parse(text, None).unwrap())
    }

    /// A choice, versions as text (empty for none), and the notices with a part of their texts.
    #[derive(Default)]
    struct Case {
        installed: &'static str,
        chosen: &'static str,
        is_forced: bool,
        is_paused: bool,
        range: Option<&'static str>,
        best: &'static str,
        held: &'static [&'static str],
        want: &'static [(NoticeKind, &'static str)],
    }

    impl Case {
        fn want(self, want: &'static [(NoticeKind, &'static str)]) -> Self {
            Self { want, ..self }
        }
    }

    #[test]
    fn notices_of_an_upgrade() {
        use NoticeKind::{Forced, GoesDown, Held, NewMajor, OutOfRange};
        let pair = |installed, chosen, best| Case { installed, chosen, best, ..Case::default() };
        let cases = [
            pair("1.0.0", "1.1.0", "1.1.0"),
            pair("1.0.0", "1.0.0", "1.0.0"),
            Case { range: Some("1.0.0"), ..pair("1.1.0", "1.0.0", "1.0.0") }
                .want(&[(GoesDown, "1.0.0 is lower than the installed 1.1.0")]),
            pair("1.0.0", "1.0.0-rc.1", "").want(&[(GoesDown, "lower than the installed 1.0.0")]),
            pair("2.0.0", "1.0.0", "").want(&[(GoesDown, "has another major version")]),
            pair("1.9.0", "2.0.0", "2.0.0")
                .want(&[(NewMajor, "2.0.0 has a higher major version than the installed 1.9.0")]),
            pair("0.9.0", "1.0.0", "1.0.0").want(&[(NewMajor, "")]),
            pair("0.1.0", "0.2.0", "0.2.0"),
            Case { is_forced: true, ..pair("1.0.0", "1.3.0", "1.3.0") }
                .want(&[(Forced, "no upgrade edge leads from 1.0.0 to 1.3.0")]),
            Case { is_forced: true, ..pair("1.0.0", "1.0.0", "1.0.0") },
            Case { is_forced: true, range: Some("1.3.0"), ..pair("3.0.0", "1.3.0", "4.0.0") }.want(&[
                (GoesDown, ""),
                (Forced, "SelfCertified"),
                (OutOfRange, "4.0.0"),
            ]),
            Case { range: Some("1.x"), ..pair("1.0.0", "1.3.0", "2.0.0") }
                .want(&[(OutOfRange, "the range \"1.x\" leaves out")]),
            Case { held: &["next major"], ..pair("1.0.0", "1.0.0", "2.0.0") }.want(&[(Held, "next major")]),
            Case { is_paused: true, ..pair("1.0.0", "1.0.0", "1.0.0") },
            Case { is_paused: true, ..pair("1.0.0", "1.1.0", "1.1.0") }.want(&[(
                Held,
                "1.1.0 is not installed while the extension is paused; `kubectl olm resume x`",
            )]),
            Case { is_paused: true, range: Some("1.x"), ..pair("1.0.0", "1.1.0", "2.0.0") }
                .want(&[(OutOfRange, "leaves out"), (Held, "2.0.0 is not installed while")]),
            // higher than the target, and lower than the installed one
            Case { range: Some("1.0.0"), ..pair("1.2.0", "1.0.0", "1.1.0") }.want(&[(GoesDown, "")]),
            // what cannot be resolved: the range asks for more than there is
            Case { range: Some("9.x"), ..pair("1.0.0", "", "1.2.0") },
            Case { range: Some("1.2.0"), ..pair("1.0.0", "", "1.1.0") },
            Case { range: Some("1.1.0"), ..pair("1.0.0", "", "1.2.0") }.want(&[(OutOfRange, "1.2.0")]),
            pair("1.0.0", "", ""),
        ];
        for Case { installed, chosen, is_forced, is_paused, range, best, held, want } in cases {
            let choice = Choice {
                extension: "x",
                installed: version(installed),
                chosen: version(chosen),
                is_forced,
                is_paused,
                range,
                best: version(best).map(|best| (format!("x.v{best}"), best)),
                held: held.iter().map(|text| (*text).to_owned()).collect(),
                channels: None,
            };
            let case = format!("{choice:?}");
            let found = choice.notices();
            let kinds: Vec<_> = found.iter().map(|notice| notice.kind).collect();
            assert_eq!(kinds, want.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), "{case}: {found:?}");
            for (notice, (_, text)) in found.iter().zip(want) {
                assert!(notice.text.contains(text), "{case}: {notice:?}");
            }
        }
    }

    #[test]
    fn notices_of_a_first_install() {
        use NoticeKind::{OtherChannel, Prerelease};
        type Channels = Option<(&'static str, &'static [&'static str])>;
        let cases: &[(&str, Option<&str>, Channels, &[NoticeKind])] = &[
            ("1.0.0", None, Some(("stable", &["stable", "fast"])), &[]),
            ("1.1.0-rc.1", None, Some(("stable", &["stable"])), &[Prerelease]),
            ("1.1.0", None, Some(("stable", &["candidate"])), &[OtherChannel]),
            ("1.1.0-rc.1", None, Some(("stable", &["candidate"])), &[Prerelease, OtherChannel]),
            ("1.1.0-rc.1", Some("1.1.0-rc.1"), None, &[]),
            ("1.1.0", None, Some(("stable", &[])), &[]),
        ];
        for (chosen, range, channels, want) in cases {
            let channels = channels.map(|(default, all)| (default, all.to_vec()));
            let choice = Choice { chosen: version(chosen), range: *range, channels, ..Choice::default() };
            let case = format!("{choice:?}");
            let kinds: Vec<_> = choice.notices().iter().map(|notice| notice.kind).collect();
            assert_eq!(&kinds, want, "{case}");
            assert!(want.iter().all(|kind| kind.is_of_first_install()));
        }
    }
}
