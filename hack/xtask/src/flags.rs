//! docs/reference/flags.md: the flags of the processes, from the definitions that they themselves read.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::{Arg, Command, CommandFactory as _};

/// The one file.
pub(crate) fn files() -> Vec<(PathBuf, String)> {
    let mut out = String::from(
        "<!-- Generated from the programs' own definitions by `make generate`. Do not edit. -->\n\
         # Flags\n\n\
         Switches are `--flag`, `--flag=true` or `--flag=false`. An empty value is the same as none. klog's own flags are accepted and \
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
    vec![("docs/reference/flags.md".into(), out)]
}

fn programs() -> [Command; 3] {
    [
        catalogd::args::Cli::command(),
        operator_controller::args::Cli::command(),
        cluster_operator::args::Cli::command(),
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
    let name = flag.get_long().unwrap_or_default();
    let short = flag.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();
    let values: Vec<String> =
        flag.get_possible_values().iter().map(|one| one.get_name().to_owned()).collect();
    let value = if values.is_empty() || flag.is_hide_possible_values_set() {
        flag.get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    } else {
        values.join(", ")
    };
    let default: Vec<_> =
        flag.get_default_values().iter().map(|one| one.to_string_lossy().into_owned()).collect();
    let default = match default.join(",") {
        empty if empty.is_empty() => String::new(),
        default => format!("`{default}`"),
    };
    let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
    format!("| `--{name}`{short} | {value} | {default} | {} |", help.replace('\n', " ").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_that_is_shown_says_what_it_is_for() {
        for program in programs() {
            for flag in flags(&program) {
                assert!(flag.get_help().is_some(), "{} --{}", program.get_name(), flag.get_id());
            }
        }
        let text = &files()[0].1;
        assert!(text.contains("| `--leader-elect` | BOOL | `false` |"), "{text}");
        assert!(!text.contains("vmodule"), "what is only accepted is not shown");
    }
}
