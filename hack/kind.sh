#!/usr/bin/env bash
# Runs a command on a cluster of kind, as `olm-kit node run` runs it on a node of our own: `hack/kind.sh KIT COMMAND…`. It needs root
# and Docker on Linux, and `kind` in OLM_TOOLS. The registry of the tests listens on an address that the node reaches through this
# machine, and this machine reaches pods and Services through the node.
set -euo pipefail
kit=$1
shift

cluster=olm-rs
node=$cluster-control-plane
registry=10.240.0.1
kind=$OLM_TOOLS/kind
work=$(mktemp -d)
# where the kit puts its files: the node sees them in the same place
export TMPDIR=$work KUBECONFIG=$work/kubeconfig

down() {
    # each step, also where an earlier one failed; the exit code stays that of the command
    ip addr del "$registry/32" dev lo || echo "kind: $registry is left on lo" >&2
    "$kind" delete cluster --name "$cluster" || echo "kind: the cluster $cluster is left" >&2
    rm -rf "$work" || echo "kind: $work is left" >&2
}
docker version >/dev/null
ip addr add "$registry/32" dev lo
trap down EXIT
"$kind" create cluster --name "$cluster" --wait 180s --config - <<END
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.0.0.0/24}
nodes:
- role: control-plane
  extraMounts: [{hostPath: $work, containerPath: $work}]
END
address=$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$node")
# these routes go with the link to the node
ip route add 10.244.0.0/16 via "$address"
ip route add 10.0.0.0/24 via "$address"

# containerd reads the file at each pull; the authority is made by the kit
hosts=/etc/containerd/certs.d/$registry:5000/hosts.toml
# shellcheck disable=SC2016 # expanded by the inner shell
"$kit" node run --kubeconfig "$KUBECONFIG" -- bash -euo pipefail -c '
    node=$1 hosts=$2
    shift 2
    printf "[host.\"https://%s\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"%s\"\n" "$OLM_NODE_REGISTRY" "$OLM_NODE_CA" |
        docker exec --interactive "$node" bash -c "mkdir -p ${hosts%/*} && cat >$hosts"
    exec "$@"' - "$node" "$hosts" "$@"
