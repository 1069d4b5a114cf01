//! A release: programs of several platforms to images on disk and, on request, in a registry.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::image::{self, About};
use crate::layout;
use crate::platform::Platform;
use crate::push::{self, Way};
use crate::sbom::Crates;

/// The file beside the layouts with a line `<program> <digest>` for each image.
const DIGESTS: &str = "digests.txt";

/// What is made.
#[derive(Debug, Clone)]
pub struct Order {
    /// where `Cargo.toml` and `Cargo.lock` are
    pub workspace: PathBuf,
    /// names of packages that have a program of the same name
    pub programs: Vec<String>,
    /// where the programs of each platform are
    pub platforms: Vec<(Platform, PathBuf)>,
    pub about: About,
    /// a folder for layouts, `<output>/<program>`, for the bills, `<output>/<program>-<architecture>.cdx.json`, and for the digests,
    /// `<output>/digests.txt`
    pub output: PathBuf,
    /// take programs that need libraries, too
    pub dynamic: bool,
    /// gzip's level for the layers, 1 to 9
    pub compression: u32,
}

/// A registry and the path there, and how to get there: images become `<to>/<program>:<version>`.
#[derive(Debug, Clone)]
pub struct Target {
    /// `registry.example.com/team`
    pub to: String,
    pub way: Way,
}

/// One image that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    pub program: String,
    /// of the index
    pub digest: String,
    /// compressed, all platforms
    pub bytes: usize,
    /// where it was pushed to
    pub pushed: Option<String>,
}

/// Makes the images of `order`, in its order; pushes each to `target` if there is one.
///
/// # Errors
/// When a program is missing or not fit for an image, or something cannot be written or pushed.
pub async fn make(order: &Order, target: Option<&Target>) -> Result<Vec<Made>> {
    ensure!(!order.programs.is_empty(), "no program is named");
    ensure!(!order.platforms.is_empty(), "no platform is named");
    let crates: Vec<Crates> = order
        .platforms
        .iter()
        .map(|(platform, _)| Crates::read_workspace(&order.workspace, platform.target()))
        .collect::<Result<_>>()?;
    let mut all = Vec::new();
    for program in &order.programs {
        let mut parts = Vec::new();
        let mut referrers = Vec::new();
        let mut description = "";
        for ((platform, folder), crates) in order.platforms.iter().zip(&crates) {
            description = crates.description(program)?;
            let path = folder.join(program);
            let bytes = std::fs::read(&path).with_context(|| {
                format!("there is no program {} ({platform}); build it first", path.display())
            })?;
            platform.check(&path, &bytes, order.dynamic)?;
            let bill = crates.bill(program, &order.about)?;
            let part = image::image(
                program,
                description,
                &bytes,
                &bill,
                *platform,
                &order.about,
                order.compression,
            )?;
            referrers.push(image::referrer(&bill, &part.manifest));
            std::fs::create_dir_all(&order.output)?;
            let path = order.output.join(format!("{program}-{}.cdx.json", platform.architecture()));
            std::fs::write(&path, &bill).with_context(|| format!("cannot write {}", path.display()))?;
            parts.push((*platform, part));
        }
        let index = image::index(program, description, &parts, &order.about)?;
        let parts: Vec<_> = parts.iter().map(|(_, part)| part).collect();
        layout::write(&order.output.join(program), &index, &order.about.version, &parts, &referrers)?;
        let mut pushed = None;
        if let Some(target) = target {
            let reference = format!("{}/{program}:{}", target.to.trim_end_matches('/'), order.about.version);
            push::push(&reference, &index, &parts, &referrers, &target.way).await?;
            pushed = Some(reference);
        }
        let bytes = parts.iter().flat_map(|part| &part.blobs).map(|blob| blob.bytes.len()).sum();
        all.push(Made { program: program.clone(), digest: index.digest, bytes, pushed });
    }
    let digests: String = all.iter().map(|made| format!("{} {}\n", made.program, made.digest)).collect();
    let path = order.output.join(DIGESTS);
    std::fs::write(&path, digests).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(all)
}
