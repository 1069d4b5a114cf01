//! `image verify`: checks an image against a signature policy, with the code of the controllers.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use olm_oci::{Error, SignaturePolicy, parse_reference};
use olm_runtime::error_text::chain;

use crate::CommandOutput;
use crate::failure::CommandError;
use crate::sources::Registry;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Check whether a signature policy accepts an image, and who signed it
    Verify(Arguments),
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// An image with its registry and a tag or digest
    image: String,
    /// The policy, as catalogd and operator-controller are given it
    #[arg(long, value_name = "FILE")]
    signature_policy: PathBuf,
    #[command(flatten)]
    registry: Registry,
}

pub(crate) async fn run(Verb::Verify(arguments): &Verb) -> Result<CommandOutput, CommandError> {
    let policy = SignaturePolicy::File(arguments.signature_policy.clone());
    let puller = arguments.registry.access().puller_under(policy);
    let asked = parse_reference(&arguments.image).map_err(|error| {
        CommandError::Usage(format!("{}; write quay.io/example/bundle:tag", chain(&error)))
    })?;
    let failed = |error: Error| match error {
        // it names the file
        Error::Policy(cause) => CommandError::Usage(cause.to_string()),
        other => CommandError::Unreachable(chain(&other)),
    };
    puller.check_policy().map_err(failed)?;
    let canonical = puller.resolve(&asked).await.map_err(failed)?;
    match puller.verify(&asked, &canonical).await {
        Ok(verified) => {
            let why = match verified.signer() {
                Some(signer) => format!("signed by {signer}"),
                None => "the policy asks for no signature of it".to_owned(),
            };
            Ok(CommandOutput { text: format!("{canonical} is accepted: {why}\n"), yes: true })
        }
        Err(error) if error.is_rejection() => Ok(CommandOutput { text: format!("{error}\n"), yes: false }),
        Err(error) => Err(failed(error)),
    }
}
