//! Verbs about a cluster, with a stand-in for its apiserver.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::support::{apiserver, command, olm};

fn condition(type_: &str) -> Value {
    json!({"type": type_, "status": "True", "reason": "Succeeded", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
}

/// An extension that is Ready.
fn extension(name: &str, range: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"},
        "spec": {"namespace": "n", "source": {"sourceType": "Catalog", "catalog": {"packageName": name, "version": range}}},
        "status": {"conditions": [condition("Ready")]},
    })
}

/// A revision of it that is installed.
fn revision(name: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": format!("{name}-1"), "uid": format!("{name}-1"), "ownerReferences": [
            {"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": name, "uid": name}]},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": []},
        "status": {"conditions": [condition("Succeeded")]},
    })
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items})
}

/// A catalog that is switched off.
fn catalog(name: &str) -> Value {
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name, "uid": name},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:1"}}, "availabilityMode": "Unavailable"},
    })
}

/// Lists of extensions `a` and `b`, a list with a selector of `a` alone; no other objects.
fn listed(request: &str, a: Value, b: Value) -> Value {
    match (request.contains("/clusterextensions?"), request.contains("fieldSelector=")) {
        (true, false) => list(&[a, b]),
        (true, true) => list(&[a]),
        (false, _) => list(&[]),
    }
}

/// The answer to a request that fails.
fn failure(code: u16, name: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "details": {"name": name}})
}

/// The requests that change something, by method and last part of the address.
fn changes(requests: &Mutex<Vec<String>>) -> Vec<String> {
    let requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
    let changes = requests.iter().filter(|request| !request.starts_with("GET "));
    let brief = |request: &String| {
        let mut words = request.split(' ');
        let (method, address) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let name = address.split('?').next().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        format!("{method} {name}")
    };
    changes.map(brief).collect()
}

/// Such as that of `kubectl port-forward`.
#[test]
fn report_reaches_metrics_of_this_machine_without_a_proxy() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |_| list(&[]))?;
    let config: Value = serde_json::from_slice(&std::fs::read(&kubeconfig)?)?;
    let address = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or_default().to_owned();
    let [token, folder] = ["token", "report"].map(|name| home.path().join(name).display().to_string());
    std::fs::write(&token, "t")?;
    let words = ["report", "-o", folder.as_str(), "--kubeconfig", kubeconfig.as_str()];
    let metrics = ["--metrics-url", address.as_str(), "--metrics-token-file", token.as_str()];
    let mut report = command(home.path(), &[&words[..], &metrics].concat());
    let output = report.env("http_proxy", "http://127.0.0.1:1").output()?;
    let summary = std::fs::read_to_string(home.path().join("report/summary.txt"))?;
    ensure!(output.status.success() && summary.contains("/metrics.txt ("), "{summary}");
    Ok(())
}

/// What Ctrl-C sends.
fn interrupt(process: u32) {
    let killed = Command::new("kill").args(["-INT", &process.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()), "kill fails");
}

/// `upgrade --all --wait` as a process, whose identifier `child` has while it runs.
fn upgrade_all(home: &Path, kubeconfig: &str, child: &OnceLock<u32>) -> Result<Output> {
    let words = ["upgrade", "--all", "--any-version", "--force", "--wait", "--settle", "0s"];
    let process = command(home, &[&words[..], &["--kubeconfig", kubeconfig]].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.get_or_init(|| process.id());
    Ok(process.wait_with_output()?)
}

#[test]
fn interrupt_keeps_the_next_extension_unchanged() -> Result<()> {
    static CHILD: OnceLock<u32> = OnceLock::new();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), move |request| {
        recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        let [a, b] = ["a", "b"].map(|name| extension(name, ""));
        if request.contains("/clusterextensions/a") {
            return a;
        }
        if request.contains("/clusterextensions/b") {
            // after the wait for the first one
            interrupt(*CHILD.wait());
            std::thread::sleep(Duration::from_millis(500));
            return b;
        }
        listed(request, a, b)
    })?;
    let output = upgrade_all(home.path(), kubeconfig.as_str(), &CHILD)?;
    let (out, error) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!((output.status.code(), out.as_str()) == (Some(130), "a is Ready\n"), "{out}{error}");
    ensure!(error.contains("interrupted; ClusterExtension \"b\" is not changed"), "{error}");
    ensure!(changes(&requests) == ["PATCH a"], "{requests:?}");
    Ok(())
}

#[test]
fn interrupt_while_containers_settle_names_the_undo() -> Result<()> {
    static CHILD: OnceLock<u32> = OnceLock::new();
    let home = tempfile::tempdir()?;
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}}});
    let mut set = revision("a");
    set["spec"]["phases"] = json!([{"name": "deploy", "objects": [{"object": deployment}]}]);
    let kubeconfig = apiserver::start(home.path(), move |request| {
        let a = extension("a", "");
        if request.contains("/clusterextensions/a") {
            a
        } else if request.contains("/clusterextensions?") {
            list(&[a])
        } else if request.contains("/clusterobjectsets?") {
            list(std::slice::from_ref(&set))
        } else {
            if request.contains("/pods?") {
                interrupt(*CHILD.wait());
            }
            list(&[])
        }
    })?;
    let words = ["upgrade", "a", "--any-version", "--force", "--wait", "--settle", "60s", "--kubeconfig"];
    let process = command(home.path(), &[&words[..], &[kubeconfig.as_str()]].concat())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    CHILD.get_or_init(|| process.id());
    let output = process.wait_with_output()?;
    let error = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(130), "{error}");
    ensure!(error.contains("interrupted; a is Ready. To undo: `kubectl olm rollback a`"), "{error}");
    Ok(())
}

#[test]
fn second_interrupt_ends_a_request_without_an_answer() -> Result<()> {
    static CHILD: OnceLock<u32> = OnceLock::new();
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), move |request| {
        let [a, b] = ["a", "b"].map(|name| extension(name, ""));
        if request.contains("/clusterextensions/a") {
            return a;
        }
        if request.contains("/clusterextensions/b") {
            if request.starts_with("PATCH ") {
                for _ in 0..2 {
                    interrupt(*CHILD.wait());
                    std::thread::sleep(Duration::from_secs(1));
                }
                std::thread::sleep(Duration::from_secs(60));
            }
            return b;
        }
        listed(request, a, b)
    })?;
    let started = Instant::now();
    let output = upgrade_all(home.path(), kubeconfig.as_str(), &CHILD)?;
    ensure!(output.status.code() == Some(130), "{output:?}");
    ensure!(started.elapsed() < Duration::from_secs(30), "it waits for the answer");
    Ok(())
}

#[test]
fn diff_of_a_refused_plan_is_a_document_for_programs() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |request| {
        if request.contains("/clusterextensions/x") {
            extension("x", "no range")
        } else if request.contains("/clusterobjectsets?") {
            list(&[revision("x")])
        } else {
            list(&[])
        }
    })?;
    let words = ["diff", "x", "--planned", "-o", "json", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!(code == 2, "{out}{error}");
    let preview: Value = serde_json::from_str(&out)?;
    ensure!(preview["extension"] == "x" && preview["refused"][0].is_string(), "{preview}");
    Ok(())
}

/// A catalog that was never unpacked has to be read before anything can be chosen.
#[test]
fn catalog_that_cannot_be_read_is_no_answer() -> Result<()> {
    let home = tempfile::tempdir()?;
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "c", "uid": "c"},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example.com/c:1"}}},
    });
    let kubeconfig = apiserver::start(home.path(), move |request| {
        if request.contains("/clusterextensions/x") {
            extension("x", "")
        } else if request.contains("/clustercatalogs?") {
            list(std::slice::from_ref(&catalog))
        } else {
            list(&[])
        }
    })?;
    let run = |words: &[&str]| {
        let flags = ["--environment-constraints", "Ignore", "--kubeconfig", kubeconfig.as_str()];
        olm(home.path(), &[words, &flags].concat())
    };
    let names_catalog = |text: &str| text.contains("catalog \"c\"");
    for words in
        [&["resolve", "x", "-o", "json"][..], &["explain", "x", "-o", "json"], &["plan", "x", "-o", "json"]]
    {
        let (code, out, error) = run(words)?;
        ensure!(code == 3, "{words:?} ends with {code}: {out}{error}");
        let document: Value = serde_json::from_str(&out)?;
        let refused = [&document["refusal"], &document["refused"][0]];
        ensure!(refused.iter().filter_map(|text| text.as_str()).any(names_catalog), "{document}");
    }
    let (code, out, error) = run(&["resolve", "x", "-o", "name"])?;
    ensure!(code == 3 && out.is_empty() && names_catalog(&error), "{code} {out}{error}");
    Ok(())
}

#[test]
fn list_passes_over_objects_that_cannot_be_read() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |request| {
        let [a, mut b] = ["a", "b"].map(|name| extension(name, ""));
        let mut d = catalog("d");
        b["spec"]["namespace"] = json!(1);
        d["spec"]["source"]["image"] = json!("registry.example.com/d:1");
        match request.contains("/clustercatalogs?") {
            true => list(&[catalog("c"), d]),
            false => listed(request, a, b),
        }
    })?;
    for (verb, name, passed_over) in
        [("list", "a", "ClusterExtension \"b\""), ("catalogs", "c", "ClusterCatalog \"d\"")]
    {
        let (code, out, error) = olm(home.path(), &[verb, "--kubeconfig", kubeconfig.as_str()])?;
        ensure!(code == 0 && out.lines().any(|line| line.starts_with(name)), "{verb}: {code} {out}{error}");
        let note = format!("passed over: {passed_over} cannot be read: invalid type");
        ensure!(error.contains(&note), "{verb}: {error}");
    }
    Ok(())
}

#[test]
fn uninstall_keep_needs_the_right_to_delete() -> Result<()> {
    let home = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let kubeconfig = apiserver::start(home.path(), move |request| {
        recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        let text = "clusterextensions.olm.operatorframework.io \"x\" is forbidden: User \"u\" cannot delete resource \
                    \"clusterextensions\" in API group \"olm.operatorframework.io\" at the cluster scope";
        if request.starts_with("DELETE ") {
            failure(403, "x", text)
        } else if request.contains("/clusterextensions/x") {
            extension("x", "")
        } else {
            list(&[])
        }
    })?;
    let words = ["uninstall", "x", "--keep", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!(code == 3 && error.contains("you may not delete clusterextensions"), "{code} {out}{error}");
    ensure!(changes(&requests) == ["DELETE x"], "the annotation is set: {:?}", changes(&requests));
    Ok(())
}

#[test]
fn plan_of_a_file_names_the_missing_right() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |_| {
        let text = "clusterextensions.olm.operatorframework.io \"x\" is forbidden: User \"u\" cannot get resource \
                    \"clusterextensions\" in API group \"olm.operatorframework.io\" at the cluster scope";
        failure(403, "x", text)
    })?;
    let file = home.path().join("x.json");
    std::fs::write(&file, extension("x", "").to_string())?;
    let file = file.display().to_string();
    let words = ["plan", "-f", file.as_str(), "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    let role = "you may not get clusterextensions.olm.operatorframework.io; ClusterRole \
                operator-controller-clusterextension-viewer-role allows it";
    ensure!(code == 3 && error.contains(role), "{code} {out}{error}");
    Ok(())
}

#[test]
fn catalog_that_is_switched_off_is_not_waited_for() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |request| match request.starts_with("POST ") {
        true => catalog("c"),
        false => list(&[catalog("c")]),
    })?;
    let words = ["catalogs", "add", "c", "registry.example.com/c:1", "--availability", "Unavailable"];
    let flags = ["--wait", "--timeout", "5s", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &[&words[..], &flags].concat())?;
    ensure!(code == 0 && out.starts_with("clustercatalog/c created"), "{code} {out}{error}");
    ensure!(error.contains("nothing is waited for"), "{error}");
    Ok(())
}

#[test]
fn upgrade_of_all_skips_what_is_being_deleted() -> Result<()> {
    let home = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let kubeconfig = apiserver::start(home.path(), move |request| {
        recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        let [mut a, b] = ["a", "b"].map(|name| extension(name, ""));
        a["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        if request.contains("/clusterextensions/a") {
            return a;
        }
        if request.contains("/clusterextensions/b") {
            return b;
        }
        listed(request, a, b)
    })?;
    let words = ["upgrade", "--all", "--any-version", "--force", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!(code == 0 && out == "clusterextension/b: version range removed\n", "{code} {out}{error}");
    ensure!(error == "skipped clusterextension/a: it is being deleted\n", "{error}");
    ensure!(changes(&requests) == ["PATCH b"], "{requests:?}");
    Ok(())
}

#[test]
fn upgrade_that_ends_with_its_object_prints_its_result() -> Result<()> {
    let home = tempfile::tempdir()?;
    let is_changed = AtomicBool::new(false);
    let kubeconfig = apiserver::start(home.path(), move |request| {
        if request.starts_with("PATCH ") {
            is_changed.store(true, Ordering::Relaxed);
            return extension("x", "");
        }
        match (request.contains("/clusterextensions/x"), is_changed.load(Ordering::Relaxed)) {
            (true, false) => extension("x", ""),
            (true, true) => failure(404, "x", "clusterextensions.olm.operatorframework.io \"x\" not found"),
            (false, _) => list(&[]),
        }
    })?;
    let words = ["upgrade", "x", "--any-version", "--force", "--wait", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!((code, out.as_str()) == (1, "x is not Ready\n"), "{code} {out}{error}");
    ensure!(error.contains("clusterextension/x is gone") && !error.contains("error: "), "{error}");
    Ok(())
}

/// Of two others, the revision of `a` records a need that only the package of `x` meets.
#[test]
fn uninstall_names_dependents_that_revisions_record() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |request| {
        let installed = |name: &str, properties: Value| {
            let mut set = revision(name);
            set["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": name});
            set["metadata"]["annotations"] = json!({
                "olm.operatorframework.io/package-name": name, "olm.operatorframework.io/bundle-name": name,
                "olm.operatorframework.io/bundle-version": "1.2.0", "olm.properties": properties.to_string(),
            });
            set
        };
        let needs = |package: &str| {
            let value = json!({"packageName": package, "versionRange": ">=1.0.0"});
            json!([{"type": "olm.package.required", "value": value}])
        };
        let address = request.split(' ').nth(1).unwrap_or_default();
        match address.split('?').next().unwrap_or_default() {
            "/api" | "/apis" => {
                json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": []})
            }
            path if path.ends_with("/clusterextensions/x") => extension("x", ""),
            path if path.ends_with("/clusterobjectsets") => {
                list(&[installed("a", needs("x")), installed("b", needs("y")), installed("x", json!([]))])
            }
            _ => list(&[]),
        }
    })?;
    let words = ["uninstall", "x", "--dry-run", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    let want = "would delete ClusterExtension x (dry run)\nThese ClusterExtensions need what it provides:\n  \
                a: package \"x\" in range \">=1.0.0\"\n";
    ensure!(code == 0 && out == want, "{code} {out}{error}");
    Ok(())
}

#[test]
fn uninstall_that_takes_too_long_cannot_be_undone() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |request| {
        let x = extension("x", "");
        match (request.contains("/clusterextensions?"), request.contains("/clusterextensions/x")) {
            (true, _) => list(&[x]),
            (false, true) => x,
            (false, false) => list(&[]),
        }
    })?;
    let words = ["uninstall", "x", "--wait", "--timeout", "1s", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!((code, out.as_str()) == (1, "ClusterExtension x is still there\n"), "{code} {out}{error}");
    let end = "timed out after 1s; it continues in the cluster. A deletion cannot be undone.\n";
    ensure!(error.ends_with(end), "{error}");
    Ok(())
}

#[test]
fn group_without_a_user_is_bad_input() -> Result<()> {
    let home = tempfile::tempdir()?;
    let kubeconfig = apiserver::start(home.path(), |_| list(&[]))?;
    let words = ["list", "--as-group", "g", "--kubeconfig", kubeconfig.as_str()];
    let (code, out, error) = olm(home.path(), &words)?;
    ensure!(code == 2 && error.contains("give --as with --as-group"), "{code} {out}{error}");
    Ok(())
}

#[test]
fn dry_runs_of_deletions_are_checked_where_asked() -> Result<()> {
    let home = tempfile::tempdir()?;
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let kubeconfig = apiserver::start(home.path(), move |request| {
        recorded.lock().unwrap_or_else(PoisonError::into_inner).push(request.to_owned());
        let is_extension = request.contains("/clusterextensions/x");
        match (is_extension, request.contains("/clustercatalogs/c")) {
            (true, _) => extension("x", ""),
            (false, true) => catalog("c"),
            (false, false) => list(&[]),
        }
    })?;
    for (verb, name, want) in [
        (&["uninstall"][..], "x", "would delete ClusterExtension x"),
        (&["catalogs", "remove"], "c", "clustercatalog/c deleted; what was installed from it stays"),
    ] {
        for (flag, suffix, deletions) in [
            ("--dry-run", " (dry run)", &[][..]),
            ("--dry-run=client", " (dry run)", &[]),
            ("--dry-run=server", " (server dry run)", &[format!("DELETE {name}")]),
        ] {
            requests.lock().unwrap_or_else(PoisonError::into_inner).clear();
            let words = [verb, &[name, flag, "--kubeconfig", kubeconfig.as_str()]].concat();
            let (code, out, error) = olm(home.path(), &words)?;
            ensure!(code == 0 && out == format!("{want}{suffix}\n"), "{words:?}: {code} {out}{error}");
            ensure!(changes(&requests) == deletions, "{words:?}: {:?}", changes(&requests));
        }
    }
    Ok(())
}
