//! The plan that `install` and `rollback` make before they change anything.

use std::time::Duration;

use clap::Args;
use kube::Client;
use olm_api::ClusterExtension;
use olm_install::account::Account;

use crate::cmd::plan::preview_of;
use crate::failure::{CommandError, print_note};
use crate::sources::{Cache, Cluster, Controller, Registry, Rendering, Sources};

/// The longest time for a plan; a registry that this machine cannot reach must not hold up a change.
const PLAN_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(crate) struct Planned {
    /// Make no plan: change the extension even if the controller would refuse the change
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    controller: Controller,
    #[command(flatten)]
    rendering: Rendering,
    #[command(flatten)]
    registry: Registry,
    #[command(flatten)]
    cache: Cache,
}

impl Planned {
    pub(crate) fn is_forced(&self) -> bool {
        self.force
    }

    /// Makes the plan of `extension` as it will be. What refuses it is an error; what cannot be planned from here is a note. `doing` is
    /// the verb. Errors that contain `passed_over` do not count.
    pub(crate) async fn check(
        &self,
        client: &Client,
        cluster: &Cluster,
        (extension, account): (&ClusterExtension, Option<&Account>),
        doing: &str,
        passed_over: Option<&str>,
    ) -> Result<(), CommandError> {
        if self.force {
            return Ok(());
        }
        let sources = Sources::of_cluster(cluster, &self.registry, &self.cache);
        let plan = preview_of(client, extension, account, (self.controller, self.rendering), &sources);
        let preview = match tokio::time::timeout(PLAN_TIMEOUT, plan).await {
            Ok(Ok(preview)) => preview,
            Ok(Err(failure)) => {
                print_note(&format!("note: no plan was made: {failure}"));
                return Ok(());
            }
            Err(_) => {
                print_note(&format!("note: no plan was made within {} s", PLAN_TIMEOUT.as_secs()));
                return Ok(());
            }
        };
        for notice in preview.notices.iter().filter(|notice| notice.kind.is_of_first_install()) {
            print_note(&format!("note: {}", notice.text));
        }
        let is_passed_over = |text: &String| passed_over.is_some_and(|over| text.contains(over));
        let refused: Vec<String> = preview.refused.into_iter().filter(|text| !is_passed_over(text)).collect();
        if refused.is_empty() {
            return Ok(());
        }
        if !preview.unread.is_empty() {
            print_note(&format!("note: no plan was made: {}", preview.unread.join("; ")));
            return Ok(());
        }
        Err(CommandError::NotFound(refused_text(doing, &refused)))
    }
}

/// The error of a refused plan.
fn refused_text(doing: &str, refused: &[String]) -> String {
    let reasons: String = refused.iter().map(|text| format!("\n  {}", text.replace('\n', "\n  "))).collect();
    format!("{doing} would be refused, so nothing was changed; fix this, or use --force:{reasons}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_plan_names_reasons_and_remedy() {
        let refused = ["no bundle\nsee there".to_owned(), "Secret a/b: taken".to_owned()];
        assert_eq!(
            refused_text("install", &refused),
            "install would be refused, so nothing was changed; fix this, or use --force:\n  no bundle\n  see there\n  Secret a/b: taken"
        );
    }
}
