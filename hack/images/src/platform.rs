//! Platforms, and whether a program is made for one.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use object::{Architecture, Object as _, ObjectKind};

/// What an image runs on. Only Linux; the two architectures that clusters have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// `linux/amd64`
    Amd64,
    /// `linux/arm64`
    Arm64,
}

impl Platform {
    /// The names of OCI and of rustc's target, and what executables are made for.
    fn names(self) -> (&'static str, &'static str, Architecture) {
        match self {
            Self::Amd64 => ("amd64", "x86_64-unknown-linux-gnu", Architecture::X86_64),
            Self::Arm64 => ("arm64", "aarch64-unknown-linux-gnu", Architecture::Aarch64),
        }
    }

    /// The name that OCI uses: `amd64` or `arm64`.
    pub fn architecture(self) -> &'static str {
        self.names().0
    }

    /// The name of rustc's target.
    pub fn target(self) -> &'static str {
        self.names().1
    }

    /// Checks that `program` is an executable of this platform that needs no other file to start: an image has no
    /// loader and no libraries. `dynamic` lets one pass that does (for trying things out).
    ///
    /// # Errors
    /// When it is something else; the error message names the file and what to do.
    pub fn check(self, program: &Path, bytes: &[u8], dynamic: bool) -> Result<()> {
        let name = program.display();
        let file = object::File::parse(bytes).with_context(|| format!("{name} is no executable"))?;
        ensure!(
            file.architecture() == self.names().2
                && matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic),
            "{name} is no program of {self}: it is a {:?} of {:?}; build it with `--target {}`",
            file.kind(),
            file.architecture(),
            self.target(),
        );
        ensure!(
            dynamic || !needs_loader(bytes),
            "{name} is linked dynamically, so it cannot start in an image without libraries; build it with \
             RUSTFLAGS='-C target-feature=+crt-static' and `--target {}`",
            self.target()
        );
        Ok(())
    }
}

/// Whether the program asks for a loader (`PT_INTERP`).
fn needs_loader(bytes: &[u8]) -> bool {
    use object::read::elf::{FileHeader as _, ProgramHeader as _};
    let Ok(header) = object::elf::FileHeader64::<object::Endianness>::parse(bytes) else { return true };
    let Ok(endian) = header.endian() else { return true };
    let Ok(segments) = header.program_headers(endian, bytes) else { return true };
    segments.iter().any(|segment| segment.p_type(endian) == object::elf::PT_INTERP)
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "linux/{}", self.architecture())
    }
}

impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "linux/amd64" => Ok(Self::Amd64),
            "linux/arm64" => Ok(Self::Arm64),
            other => bail!("unknown platform {other:?}: linux/amd64 and linux/arm64 are known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_names_are_parsed_and_printed() {
        for platform in [Platform::Amd64, Platform::Arm64] {
            assert_eq!(platform.to_string().parse::<Platform>().unwrap(), platform);
        }
        let problem = "windows/amd64".parse::<Platform>().unwrap_err();
        assert_eq!(
            problem.to_string(),
            "unknown platform \"windows/amd64\": linux/amd64 and linux/arm64 are known"
        );
    }

    #[test]
    fn platform_check_rejects_programs_that_need_a_loader() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let here = if cfg!(target_arch = "x86_64") { Platform::Amd64 } else { Platform::Arm64 };
        let there = if cfg!(target_arch = "x86_64") { Platform::Arm64 } else { Platform::Amd64 };
        if cfg!(not(target_feature = "crt-static")) {
            let problem = here.check(&path, &bytes, false).unwrap_err().to_string();
            assert!(problem.contains("is linked dynamically"), "{problem}");
        }
        here.check(&path, &bytes, true).unwrap();
        let problem = there.check(&path, &bytes, true).unwrap_err().to_string();
        assert!(problem.contains("is no program of"), "{problem}");
        let problem = here.check(Path::new("notes.txt"), b"#!/bin/sh\n", true).unwrap_err().to_string();
        assert_eq!(problem, "notes.txt is no executable");
    }
}
