#!/usr/bin/env bash
# RUSTC_WORKSPACE_WRAPPER of `make static`: links the programs of the workspace with everything they need, so that they start
# in an image that has no loader and no libraries, and no other program: the simulation replaces functions of the C library.
# Crates of others are those of any other build, so cargo compiles none of them a second time, as it would for RUSTFLAGS and
# --target. The crates of the workspace are compiled again by the first build with it, so a build server has it from the start
# (.ci/run), which also lets clippy compile them (OLM_CLIPPY=1): it reads each crate once instead of twice.
set -euo pipefail
shopt -s extglob
case " $* " in
    *" --crate-name "@(catalogd|operator_controller|cluster_operator|classic_controller|kubectl_olm)" "*" --crate-type bin "*)
        set -- "$@" -C target-feature=+crt-static ;;
esac
if [ -n "${OLM_CLIPPY:-}" ]; then set -- clippy-driver "$@" -D warnings; fi
exec "$@"
