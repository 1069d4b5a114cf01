#!/usr/bin/env bash
# RUSTC_WORKSPACE_WRAPPER of `make static`: links the programs of the workspace with everything they need, so that they start
# in an image that has no loader and no libraries. Only the programs: crates of others are those of any other build, so cargo
# compiles none of them a second time, as it would for RUSTFLAGS and --target. The crates of the workspace are compiled again by
# the first build with it, so a build server has it from the start (.ci/run).
set -euo pipefail
case " $* " in
    # cargo asks for the properties of the target; build scripts run on this machine
    *" --crate-name ___ "* | *" --crate-name build_script_"*) ;;
    *" --crate-type bin "*) set -- "$@" -C target-feature=+crt-static ;;
esac
exec "$@"
