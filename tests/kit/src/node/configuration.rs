//! The configuration of a node's programs. `docs/internals/spec/real-node.md` has what each setting is for.

use std::path::Path;

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::{ADDRESS, NAME, REGISTRY, authority};
use crate::{Ca, kubeconfig, pki};

/// Where containerd listens.
pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";
/// What answers 200 when CoreDNS has read the Services.
pub(super) const COREDNS_READY: &str = "http://127.0.0.1:8181/ready";
/// The addresses of pods.
const PODS: &str = "10.244.0.0/24";

/// Issues what kubelet and kube-proxy need to talk to the apiserver in `dir`, and gives the flags of the apiserver.
pub(crate) fn credentials(dir: &Path, ca: &Ca, server: &str) -> Result<Vec<String>> {
    let user = format!("system:node:{NAME}");
    let kubelet = ca.client("kubelet", &user, Some("system:nodes"))?;
    kubeconfig::write(&dir.join("kubelet.kubeconfig"), server, &ca.certificate(), &kubelet)?;
    let proxy = ca.client("kube-proxy", "system:kube-proxy", None)?;
    kubeconfig::write(&dir.join("kube-proxy.kubeconfig"), server, &ca.certificate(), &proxy)?;
    ca.server("kubelet-serving", &[ADDRESS, NAME])?;
    let client = ca.client("kubelet-client", "kube-apiserver", Some("system:masters"))?;
    let front = ca.client("front-proxy-client", "front-proxy-client", None)?;
    let authority = ca.certificate();
    let mut flags: Vec<String> = [
        "--bind-address=0.0.0.0",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ]
    .map(str::to_owned)
    .into();
    flags.push(format!("--advertise-address={ADDRESS}"));
    for (flag, file) in [
        ("kubelet-certificate-authority", &authority),
        ("kubelet-client-certificate", &client.certificate),
        ("kubelet-client-key", &client.key),
        ("requestheader-client-ca-file", &authority),
        ("proxy-client-cert-file", &front.certificate),
        ("proxy-client-key-file", &front.key),
    ] {
        flags.push(format!("--{flag}={}", file.display()));
    }
    Ok(flags)
}

/// Writes the files of all programs below `state`. `group` is the name of the cgroups, `tools` the folder of the CNI plugins.
pub(super) fn write(state: &Path, group: &str, tools: &Path) -> Result<()> {
    for folder in ["plugins", "kubelet", "containerd"] {
        std::fs::create_dir_all(state.join(folder)).with_context(|| format!("cannot create {folder}"))?;
    }
    pki::write(&state.join("containerd.toml"), &containerd(state, tools))?;
    let hosts = format!(
        "[host.\"https://{REGISTRY}\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"{}\"\n",
        authority(state).display()
    );
    pki::write(&state.join("certs.d").join(REGISTRY).join("hosts.toml"), &hosts)?;
    let network = json!({"cniVersion": "1.0.0", "name": "node", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipam": {
            "type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}},
        {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}},
    ]});
    pki::write(&state.join("cni/10-node.conflist"), &network.to_string())?;
    pki::write(&state.join("kubelet.json"), &kubelet(state, group).to_string())?;
    let proxy = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": state.join("control-plane/kube-proxy.kubeconfig")},
        "mode": "nftables", "hostnameOverride": NAME, "oomScoreAdj": 0, "clusterCIDR": PODS,
        "nftables": {"minSyncPeriod": "100ms"},
        // other values would be written to settings of the whole machine
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    pki::write(&state.join("kube-proxy.json"), &proxy.to_string())?;
    let names = format!(
        "cluster.local {{\n    bind {ADDRESS}\n    errors\n    ready 127.0.0.1:8181\n    kubernetes {{\n        \
         kubeconfig {}\n    }}\n    cache 5\n}}\n",
        state.join("control-plane/kubeconfig").display()
    );
    pki::write(&state.join("Corefile"), &names)
}

fn containerd(state: &Path, tools: &Path) -> String {
    format!(
        r#"version = 4
root = "{state}/containerd"
[plugins.'io.containerd.server.v1.grpc']
  address = "{CONTAINERD}"
[plugins.'io.containerd.internal.v1.opt']
  path = "{state}/containerd/opt"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{REGISTRY}/pause:1"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "{state}/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  # without CAP_SYS_RESOURCE no process gets a lower value than its parent
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  use_internal_loopback = true
  bin_dirs = ["{tools}"]
  conf_dir = "{state}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"#,
        state = state.display(),
        tools = tools.display(),
    )
}

fn kubelet(state: &Path, group: &str) -> serde_json::Value {
    let issued = state.join("control-plane/pki/issued");
    let files = getrlimit(Resource::Nofile).maximum.unwrap_or(1_000_000);
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "failCgroupV1": false, "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{group}"), "failSwapOn": false, "containerRuntimeEndpoint": format!("unix://{CONTAINERD}"),
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "oomScoreAdj": 0, "maxOpenFiles": files, "resolvConf": "",
        "clusterDNS": [ADDRESS], "clusterDomain": "cluster.local", "volumePluginDir": state.join("plugins"), "serializeImagePulls": false,
        "authentication": {
            "anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": state.join("control-plane/pki/ca/ca.crt")},
        },
        "authorization": {"mode": "Webhook"}, "tlsCertFile": issued.join("kubelet-serving.crt"),
        "tlsPrivateKeyFile": issued.join("kubelet-serving.key"),
    })
}
