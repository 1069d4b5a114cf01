//! `kubectl olm --help`: the verbs in groups, which clap does not have, and the flags that may stand before each verb.

use std::ffi::{OsStr, OsString};

use clap::builder::Styles;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Args as _, Command};

use crate::sources::{Cluster, Namespace};

/// A group of verbs.
struct Group {
    heading: &'static str,
    /// Whether the verbs may read a cluster, so that their own help shows its flags.
    reads_cluster: bool,
    verbs: &'static [&'static str],
}

/// Every verb is in one of them.
const GROUPS: &[Group] = &[
    Group {
        heading: "Install and change",
        reads_cluster: true,
        verbs: &["install", "upgrade", "rollback", "uninstall", "pause", "resume", "retry", "migrate"],
    },
    Group {
        heading: "See",
        reads_cluster: true,
        verbs: &["list", "outdated", "status", "history", "explain", "plan", "diff", "rbac", "report"],
    },
    Group {
        heading: "Catalogs",
        reads_cluster: true,
        verbs: &["catalogs", "search", "show", "versions", "resolve", "graph", "paths", "mirror", "classic"],
    },
    Group {
        heading: "Author",
        reads_cluster: false,
        verbs: &["catalog", "bundle", "image", "config", "crd", "semver", "simulate"],
    },
    Group { heading: "Cluster upgrades", reads_cluster: true, verbs: &["upgrade-check"] },
    Group { heading: "Other", reads_cluster: false, verbs: &["completion", "version"] },
];

/// The definitions with grouped help and global flags. Verbs that read no cluster accept its flags too, as those of kubectl do.
pub(crate) fn grouped(command: Command) -> Command {
    let (template, about) = (template(&command), command.get_about().cloned().unwrap_or_default());
    let command = Cluster::augment_args(Namespace::augment_args(command));
    // the text about the flags replaced it
    let mut command = command.about(about).long_about(None).help_template(template);
    command = command.mut_arg("namespace", |flag| flag.hide(true));
    let global: Vec<_> = command.get_arguments().filter(|flag| flag.is_global_set()).cloned().collect();
    let hidden = |verb: Command| {
        let own: Vec<_> = verb.get_arguments().map(|flag| flag.get_id().clone()).collect();
        let more = global.iter().filter(|flag| !own.contains(flag.get_id()));
        verb.args(more.map(|flag| flag.clone().hide(true)))
    };
    for verb in GROUPS.iter().filter(|group| !group.reads_cluster).flat_map(|group| group.verbs) {
        command = command.mut_subcommand(verb, hidden);
    }
    command
}

/// The definitions without variables of the environment that are empty, which count as unset.
pub(crate) fn without_empty_variables(command: Command) -> Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let flag = |flag: Arg| match flag.get_env().is_some_and(is_empty) {
        true => flag.env(None::<&'static str>),
        false => flag,
    };
    command.mut_args(flag).mut_subcommands(without_empty_variables)
}

/// The text of `--help`, made from the verbs' definitions.
fn template(command: &Command) -> String {
    let style = Styles::styled();
    let (header, literal) = (style.get_header(), style.get_literal());
    let widest = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or_default();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for group in GROUPS {
        text.push_str(&format!("\n{header}{}:{header:#}\n", group.heading));
        for name in group.verbs {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {literal}{name:<widest$}{literal:#}  {about}\n"));
        }
    }
    text + &format!("\n{header}Options, before or after the verb:{header:#}\n{{options}}{{after-help}}")
}

/// The verb of a command line.
pub(crate) fn verb_of(words: &[OsString]) -> Command {
    let mut command = crate::definition();
    command.build();
    let mut verb = &command;
    for word in words.iter().skip(1) {
        verb = verb.find_subcommand(word).unwrap_or(verb);
    }
    verb.clone()
}

/// The error with the usage that `--help` prints: in that of clap, flags with a value from the environment are required.
pub(crate) fn with_usage_of_verb(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    if error.get(ContextKind::Usage).is_some() {
        let usage = verb_of(words).render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// The error for `-n` before a verb whose objects are in no namespace.
pub(crate) fn namespace_without_effect(command: &mut Command, matches: &ArgMatches) -> Option<clap::Error> {
    matches.get_one::<String>("namespace")?;
    let (mut at, mut verb, mut name) = (matches, &*command, String::new());
    while let Some((next, below)) = at.subcommand() {
        (at, verb) = (below, verb.find_subcommand(next)?);
        name = format!("{name} {next}");
    }
    let takes = verb.get_arguments().any(|flag| flag.get_id() == "namespace" && !flag.is_hide_set());
    let text =
        format!("--namespace has no effect on `kubectl olm{name}`: it reads nothing in a single namespace");
    (!takes).then(|| command.error(ErrorKind::ArgumentConflict, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_has_each_verb_in_one_group() {
        let command = crate::definition();
        let mut defined: Vec<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.verbs).copied().collect();
        defined.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, defined);
    }

    #[test]
    fn help_shows_groups_and_flags() {
        let text = crate::definition().render_help().to_string();
        for group in GROUPS {
            assert!(text.contains(&format!("\n{}:\n", group.heading)), "{}: {text}", group.heading);
        }
        for part in ["  upgrade        Change ", "--request-timeout <DURATION>", "Exit codes: 0 yes or fine"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        // a verb that reads no cluster does not show its flags, one that does shows them once
        let help_of = |verb: &str| {
            let mut definition = crate::definition();
            definition.build();
            definition.find_subcommand_mut(verb).unwrap().render_long_help().to_string()
        };
        assert!(!help_of("simulate").contains("--kubeconfig"));
        assert_eq!(help_of("status").matches("--kubeconfig").count(), 1);
        assert!(!help_of("list").contains("--namespace"), "what a verb refuses is not shown");
        assert!(help_of("install").contains("--namespace"));
    }
}
