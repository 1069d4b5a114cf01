#!/usr/bin/env python3
"""Compares the plans of kubectl-olm with what operator-controller does, in the scenarios of the acceptance lab.

usage: lab-plan.py --run-dir DIR --port-base PORT [--jobs N] [--only REGEX]      (`make test-plan` runs it)

Before each step that changes an extension, `kubectl olm plan -o json` runs with the rights of a user who may only read. The number,
bundle, image digest and object hashes of its plan must be those of the revision that the controller then creates; if the plan creates
none, the controller must create none until the next step that changes anything. Exits with 1 when there is a difference.
"""
import argparse
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
shared = os.path.join(os.environ.get("OLM_SHARED") or os.path.join(here, "..", "..", "shared"), "acceptance")
sys.path.insert(0, shared)
import lab as program  # noqa: E402
from olmlab.kube import ApiError  # noqa: E402
from olmlab.lab import G, SYSNS, Lab, Run, load_profile, load_scenarios  # noqa: E402

RBAC = "rbac.authorization.k8s.io/v1"
USER = "lab-plan-user"
PREFIX = "olm.operatorframework.io/"
# seconds in which the controller observes a step
OBSERVED = 30
# steps after which the controller may do something else than what was planned
CHANGES = ["ce_delete", "push_catalog", "catalog", "catalog_delete", "apply", "create", "delete", "pull_secret"]

results, lock = [], threading.Lock()


class User:
    """A kubeconfig and the flags of a user who may read everything and write nothing."""

    def __init__(self, lab):
        k = lab.kube
        k.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": USER, "namespace": SYSNS}})
        k.apply({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": USER}, "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]}]})
        k.apply({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": USER},
                 "subjects": [{"kind": "ServiceAccount", "name": USER, "namespace": SYSNS}],
                 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}})
        token = k.raw("POST", "/api/v1/namespaces/%s/serviceaccounts/%s/token" % (SYSNS, USER), {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 86400}})[0]
        self.folder = os.path.join(lab.run, "plans")
        os.makedirs(self.folder)
        kubeconfig = lab.cluster.write_kubeconfig(os.path.join(self.folder, "kubeconfig"), token=token["status"]["token"])
        self.auth = os.path.join(self.folder, "auth.json")
        self.credentials({})
        self.command = [
            os.path.join(os.environ["LAB_CAND_BIN"], "kubectl-olm"), "plan", "-o", "json", "--kubeconfig", kubeconfig,
            "--catalogd-url", "https://127.0.0.1:%d" % lab.env["PORT_CATALOGD_HTTP"], "--catalogd-cas-dir", lab.env["CA_DIR"],
            "--ca-file", lab.pki.ca_crt, "--authfile", self.auth, "--cache-dir", os.path.join(self.folder, "cache")]

    def credentials(self, auths):
        """The user has the credentials of the controller's pull secret."""
        with open(self.auth, "w") as file:
            json.dump({"auths": auths}, file)


class PlannedRun(Run):
    """A scenario with a plan before each step that changes an extension."""

    def __init__(self, lab, scenario):
        super().__init__(lab, scenario)
        self.pending = {}

    def plan(self, name, write, i):
        """Plans for the extension as `write`, a dry run, returns it."""
        self.check()
        try:
            extension = write()[0]
        except ApiError:  # the API rejects the step: it changes nothing
            return
        extension["metadata"].pop("managedFields", None)
        path = os.path.join(self.lab.user.folder, "%s-%02d.json" % (self.id, i))
        with open(path, "w") as file:
            json.dump(extension, file)
        before = {s["metadata"]["uid"] for s in self.revisions(name)}
        ran = subprocess.run(self.lab.user.command + ["-f", path], capture_output=True, text=True, timeout=120)
        try:
            plan = json.loads(ran.stdout)
        except ValueError:
            plan = {"refused": [(ran.stderr or ran.stdout).strip()]}
        with open(path.replace(".json", ".plan.json"), "w") as file:
            json.dump(plan, file, indent=1)
        self.pending[name] = (i, plan, before)

    def revisions(self, name):
        return [s for s in self.k.list(G, "ClusterObjectSet") if s["metadata"].get("labels", {}).get(PREFIX + "owner-name") == name]

    def check(self):
        """Compares what was planned with what is there."""
        for name, (i, plan, before) in sorted(self.pending.items()):
            creates = plan.get("action") == "Create"
            end = time.time() + OBSERVED
            while True:
                new = [s for s in self.revisions(name) if s["metadata"]["uid"] not in before]
                new.sort(key=lambda s: s["spec"]["revision"])
                extension = self.k.get(G, "ClusterExtension", name)
                generation = (extension or {}).get("metadata", {}).get("generation")
                progressing = self.conds(extension).get("Progressing", {})
                observed = progressing.get("observedGeneration") == generation
                if new if creates else observed:
                    break
                if time.time() > end:
                    break
                time.sleep(0.1)
            problems = self.compare(plan, new) if creates else []
            if not creates and new:
                problems = ["%s was created" % new[0]["metadata"]["name"]]
            word = plan.get("action") or "refused"
            text = plan["to"]["bundle"] if creates else "; ".join(plan.get("refused", []))[:110]
            with lock:
                results.append((self.id, i, word, problems))
                print("%-24s step %02d  %-8s %s" % (self.id, i, word, text.replace("\n", " ")), flush=True)
                for problem in problems:
                    print("    DIFFERENT: %s" % problem, flush=True)
        self.pending = {}

    def compare(self, plan, new):
        if not new:
            return ["revision %d was not created" % plan["to"]["revision"]]
        spec, found = new[0]["spec"], new[0]["metadata"]["annotations"]
        hashes = [x.get("ref", {}).get("key") for phase in spec["phases"] for x in phase["objects"]]
        digest = plan["to"].get("digest") or ""
        cached = os.path.join(self.lab.env["CACHE_DIR_OPERATOR_CONTROLLER"], "bundles", "content", digest.replace(":", "-"))
        pairs = [
            ("number", plan["to"]["revision"], spec["revision"]),
            ("bundle", plan["to"]["bundle"], found.get(PREFIX + "bundle-name")),
            ("version", plan["to"]["version"], found.get(PREFIX + "bundle-version")),
            ("image", plan["to"]["image"], found.get(PREFIX + "bundle-reference")),
            ("digest in the controller's cache", bool(digest), bool(digest) and os.path.isdir(cached)),
            ("hashes", [x["hash"] for x in plan.get("objects", []) if "hash" in x], hashes),
        ]
        return ["%s: planned %s, is %s" % pair for pair in pairs if pair[1] != pair[2]]

    def do_ce(self, a, i):
        extension = self.ce_obj(a)
        self.plan(extension["metadata"]["name"], lambda: self.k.apply(extension, dry=True), i)
        return super().do_ce(a, i)

    def do_patch(self, a, i):
        if a["kind"] == "ClusterExtension" and not a.get("sub"):
            self.plan(a["name"], lambda: self.dry_patch(a), i)
        else:
            self.check()
        return super().do_patch(a, i)

    def dry_patch(self, a):
        kind = "application/json-patch+json" if isinstance(a["patch"], list) else "application/merge-patch+json"
        path = self.k.path(a["apiVersion"], a["kind"], None, a["name"])
        return self.k.raw("PATCH", path + "?dryRun=All", a["patch"], kind)

    def do_trigger(self, a, i):
        name = a.get("name", self.ce)
        self.plan(name, lambda: self.k.raw("GET", self.k.path(G, "ClusterExtension", None, name)), i)
        return super().do_trigger(a, i)

    def do_pull_secret(self, a, i):
        self.check()
        super().do_pull_secret(a, i)
        secret = self.k.get("v1", "Secret", "lab-pull-secret", SYSNS) or {}
        data = secret.get("data", {}).get(".dockerconfigjson")
        self.lab.user.credentials(json.loads(base64.b64decode(data))["auths"] if data else {})

    def cleanup(self):
        try:
            self.check()
        finally:
            super().cleanup()


def checked(step):
    def do(self, a, i):
        self.check()
        return getattr(Run, step)(self, a, i)
    return do


for step in CHANGES:
    if "do_" + step not in vars(PlannedRun):
        setattr(PlannedRun, "do_" + step, checked("do_" + step))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--port-base", type=int, required=True)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--only")
    a = parser.parse_args()
    profile = load_profile("olm-rs")
    has_extension = lambda s: any("ce" in (step if isinstance(step, dict) else [step]) for step in s["steps"])  # noqa: E731
    scenarios = [s for s in load_scenarios(a.only, profile["features"]) if has_extension(s)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = Lab(profile, os.path.abspath(a.run_dir), a.port_base)
    errors = []

    def each(scenario, record, trace):
        if "error" in record or trace:
            errors.append(scenario["id"])
            print("%-24s ERROR %s\n%s" % (scenario["id"], record.get("error", ""), trace or ""), flush=True)

    try:
        lab.up()
        lab.user = User(lab)
        program.Run = PlannedRun
        program.execute(lab, scenarios, a.jobs, each)
    finally:
        lab.down()
    count = lambda word: sum(1 for result in results if result[2] == word)  # noqa: E731
    differences = sum(1 for result in results if result[3])
    print("%d plans in %d scenarios: %d create, %d update, %d keep, %d refused; errors: %d; differences: %d" % (
        len(results), len({result[0] for result in results}), count("Create"), count("Update"), count("Keep"), count("refused"),
        len(errors), differences))
    return 1 if differences or errors or not results else 0


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 2
    finally:
        sys.stdout.flush()
        os._exit(code)  # worker threads of an interrupted run must not hold the process
