//! Processes that die while they read an image.

use std::path::Path;

use anyhow::{Result, ensure};
use olm_kit::{Process, eventually};

use crate::package::LIMIT;

/// Kills the process and starts it again, each time when it reads the image whose attempts this file records, until it has died twice.
pub async fn kill_twice_while_reading(process: &mut Process, record: &Path) -> Result<()> {
    for deaths in ["1", "2"] {
        eventually(&format!("attempt {deaths} is recorded"), LIMIT, || async {
            let recorded = std::fs::read_to_string(record).unwrap_or_default();
            ensure!(recorded.lines().next() == Some(deaths), "{recorded:?}");
            Ok(())
        })
        .await?;
        process.kill9();
        process.relaunch()?;
    }
    Ok(())
}
