#!/usr/bin/env bash
# Builds catalogd, operator-controller and cluster-operator of an earlier commit (dev profile) and prints the folder that holds
# them (last line of standard output; progress goes to standard error).
#
#   hack/old-programs.sh <commit>
#
# Where: ${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/programs/<commit>-dev, renamed into place when complete. The source is a git
# worktree in a temporary folder. cargo's target folder is kept beside the programs, so that the next commit rebuilds only the
# crates of this repository; it is not the checkout's, whose programs and fingerprints a build of the same packages would replace.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/programs
programs="catalogd operator-controller cluster-operator"

say() { printf '%s\n' "$*" >&2; }
fail() { say "old programs: $*"; exit 1; }

[ $# -eq 1 ] || fail "usage: hack/old-programs.sh <commit>"
commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") ||
    fail "commit $1 is not in this clone; fetch it (git fetch --depth=1 origin <full commit>) or give FROM=<commit>"
done_dir=$cache/$commit-dev
finished() { if [ -d "$done_dir" ]; then printf '%s\n' "$done_dir"; exit; fi; }
finished

mkdir -p "$cache"
exec 9>"$cache/lock"
if command -v flock >/dev/null && ! flock -n 9; then
    say "old programs: another build is running; waiting for it"
    flock 9
    finished
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/olm-old-programs-XXXXXX")
cleanup() {
    rm -rf "$work"
    git -C "$root" worktree prune
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "old programs: building $programs of $(git -C "$root" log -1 --format='%h (%cs)' "$commit")"
git -C "$root" worktree add --quiet --detach "$work/source" "$commit"
started=$SECONDS
packages=()
for program in $programs; do packages+=(-p "$program"); done
(
    cd "$work/source"
    CARGO_TARGET_DIR=$cache/target CARGO_INCREMENTAL=0 "${CARGO:-cargo}" build --locked --profile dev "${packages[@]}" >&2 9>&-
)
staging=$done_dir.partial
rm -rf "$staging"
mkdir "$staging"
for program in $programs; do cp "$cache/target/debug/$program" "$staging/"; done
mv "$staging" "$done_dir"
say "old programs: built in $((SECONDS - started)) s"
printf '%s\n' "$done_dir"
