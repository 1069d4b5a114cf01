#!/usr/bin/env bash
# Puts the files of a release into a folder, with their checksums: release.sh OUT VERSION PLATFORM=FOLDER…
# An archive a platform holds the programs; beside them lie the bills of materials that `make images` wrote, each overlay as
# one file, and the chart. The same sources give the same archives: names sorted, dates from SOURCE_DATE_EPOCH.
# OLM_TOOLS is the folder of `make tools` (for its kubectl).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -ge 3 ] || { echo "usage: release.sh OUT VERSION PLATFORM=FOLDER…" >&2; exit 2; }
out=$1 version=$2
shift 2
: "${SOURCE_DATE_EPOCH:?the date of the release in seconds since 1970}"

rm -rf "$out"
mkdir -p "$out"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

# the folder $staging/$1 as $out/$2
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$staging" -c "$1" | gzip -n -9 >"$out/$2"
}

for pair in "$@"; do
    platform=${pair%%=*} folder=${pair#*=}
    name=olm-rs-$version-${platform//\//-}
    mkdir "$staging/$name"
    for program in ${RELEASE_PROGRAMS:?the names of the programs}; do install -m 0755 "$folder/$program" "$staging/$name/"; done
    install -m 0644 LICENSE README.md "$staging/$name/"
    pack "$name" "$name.tar.gz"
done
# some of its files are links into manifests/
cp -rL manifests/chart "$staging/olm-rs"
pack olm-rs "olm-rs-chart-$version.tgz"
for overlay in manifests/overlays/*/; do
    "${OLM_TOOLS:?the folder of make tools}/kubectl" kustomize "$overlay" >"$out/install-$(basename "$overlay").yaml"
done
cp "$(dirname "$out")"/images/*.cdx.json "$out/"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$out:"
cat "$out/SHA256SUMS"
