#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a bounded time. Needs the pinned Rust and a C++ compiler (for libFuzzer itself), and
# neither cargo-fuzz nor a nightly tool chain: coverage is a pass of LLVM that the stable compiler runs, too.
#
#   SECONDS_EACH=60   time of each target; 0 only builds
#   ONLY=regex        only targets that match
#   JOBS=2            how many run at the same time
#   WORK=dir          keeps grown corpora, logs and findings there (default: target/fuzz-work)
#   SANITIZER=address also finds wrong memory accesses of dependencies, which are all compiled anew for it
#
# Ends with a table and, if anything was found, with how to see it again and exit code 1. A panic, a hang (10 s for one input)
# and too much memory (1.5 GiB) are findings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

each=${SECONDS_EACH:-60} only=${ONLY:-.} jobs=${JOBS:-2} sanitizer=${SANITIZER:-}
target_dir=${CARGO_TARGET_DIR:-$PWD/target}
work=${WORK:-$target_dir/fuzz-work}
targets=$(sed -n 's/^path = "targets\/\(.*\)\.rs"$/\1/p' fuzz/Cargo.toml | grep -E "$only") || { echo "fuzz: no target matches $only" >&2; exit 2; }

# parsers and libFuzzer optimised; dependencies, and what is mostly Kubernetes, as in every other build
options=()
for package in olm-{core,yaml,fbc,resolver,solver,classic,bundle,crd-safety,rollout,oci,fuzz} libfuzzer-sys; do
    options+=(--config "profile.dev.package.$package.opt-level=3")
done
export RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/rustc.sh
programs=$target_dir/debug
if [ -n "$sanitizer" ]; then
    host=$(rustc -vV | sed -n 's/^host: //p')
    target_dir=$target_dir/fuzz-$sanitizer
    programs=$target_dir/$host/debug
    # a compiler flag that is not stable; nothing else is
    export RUSTC_BOOTSTRAP=1 RUSTFLAGS="${RUSTFLAGS:-} -Zsanitizer=$sanitizer"
    options+=(--target "$host" --target-dir "$target_dir")
fi
for name in $targets; do options+=(--bin "fuzz-${name//_/-}"); done
cargo build ${CI:+--locked} -p olm-fuzz --features libfuzzer "${options[@]}"
[ "$each" != 0 ] || exit 0

# one target: its log ends with a line `exit N`
fuzz() {
    local name=$1 dir=$work/$1 dictionary=fuzz/dictionaries/$1.dict code=0
    mkdir -p "$dir/corpus" "$dir/found"
    "$programs/fuzz-${name//_/-}" -artifact_prefix="$dir/found/" -max_total_time="$each" -timeout=10 -rss_limit_mb=1536 \
        -max_len=16384 -print_final_stats=1 ${dictionary:+$([ ! -f "$dictionary" ] || echo "-dict=$dictionary")} \
        "$dir/corpus" "fuzz/seeds/$name" >"$dir/log" 2>&1 || code=$?
    echo "exit $code" >>"$dir/log"
}
for name in $targets; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    echo "fuzz: $name, $each s" >&2
    fuzz "$name" &
done
wait

stat_of() { sed -n "s/^stat::$1: *//p" "$2" | tail -1; }
printf '\n| target | executions | per second | coverage | corpus | found |\n|---|---:|---:|---:|---:|---|\n'
failed=()
for name in $targets; do
    log=$work/$name/log found=-
    if [ "$(tail -n 1 "$log")" != "exit 0" ]; then
        failed+=("$name")
        found=$(sed -n 's/^SUMMARY: libFuzzer: //p' "$log" | tail -1)
    fi
    coverage=$(grep -oE 'cov: [0-9]+' "$log" | tail -1 | cut -d' ' -f2) || true
    executions=$(stat_of number_of_executed_units "$log") rate=$(stat_of average_exec_per_sec "$log")
    printf '| %s | %s | %s | %s | %s | %s |\n' "$name" "${executions:-?}" "${rate:-?}" "${coverage:-?}" \
        "$(find "$work/$name/corpus" -type f | wc -l)" "${found:-see its log}"
done
[ ${#failed[@]} -gt 0 ] || exit 0
printf '\nFAILED: %s\n' "${failed[*]}"
for name in "${failed[@]}"; do
    input=$(sed -n 's/.*Test unit written to //p' "$work/$name/log" | tail -1)
    printf '  %s: the end of %s says what; again with\n    %s %s\n' "$name" "$work/$name/log" \
        "$programs/fuzz-${name//_/-}" "${input:-"$work/$name/found/…"}"
done
exit 1
