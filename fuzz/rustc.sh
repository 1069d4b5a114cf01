#!/bin/sh
# Compiles a crate of this workspace with libFuzzer's coverage; cargo calls it in place of rustc (RUSTC_WORKSPACE_WRAPPER), so that
# dependencies stay those of every other build. Generic code of dependencies is compiled into our crates, so it is covered, too.
case " $* " in
    # these run while building, without libFuzzer
    *" build_script_build "* | *" proc-macro "*) exec "$@" ;;
esac
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0
