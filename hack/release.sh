#!/usr/bin/env bash
# Puts the files of a release into a folder, with their checksums: release.sh OUT VERSION PLATFORM=FOLDER…
# An archive a platform holds the programs; beside them lie the bills of materials that `make images` wrote and the CRDs.
# The same programs give the same archives: names sorted, dates from SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -ge 3 ] || { echo "usage: release.sh OUT VERSION PLATFORM=FOLDER…" >&2; exit 2; }
out=$1 version=$2
shift 2
: "${SOURCE_DATE_EPOCH:?the date of the release in seconds since 1970}"

rm -rf "$out"
mkdir -p "$out"
for pair in "$@"; do
    platform=${pair%%=*} folder=${pair#*=}
    name=olm-rs-$version-${platform//\//-}
    staging=$(mktemp -d)
    mkdir "$staging/$name"
    for program in ${RELEASE_PROGRAMS:?the names of the programs}; do install -m 0755 "$folder/$program" "$staging/$name/"; done
    install -m 0644 LICENSE README.md "$staging/$name/"
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$staging" -c "$name" | gzip -n -9 >"$out/$name.tar.gz"
    rm -rf "$staging"
done
cp target/images/*.cdx.json "$out/"
for file in manifests/crds/*.yaml; do
    cat "$file"
    printf -- '---\n'
done >"$out/crds.yaml"
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$out:"
cat "$out/SHA256SUMS"
