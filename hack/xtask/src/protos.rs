//! `crates/olm-registry/src/proto.rs`: messages, service trait, client and descriptor of `registry.proto`, compiled without protoc.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use protox::Compiler;

const HEAD: &str = "// Generated from crates/olm-registry/proto by `make generate`. Do not edit.\n";
const FOLDER: &str = "crates/olm-registry/proto";
const FILE: &str = "registry.proto";
/// Bytes of the descriptor in one line.
const LINE: usize = 32;

pub(crate) fn files(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let compile = |comments: bool| {
        let mut compiler = Compiler::new([root.join(FOLDER)])?;
        compiler.include_source_info(comments).include_imports(true).open_file(FILE)?;
        Ok::<_, protox::Error>(compiler)
    };
    let folder = tempfile::tempdir().context("cannot make a folder for generated sources")?;
    let messages = compile(true).with_context(|| format!("cannot compile {FILE}"))?.file_descriptor_set();
    tonic_prost_build::configure()
        .build_transport(false)
        .emit_rerun_if_changed(false)
        .codec_path("crate::codec::LimitedCodec")
        .out_dir(folder.path())
        .compile_fds(messages)
        .with_context(|| format!("cannot generate sources from {FILE}"))?;
    let sources = std::fs::read_to_string(folder.path().join("api.rs")).context("no generated source")?;
    let descriptor = compile(false)?.encode_file_descriptor_set();
    let mut text = format!("{HEAD}{sources}\n/// The compiled file, for server reflection.\n");
    text.push_str("pub const FILE_DESCRIPTOR_SET: &[u8] = b\"\\\n");
    for line in descriptor.chunks(LINE) {
        text.push_str("    ");
        for byte in line {
            match byte {
                // the compiler drops blanks at the beginning of a continued line
                b' ' => text.push_str("\\x20"),
                byte => write!(text, "{}", std::ascii::escape_default(*byte))?,
            }
        }
        text.push_str("\\\n");
    }
    text.push_str("\";\n");
    Ok(vec![(PathBuf::from("crates/olm-registry/src/proto.rs"), text)])
}
