#!/usr/bin/env bash
# Runs scenarios of this repository on the reference of OLM Classic and on classic-controller, in the lab beside the checkout
# (OLM_SHARED, ../shared), and prints where they differ. Both get fresh control planes on this machine, one after the other.
#
#   hack/compare-classic.sh <folder of classic-controller> [pattern of scenario names]
#
# OLM_TOOLS has the tools of `make tools-classic`. What the reference did (hack/lab-record.py) is kept in
# ${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/classic-records and used again while the scenario, the lab and the versions of the tools stay.
# A scenario in which the reference panicked is not compared; the end of the output names it. Needs root, as the lab does.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
lab=${OLM_SHARED:-$root/../shared}/classic
programs=$(cd "$1" && pwd)
only=${2:-.}
[ -f "$lab/classic.py" ] || { echo "SKIPPED: there is no lab in $lab; set OLM_SHARED"; exit 0; }

work=${CARGO_TARGET_DIR:-$root/target}/compare-classic
mkdir -p "$work"
work=$(cd "$work" && pwd)
rm -rf "$work"/{lab,crds,run} "$work"/recorded*
mkdir "$work/lab" "$work/crds"
cp -R "$lab"/{classic.py,classiclab,olmlab,profiles} "$work/lab/"
cp -R "$root/tests/acceptance-classic/scenarios" "$work/lab/"
cp "$root"/manifests/classic/operators.coreos.com_*.yaml "$work/crds/"
export LAB_K8S_BIN=$OLM_TOOLS LAB_OPM=$OLM_TOOLS/opm LAB_REF_BIN=$OLM_TOOLS LAB_CAND_CRDS=$work/crds LAB_CAND_BIN=$programs
python=$("$root/hack/lab-python.sh" "$work/../venv")
cd "$work/lab"

# what decides a record besides its scenario
profile=$root/tests/acceptance-classic/reference.json
version=$(cat "$profile" classic.py {classiclab,olmlab}/*.py classiclab/kwok.yaml "$work"/crds/* "$root"/hack/tools/{classic,kubernetes,kwok,opm,registry}/{go.mod,go.sum} \
    "$root"/hack/tools/classic/build.conf | sha256sum | cut -c1-16)
recorded=$work/recorded
failed=0
"$python" "$root/hack/lab-record.py" --profile "$profile" --version "$version" --cache "${XDG_CACHE_HOME:-$HOME/.cache}/olm-rs/classic-records" \
    --out "$recorded" --only "$only" --jobs "${JOBS:-4}" --run-dir "$work/run" || failed=$?
[ -d "$recorded/classic" ] || exit "$failed"

names=$(find "$recorded/classic" -name '*.json' | sed 's|.*/||; s|\.json$||' | paste -sd'|')
if [ -n "$names" ]; then
    "$python" classic.py compare --profile classic-controller --recorded "$recorded" --only "^($names)\$" --jobs "${JOBS:-4}" \
        --run-dir "$work/run" --accept "$root/tests/acceptance-classic/compared.yaml" --save "$work/ours" --diffs 5 || failed=$?
else
    failed=1
fi
if [ -s "$recorded/missing" ]; then
    echo "NOT COMPARED: $(wc -l <"$recorded/missing") scenarios:"
    sed 's/^/    /' "$recorded/missing"
fi
exit "$failed"
