#!/usr/bin/env bash
# Prints a Python 3 that has PyYAML: the system's own if it has it, else one in a virtual environment in folder $1, which is
# made at first use. Prints `python3` when there is none or nothing to run with it, so that the caller can say so.
set -euo pipefail
venv=$1
has_yaml() { "$1" -c 'import yaml' 2>/dev/null; }

if [ ! -d "${OLM_SHARED:-$(dirname "${BASH_SOURCE[0]}")/../../shared}/acceptance" ]; then
    echo python3
elif has_yaml "$venv/bin/python3"; then
    echo "$venv/bin/python3"
elif ! command -v python3 >/dev/null; then
    echo python3
elif has_yaml python3; then
    command -v python3
else
    echo "making a Python environment with PyYAML in $venv" >&2
    python3 -m venv "$venv" >&2
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check 'PyYAML>=6,<7' >&2
    echo "$venv/bin/python3"
fi
