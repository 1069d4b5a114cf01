//! `version`: the version of the plugin.

use clap::Args;
use serde_json::json;

use super::output::Output;
use crate::CommandOutput;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  kubectl olm version\n  kubectl olm version -o json\n\n\
                  Exit codes: 0 printed.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> CommandOutput {
    let version = env!("CARGO_PKG_VERSION");
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let document = json!({"version": version, "platform": platform});
    let people = |_| format!("kubectl-olm {version} ({platform})\n");
    CommandOutput { text: arguments.output.print(&document, || vec![version.to_owned()], people), yes: true }
}
