//! `olm-images`: what `make images` runs once the programs are built.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use olm_images::image::About;
use olm_images::platform::Platform;
use olm_images::push::Way;
use olm_images::release::{self, Made, Order, Target};

/// Makes OCI images of built programs, without a container daemon, and pushes them.
#[derive(Debug, Parser)]
// no `version` here: `--version` is that of the images
#[command(name = "olm-images")]
struct Arguments {
    /// a program to make an image of (repeatable)
    #[arg(long = "program", required = true, value_name = "NAME")]
    programs: Vec<String>,
    /// where the programs of a platform are (repeatable)
    #[arg(long = "platform", required = true, value_name = "linux/ARCH=FOLDER", value_parser = platform)]
    platforms: Vec<(Platform, PathBuf)>,
    /// the images' version, which is their tag too
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    version: String,
    /// the commit that the programs were built from
    #[arg(long)]
    revision: Option<String>,
    /// the date of everything, in seconds since 1970
    #[arg(long, env = "SOURCE_DATE_EPOCH", default_value_t = 0)]
    created: u64,
    /// gzip's level for the layers
    #[arg(long, default_value_t = 6, value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(1..=9))]
    compression: u32,
    /// where to write the image layouts and the bills of materials
    #[arg(long, default_value = "target/images")]
    output: PathBuf,
    /// also push to this registry and path, as PATH/NAME:VERSION; credentials are those of `docker login`
    #[arg(long, value_name = "REGISTRY/PATH")]
    push: Option<String>,
    /// the registry has no TLS
    #[arg(long, requires = "push")]
    plain_http: bool,
    /// a file of certificate authorities (PEM) to trust beside the system's
    #[arg(long, requires = "push", value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

fn platform(text: &str) -> Result<(Platform, PathBuf)> {
    let (platform, folder) = text.split_once('=').context("it is written linux/amd64=FOLDER")?;
    Ok((platform.parse()?, folder.into()))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(made) => {
            use std::io::Write as _;
            let mut out = std::io::stdout().lock();
            for Made { program, digest, bytes, pushed } in made {
                let where_to = pushed.map(|reference| format!("  {reference}")).unwrap_or_default();
                let _closed_pipe = writeln!(
                    out,
                    "{program:<22} {:>6.1} MiB  {digest}{where_to}",
                    bytes as f64 / f64::from(1 << 20)
                );
            }
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("error: {problem:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<Vec<Made>> {
    // no second provider is in the tree; installing it twice is the only way to fail
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let order = Order {
        workspace: std::env::current_dir()?,
        programs: arguments.programs,
        platforms: arguments.platforms,
        about: About {
            version: arguments.version,
            revision: arguments.revision.filter(|text| !text.is_empty()),
            created: arguments.created,
            source: env!("CARGO_PKG_REPOSITORY").to_owned(),
            licenses: env!("CARGO_PKG_LICENSE").to_owned(),
        },
        output: arguments.output,
        dynamic: false,
        compression: arguments.compression,
    };
    let way = Way { plain_http: arguments.plain_http, ca_file: arguments.ca_file, docker_config: None };
    let target = arguments.push.map(|to| Target { to, way });
    release::make(&order, target.as_ref()).await
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use clap::CommandFactory as _;

    use super::*;

    /// The command line that `make images SETTINGS…` gives to this program. `printf` in its place prints it.
    fn from_make(settings: &[&str]) -> Vec<String> {
        let output = Command::new("make")
            .args([
                "--silent",
                "--old-file=static",
                "images",
                "CARGO=true",
                r"olm_images=printf '%s\n' olm-images",
            ])
            .args(settings)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
            // of the make and the shell that run this test
            .env_clear()
            .envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn args_are_consistent() {
        Arguments::command().debug_assert();
    }

    /// cargo takes `strip` of a profile away from each package that has settings of its own there
    #[test]
    fn programs_of_a_release_have_no_symbols() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml")).unwrap();
        let manifest: toml::Value = toml::from_str(&text).unwrap();
        let release = &manifest["profile"]["release"];
        for program in
            ["catalogd", "operator-controller", "cluster-operator", "classic-controller", "kubectl-olm"]
        {
            let profile = release["package"].get(program).unwrap_or(release);
            assert_eq!(profile.get("strip").and_then(toml::Value::as_bool), Some(true), "{program}");
        }
    }

    #[test]
    fn args_of_make_images_are_accepted() {
        let images = |settings: &[&str]| {
            let words = from_make(settings);
            Arguments::try_parse_from(&words)
                .unwrap_or_else(|error| panic!("{settings:?}: {words:?}: {error}"))
        };
        let plain = images(&["PLATFORMS=linux/amd64"]);
        assert_eq!(
            plain.programs,
            ["catalogd", "operator-controller", "cluster-operator", "classic-controller"]
        );
        assert_eq!(plain.version, env!("CARGO_PKG_VERSION"));
        assert_eq!(plain.output, PathBuf::from("target/images"));
        assert_eq!(plain.compression, 6);
        assert!(plain.push.is_none() && plain.ca_file.is_none() && !plain.plain_http);
        let [(Platform::Amd64, folder)] = &plain.platforms[..] else { panic!("{:?}", plain.platforms) };
        assert!(folder.ends_with("release"), "{}", folder.display());

        let pushed = images(&[
            "PLATFORMS=linux/amd64 linux/arm64",
            "PROFILE=dev",
            "VERSION=1.2.3",
            "PUSH=registry.example.com/olm",
            "CA_FILE=a folder/ca.pem",
            "PLAIN_HTTP=1",
        ]);
        assert_eq!(pushed.version, "1.2.3");
        assert_eq!(pushed.compression, 1, "programs of tests are large and stay here");
        assert_eq!(pushed.push.as_deref(), Some("registry.example.com/olm"));
        assert_eq!(pushed.ca_file, Some(PathBuf::from("a folder/ca.pem")));
        assert!(pushed.plain_http);
        let platforms: Vec<Platform> = pushed.platforms.iter().map(|(platform, _)| *platform).collect();
        assert_eq!(platforms, [Platform::Amd64, Platform::Arm64]);
        assert!(
            pushed.platforms.iter().all(|(_, folder)| folder.ends_with("debug")),
            "{:?}",
            pushed.platforms
        );
    }

    #[test]
    fn args_errors_name_the_flag() {
        for (words, flag) in [
            (&["--platform=linux/amd64=x"][..], "--program"),
            (&["--program=catalogd"], "--platform"),
            (&["--program=catalogd", "--platform=linux/amd64"], "linux/amd64=FOLDER"),
            (&["--program=catalogd", "--platform=linux/amd64=x", "--plain-http"], "--push"),
        ] {
            let error = Arguments::try_parse_from(["olm-images"].iter().chain(words)).unwrap_err();
            assert!(error.to_string().contains(flag), "{words:?}: {error}");
        }
    }
}
