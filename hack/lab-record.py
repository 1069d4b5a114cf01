#!/usr/bin/env python3
"""Records what OLM Classic's reference does in scenarios; hack/compare-classic.sh runs it in its copy of the lab.

usage: lab-record.py --profile FILE --version TEXT --cache DIR --out DIR --run-dir DIR [--only REGEX] [--jobs N]

Nothing starts a program of the reference again that ended by itself (a panic), so what the lab records after that is worthless. Scenarios
run in batches, each with a fresh control plane. When a program ends by itself, the batch ends: what it had not begun is recorded in a next
batch, and each scenario that ran then in a batch of its own. One in which a program ends also there has no record.

Cache: ID-HASH.json is a record and ID-HASH.panicked the end of a program; HASH is that of the scenario and of --version (all else that decides
what is recorded). Records are copied to DIR/classic/ID.json of --out; DIR/missing names the scenarios that have none, with the reason.
Exits with 1 when the lab itself failed in a scenario, which is not kept: the next run tries it again.
"""
import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.getcwd())
import classic as program  # noqa: E402
from classiclab import runner  # noqa: E402
from classiclab.views import save  # noqa: E402

BATCH = 40
# exit code of a batch in which a program of the reference ended by itself; the file `ended` in its folder has the details
ENDED = 3
# how a program of Go begins its last words
PANICS = ("panic:", "fatal error:")


class Process(runner.Process):
    """A program of the reference that knows whether the lab stopped it."""
    stopped = True

    def start(self, wait=True):
        super().start(wait=False)
        self.stopped = False
        if wait:
            self.wait_ready()
        return self

    def stop(self, sig=15):
        self.stopped = True
        super().stop(sig)

    def ended(self):
        return not self.stopped and not self.proc.alive()

    def why(self):
        """The panic, or the exit code."""
        with open(self.log, errors="replace") as file:
            lines = file.read().splitlines()
        at = next((i for i, line in enumerate(lines) if line.startswith(PANICS)), None)
        return ["ended with code %s" % self.proc.p.returncode] if at is None else lines[at:at + 40]


def cached(a, scenario):
    """The path in the cache, without its end."""
    text = a.version + json.dumps(scenario, sort_keys=True, default=str)
    return os.path.join(a.cache, "%s-%s" % (scenario["id"], hashlib.sha256(text.encode()).hexdigest()[:16]))


def write(path, save_to):
    """A file that is complete or not there."""
    save_to(path + ".partial")
    os.replace(path + ".partial", path)


def batch(a):
    """Records the scenarios of one batch into the cache; a process of its own runs it."""
    scenarios, every = runner.load_scenarios(a.only)
    runner.Process = Process
    lab = runner.Lab(runner.load_profile(a.profile), a.run_dir, int(os.environ.get("LAB_PORT_BASE", "7600")), every)
    running, lock = set(), threading.Lock()

    class Run(runner.Run):
        def run(self):
            running.add(self.id)
            return super().run()

    def each(scenario, record, trace):
        with lock:
            if any(p.ended() for p in lab.suts.values()):
                return  # worthless: `watch` ends the batch
            running.discard(scenario["id"])
            missed = [s["step"] for s in record["steps"] if isinstance(s["result"], dict) and s["result"].get("reached") is False]
            print("%-28s %6.1f s%s%s" % (scenario["id"], record["timings_ms"]["total"] / 1000, "  not reached: " + ", ".join(missed) if missed else "",
                                        "  ERROR " + record["error"] if "error" in record else ""), flush=True)
            if trace:
                print(trace, file=sys.stderr, flush=True)
            if "error" not in record:
                write(cached(a, scenario) + ".json", lambda path: save(path, record))

    def watch():
        while True:
            time.sleep(0.2)
            ended = [p for p in lab.suts.values() if p.ended()]
            if ended:
                break
        code = 1
        with lock:
            try:
                details = {"running": sorted(running), "program": ended[0].name, "why": ended[0].why()}
                write(os.path.join(a.run_dir, "ended"), lambda path: save(path, details))
                code = ENDED
                lab.down()
            except Exception as error:
                print("%s: %s" % (type(error).__name__, error), file=sys.stderr, flush=True)
            finally:
                os._exit(code)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        lab.up()
        threading.Thread(target=watch, daemon=True).start()
        program.Run = Run
        program.execute(lab, scenarios, a.jobs, each)
        if any(p.ended() for p in lab.suts.values()):
            threading.Event().wait()  # `watch` ends the process
    finally:
        with lock:  # (`watch` may be ending the process)
            lab.down()


def run(a, names):
    """The exit code of a batch."""
    child = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--batch", "--only", pattern(names), "--profile", a.profile, "--version", a.version,
                              "--cache", a.cache, "--out", a.out, "--run-dir", a.run_dir, "--jobs", str(a.jobs)], start_new_session=True)
    try:
        return child.wait()
    except BaseException:
        child.terminate()
        child.wait()
        raise


def pattern(names):
    return "^(%s)$" % "|".join(re.escape(name) for name in names)


def record_all(a, paths):
    """Fills the cache; `paths`: the paths in the cache of all scenarios."""
    has = lambda name, end: os.path.exists(paths[name] + end)  # noqa: E731
    todo = [name for name in paths if not has(name, ".json") and not has(name, ".panicked")]
    batches = [todo[i:i + BATCH] for i in range(0, len(todo), BATCH)]
    print("%d scenarios: %d are recorded, %d to record in %d batches" % (len(paths), len(paths) - len(todo), len(todo), len(batches)), flush=True)
    while batches:
        names = batches.pop(0)
        code = run(a, names)
        if code not in (0, ENDED):
            raise SystemExit("compare-classic: recording failed (exit code %d); see above, and the logs in %s" % (code, a.run_dir))
        if code == 0:
            continue
        ended = os.path.join(a.run_dir, "ended")
        with open(ended) as file:
            details = json.load(file)
        running = details["running"]
        print("THE REFERENCE ENDED BY ITSELF (%s: %s) while these ran: %s" % (details["program"], details["why"][0], ", ".join(running) or "none"), flush=True)
        if not running:
            raise SystemExit("compare-classic: the reference ended while no scenario ran; see the logs in " + a.run_dir)
        if len(names) == 1:
            if not details["why"][0].startswith(PANICS):
                raise SystemExit("compare-classic: %s ended in %s without a panic; see the logs in %s" % (details["program"], names[0], a.run_dir))
            write(paths[names[0]] + ".panicked", lambda path: shutil.copyfile(ended, path))
            continue
        rest = [name for name in names if name not in running and not has(name, ".json")]
        batches += [[name] for name in running] + ([rest] if rest else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag in ("profile", "version", "cache", "out", "run-dir"):
        parser.add_argument("--" + flag, required=True)
    parser.add_argument("--only")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--batch", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.run_dir = os.path.abspath(a.run_dir)
    if a.batch:
        return batch(a)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # (classic-controller makes no pods of registries: their scenarios are not compared)
    paths = {s["id"]: cached(a, s) for s in runner.load_scenarios(a.only)[0] if not s.get("pods")}
    if not paths:
        raise SystemExit("compare-classic: no scenario matches ONLY=%s; `classic.py list` in %s names them" % (a.only, os.getcwd()))
    os.makedirs(a.cache, exist_ok=True)
    record_all(a, paths)

    records = os.path.join(a.out, "classic")
    shutil.rmtree(a.out, ignore_errors=True)
    os.makedirs(records)
    failed = []
    with open(os.path.join(a.out, "missing"), "w") as missing:
        for name, path in paths.items():
            if os.path.exists(path + ".json"):
                shutil.copyfile(path + ".json", os.path.join(records, name + ".json"))
            elif os.path.exists(path + ".panicked"):
                with open(path + ".panicked") as file:
                    details = json.load(file)
                missing.write("%s: the reference panicked: %s: %s (%s.panicked; delete it to try again)\n" % (name, details["program"], details["why"][0], path))
            else:
                failed.append(name)
                missing.write("%s: the lab failed; see its ERROR above\n" % name)
    return 1 if failed else 0


if __name__ == "__main__":
    code = 1
    try:
        code = main() or 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        code = ended.code if isinstance(ended.code, int) else 1
    except Exception as error:
        print("%s: %s" % (type(error).__name__, error), file=sys.stderr)
    finally:
        sys.stdout.flush()
        os._exit(code)  # threads of the lab must not hold the process
