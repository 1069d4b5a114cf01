#!/usr/bin/env bash
# The files of a release in a folder, with their checksums: release.sh OUT VERSION PLATFORM=FOLDER…
#
# linux/ARCH=FOLDER holds all programs; darwin/ARCH=FOLDER holds kubectl-olm alone. Every file names the images of VERSION in REGISTRY,
# whatever the repository's files name: a copy of manifests/ is stamped, and overlays and chart are made from it. The same
# sources give the same files: names sorted, dates from SOURCE_DATE_EPOCH.
#
# OLM_TOOLS      the folder of `make tools` (kubectl; helm for PUSH)
# OLM_RELEASE    the program olm-release
# IMAGES         the folder that `make images` wrote
# REGISTRY       where the images are, as registry/path
# PUSH           registry/path: also push the chart, as PUSH/charts/olm-rs:VERSION; CA_FILE and PLAIN_HTTP as for `make images`
# COMPRESSION    gzip's level for the archives; default: 6
# PLUGIN_URL     where the archives of the plugin will be; default: the release's page
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[ $# -ge 3 ] || { echo "usage: release.sh OUT VERSION PLATFORM=FOLDER…" >&2; exit 2; }
out=$1 version=$2
shift 2
: "${SOURCE_DATE_EPOCH:?the date of the release in seconds since 1970}"
: "${OLM_TOOLS:?the folder of make tools}" "${OLM_RELEASE:?the program olm-release}" "${IMAGES:?the folder of make images}"
registry=${REGISTRY:-ghcr.io/olm-rs}

rm -rf "$out"
mkdir -p "$out"
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

# pack FOLDER NAME FILE…: files of $staging/FOLDER as $out/NAME
pack() {
    local folder=$1 name=$2
    shift 2
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$staging/$folder" -c "$@" | gzip -n "-${COMPRESSION:-6}" >"$out/$name"
}

for pair in "$@"; do
    platform=${pair%%=*} folder=${pair#*=}
    if [[ $platform == linux/* ]]; then
        name=olm-rs-$version-${platform//\//-}
        mkdir "$staging/$name"
        for program in ${RELEASE_PROGRAMS:?the names of the programs}; do install -m 0755 "$folder/$program" "$staging/$name/"; done
        install -m 0644 LICENSE README.md "$staging/$name/"
        pack . "$name.tar.gz" "$name"
    fi
    # the plugin for krew: its files, without a folder
    archive=$("$OLM_RELEASE" archive "$platform" --version "$version")
    mkdir "$staging/plugin"
    install -m 0755 "$folder/kubectl-olm" "$staging/plugin/"
    install -m 0644 LICENSE "$staging/plugin/"
    pack plugin "$archive" kubectl-olm LICENSE
    rm -r "$staging/plugin"
    "$OLM_RELEASE" bill kubectl-olm "$platform" --version "$version" >"$out/${archive%.tar.gz}.cdx.json"
done
"$OLM_RELEASE" krew "$out" --version "$version" ${PLUGIN_URL:+--base "$PLUGIN_URL"} >"$out/olm.yaml"

cp -r manifests "$staging/manifests"
# the chart's links into manifests/ become files
rm -r "$staging/manifests/chart"
cp -rL manifests/chart "$staging/manifests/chart"
"$OLM_RELEASE" stamp "$staging/manifests" --version "$version" --registry "$registry"
for overlay in "$staging"/manifests/overlays/*/; do
    name=$(basename "$overlay")
    # its images are those of a machine on which olm-rs is developed
    [ "$name" != dev ] || continue
    "$OLM_TOOLS/kubectl" kustomize "$overlay" >"$out/install-$name.yaml"
done
mv "$staging/manifests/chart" "$staging/olm-rs"
pack . "olm-rs-chart-$version.tgz" olm-rs

cp "$IMAGES"/*.cdx.json "$out/"
# each image as REFERENCE@DIGEST, for mirrors and policies
while read -r program digest; do echo "$registry/$program:$version@$digest"; done <"$IMAGES/digests.txt" >"$out/images.txt"
if [ -n "${PUSH:-}" ]; then
    "$OLM_TOOLS/helm" push "$out/olm-rs-chart-$version.tgz" "oci://$PUSH/charts" ${CA_FILE:+--ca-file "$CA_FILE"} \
        ${PLAIN_HTTP:+--plain-http} >"$staging/push" 2>&1 || { cat "$staging/push" >&2; exit 1; }
    digest=$(sed -n 's/^Digest: *\(sha256:[0-9a-f]*\).*/\1/p' "$staging/push")
    [ -n "$digest" ] || { echo "helm push printed no digest:" >&2; cat "$staging/push" >&2; exit 1; }
    echo "$PUSH/charts/olm-rs:$version@$digest" >>"$out/images.txt"
fi
(cd "$out" && sha256sum -- * >SHA256SUMS)
echo "$out:"
cat "$out/SHA256SUMS"
