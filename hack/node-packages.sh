#!/usr/bin/env bash
# Installs the distribution's programs that a real node needs (`make test-node`, `make cluster-up NODE=real`) where this is root
# on a system with apt; elsewhere it does nothing. `olm-kit node check` names what is missing.
set -euo pipefail

packages=()
command -v runc >/dev/null || packages+=(runc)
command -v nft >/dev/null || packages+=(nftables)
command -v ip >/dev/null || packages+=(iproute2)
command -v nsenter >/dev/null || packages+=(util-linux)
if [ ${#packages[@]} -eq 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null; }
# the lists may be old, or absent; a failure is reported by what is still missing
install 2>/dev/null || { apt-get update -qq && install; } || echo "apt-get could not install ${packages[*]}" >&2
