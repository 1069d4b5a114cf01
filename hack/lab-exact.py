#!/usr/bin/env python3
"""Sorts what differs at level exact between the reference's records and those of a run into classes, and counts scenarios.

usage: lab-exact.py <folder that `make acceptance SAVE=<folder>` wrote>

Exits with 1 when there is a difference of no class. The classes are explained in docs/internals/conformance/README.md.
"""
import glob
import os
import re
import sys

import yaml

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
lab = os.path.join(os.environ.get("OLM_SHARED") or os.path.join(here, "..", "..", "shared"), "acceptance")
if not os.path.isdir(lab):
    print("SKIPPED: there is no ../shared/acceptance folder (OLM_SHARED names another place)")
    sys.exit(0)
sys.path.insert(0, lab)
from olmlab import compare  # noqa: E402

HELP = "help behind a message"
# decided, and not seen at level semantic
DECIDED = {"api-cc-set": "decision 2", "b-depprop": "decision 25"}
# (class, paths); the first that fits counts
CLASSES = [
    ("conditions Ready, Reconciling, Stalled", r"/conditions/(Ready|Reconciling|Stalled)$"),
    ("field managers", r"/managers(\[\d+\])?$"),
    ("annotation render-inputs on content Secrets", r"/objects/Secret:[^/]+/annotations$"),
    (HELP, r"/conditions/\w+/message$"),
    ("HTTP headers", r"/(has(\[\d+\])?|response_headers/[A-Za-z-]+)$"),
]


def main(folder):
    old = compare.load_dir(os.path.join(lab, "recorded", "reference-experimental"))
    inner = [d for d in glob.glob(os.path.join(folder, "*")) if os.path.isdir(d)]
    new = compare.load_dir(inner[0] if inner else folder)
    with open(os.path.join(here, "..", "tests", "acceptance", "accepted.yaml")) as file:
        accepted = yaml.safe_load(file)
    both = sorted(set(old) & set(new))
    scenarios = {}
    left = []
    differ = set()
    for name in both:
        for path, was, now in compare.diff(compare.view(old[name], "exact"), compare.view(new[name], "exact")):
            differ.add(name)
            found = next((word for word, rule in CLASSES if re.search(rule, path)), None)
            if found == HELP and not (isinstance(now, str) and str(was).partition("\n")[0] in now):
                found = None
            found = found or DECIDED.get(name) or (name in accepted and accepted[name]["reason"].split(":")[0]) or None
            if found is None:
                left.append((name, path, was, now))
            scenarios.setdefault(found, set()).add(name)
    print("%d of %d scenarios differ at level exact" % (len(differ), len(both)))
    print("the same: %s\n" % ", ".join(name for name in both if name not in differ))
    print("| class | scenarios |\n|---|---:|")
    for found in sorted((found for found in scenarios if found), key=lambda found: (-len(scenarios[found]), found)):
        names = sorted(scenarios[found])
        print("| %s | %d%s |" % (found, len(names), "" if len(names) > 12 else ": " + ", ".join(names)))
    for name, path, was, now in left:
        print("of no class: %s %s: %s -> %s" % (name, path, compare.short(was), compare.short(now)))
    return 1 if left else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
