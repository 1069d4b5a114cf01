#!/usr/bin/env bash
# Runs scenarios of this repository on the reference of OLM Classic and on classic-controller, in the lab beside the checkout
# (OLM_SHARED, ../shared), and prints where they differ. Both get fresh control planes on this machine, one after the other.
#
#   hack/compare-classic.sh <folder of classic-controller> [pattern of scenario names]
#
# OLM_TOOLS has the tools of `make tools-classic`. What the reference did is kept in target/compare-classic and used again while
# the scenarios stay; delete the folder to run the reference again. Needs root, as the lab does.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lab=${OLM_SHARED:-$root/../shared}/classic
programs=$(cd "$1" && pwd)
only=${2:-.}
[ -f "$lab/classic.py" ] || { echo "SKIPPED: there is no lab in $lab; set OLM_SHARED"; exit 0; }

work=${CARGO_TARGET_DIR:-$root/target}/compare-classic
mkdir -p "$work"
rm -rf "$work"/{lab,crds,run}
mkdir "$work/lab" "$work/crds"
cp -R "$lab"/{classic.py,classiclab,olmlab,profiles} "$work/lab/"
cp -R "$root/tests/acceptance-classic/scenarios" "$work/lab/"
cp "$root"/manifests/classic/operators.coreos.com_*.yaml "$work/crds/"
export LAB_K8S_BIN=$OLM_TOOLS LAB_OPM=$OLM_TOOLS/opm LAB_REF_BIN=$OLM_TOOLS LAB_CAND_CRDS=$work/crds LAB_CAND_BIN=$programs
python=$("$root/hack/lab-python.sh" "$work/../venv")
cd "$work/lab"

recorded=$work/recorded-$(cat scenarios/*.yaml "$root/tests/acceptance-classic/reference.json" | sha256sum | cut -c1-16)
names=$("$python" classic.py list | awk '$2 !~ /:$/ { print $2 }' | grep -E "$only") ||
    { echo "compare-classic: no scenario matches ONLY=$only; \`$python classic.py list\` in $work/lab names them" >&2; exit 1; }
missing=$(for name in $names; do [ -f "$recorded/classic/$name.json" ] || echo "$name"; done | paste -sd'|')
if [ -n "$missing" ]; then
    "$python" classic.py record --profile "$root/tests/acceptance-classic/reference.json" --only "^($missing)\$" --jobs "${JOBS:-4}" \
        --out "$recorded" --run-dir "$work/run"
fi
"$python" classic.py compare --profile classic-controller --recorded "$recorded" --only "$only" --jobs "${JOBS:-4}" --run-dir "$work/run" \
    --accept "$root/tests/acceptance-classic/compared.yaml" --save "$work/ours" --diffs 5
