//! docs/reference/flags.md and kubectl-olm.md: the flags of the processes, and verbs and flags of the plugin, from the definitions
//! that they themselves read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory as _};

/// The two files.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    vec![("docs/reference/flags.md".into(), processes()), ("docs/reference/kubectl-olm.md".into(), plugin())]
}

const GENERATED: &str =
    "<!-- Generated from the programs' own definitions by `make generate`. Do not edit. -->\n";

fn processes() -> String {
    let mut out = format!(
        "{GENERATED}# Flags\n\n\
         Those of the processes; [kubectl olm](kubectl-olm.md) has a page of its own. Switches are `--flag`, `--flag=true` or `--flag=false`. An empty value is the same as none. klog's own flags are accepted and \
         mean nothing.\n",
    );
    for program in programs() {
        // the definition as the program has it when it starts: with what clap adds
        let program = program.disable_help_flag(true);
        let _ = write!(out, "\n## {}\n\n", program.get_name());
        if let Some(about) = program.get_about() {
            let _ = writeln!(out, "{about}.\n");
        }
        out.push_str("| flag | value | default | meaning |\n|---|---|---|---|\n");
        for flag in flags(&program) {
            let _ = writeln!(out, "{}", row(flag));
        }
    }
    out
}

/// Verbs with what only they know, then what several share, by the headings of `--help`.
fn plugin() -> String {
    let mut plugin = kubectl_olm::definition();
    plugin.build();
    let mut out = format!(
        "{GENERATED}# kubectl olm\n\nVerbs and flags; how to use them is on [its page](../kubectl-olm.md).\n"
    );
    let mut shared = BTreeMap::new();
    verbs(&mut out, &plugin, &mut shared);
    for (heading, flags) in &shared {
        let _ =
            write!(out, "\n## {heading} flags\n\n| flag | value | default | meaning |\n|---|---|---|---|\n");
        for flag in flags.values() {
            let _ = writeln!(out, "{}", row(flag));
        }
    }
    out
}

type Shared = BTreeMap<String, BTreeMap<String, Arg>>;

fn verbs(out: &mut String, command: &Command, shared: &mut Shared) {
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set()) {
        if verb.has_subcommands() {
            verbs(out, verb, shared);
            // `catalogs` alone lists them
            if verb.is_subcommand_required_set() {
                continue;
            }
        }
        let name = verb.get_bin_name().unwrap_or_else(|| verb.get_name());
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(out, "\n## {name}\n\n{about}.");
        let positionals: Vec<&Arg> = verb.get_positionals().filter(|it| !it.is_hide_set()).collect();
        let mut own = Vec::new();
        let mut headings = BTreeSet::new();
        for flag in flags(verb).into_iter().filter(|flag| flag.get_id() != "help") {
            match flag.get_help_heading() {
                None => own.push(flag),
                Some(heading) => {
                    headings.insert(heading);
                    let known = shared.entry(heading.to_owned()).or_default();
                    known.entry(flag.get_id().to_string()).or_insert_with(|| flag.clone());
                }
            }
        }
        if !headings.is_empty() {
            let links: Vec<String> = headings
                .iter()
                .map(|heading| format!("[{heading}](#{}-flags)", heading.to_lowercase().replace(' ', "-")))
                .collect();
            let _ = writeln!(out, "Also takes the flags under {}.", links.join(", "));
        }
        if positionals.is_empty() && own.is_empty() {
            continue;
        }
        out.push_str("\n| argument or flag | value | default | meaning |\n|---|---|---|---|\n");
        for it in positionals.into_iter().chain(own) {
            let _ = writeln!(out, "{}", row(it));
        }
    }
}

pub(crate) fn programs() -> [Command; 4] {
    [
        catalogd::args::Cli::command(),
        operator_controller::args::Cli::command(),
        cluster_operator::args::Cli::command(),
        classic_controller::args::Cli::command(),
    ]
}

/// Those that are shown, by name.
fn flags(program: &Command) -> Vec<&Arg> {
    let mut all: Vec<&Arg> =
        program.get_arguments().filter(|flag| flag.get_long().is_some() && !flag.is_hide_set()).collect();
    all.sort_by_key(|flag| flag.get_long());
    all
}

fn row(flag: &Arg) -> String {
    let stands_for = || {
        flag.get_value_names().unwrap_or_default().iter().map(|it| it.as_str()).collect::<Vec<_>>().join(" ")
    };
    let name = match flag.get_long() {
        Some(long) => format!("--{long}"),
        // an argument is known by what it stands for
        None => stands_for(),
    };
    let short = flag.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();
    let values: Vec<String> =
        flag.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
    let switch = !flag.get_action().takes_values();
    let value = if switch || (flag.get_long().is_none() && values.is_empty()) {
        String::new()
    } else if values.is_empty() || flag.is_hide_possible_values_set() {
        stands_for()
    } else {
        values.join(", ")
    };
    let default: Vec<_> =
        flag.get_default_values().iter().map(|one| one.to_string_lossy().into_owned()).collect();
    let default = match default.join(",") {
        default if switch || default.is_empty() => String::new(),
        default => format!("`{default}`"),
    };
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    format!("| `{name}`{short} | {value} | {default} | {} |", help.replace('\n', " ").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_programs_are_valid_and_the_last_value_wins() {
        for program in programs() {
            let name = program.get_name().to_owned();
            program.clone().debug_assert();
            let mut given = vec![name.as_str(), "--v=4", "--leader-elect", "--v=2", "--leader-elect=false"];
            let pulls = program.get_arguments().any(|flag| flag.get_id() == "pull_cas_dir");
            given.extend(["--pull-cas-dir=/a", "--pull-cas-dir=/b"].iter().filter(|_| pulls));
            let found =
                program.try_get_matches_from(&given).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(found.get_one::<u8>("v"), Some(&2), "{name}");
            assert_eq!(found.get_one::<bool>("leader_elect"), Some(&false), "{name}");
            if pulls {
                let directory = found.get_one::<String>("pull_cas_dir");
                assert_eq!(directory.map(String::as_str), Some("/b"), "{name}");
            }
        }
    }

    #[test]
    fn flags_that_are_shown_have_help() {
        for program in programs() {
            for flag in flags(&program) {
                assert!(flag.get_help().is_some(), "{} --{}", program.get_name(), flag.get_id());
            }
        }
        let mut shared = Shared::new();
        let mut plugin = kubectl_olm::definition();
        plugin.build();
        verbs(&mut String::new(), &plugin, &mut shared);
        // a heading of shared flags does not reach on to what a verb has besides
        let cache: Vec<_> = shared["Cache"].keys().map(String::as_str).collect();
        assert_eq!(cache, ["cache_dir"]);
        assert!(!shared["Registry"].contains_key("output"));
        for flag in shared.values().flat_map(BTreeMap::values) {
            assert!(flag.get_help().is_some(), "kubectl-olm --{}", flag.get_id());
        }
        let text = &files()[1].1;
        for part in ["## kubectl olm catalog validate\n", "## Cluster flags\n", "| `--to-revision` |"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        let text = &files()[0].1;
        assert!(text.contains("| `--leader-elect` | BOOL | `false` |"), "{text}");
        assert!(!text.contains("vmodule"), "what is only accepted is not shown");
    }
}
