# Process 1 of a node's namespaces: prepares them, runs a command, reaps orphans meanwhile, and ends as the command does; the
# kernel ends everything else with it. Arguments: the folder of the state, the name of the cgroups, the command.
set -euo pipefail
state=$1 group=$2
shift 2

mount --make-rprivate /
for dir in /run /var/lib /var/log; do
    mount -t tmpfs -o mode=0755 tmpfs "$dir"
done

# settings of the whole machine that kubelet writes: it writes them into these files
mkdir -p "$state/sysctl"
for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    [ -e "/proc/sys/$name" ] || continue
    cat "/proc/sys/$name" >"$state/sysctl/${name//\//-}"
    mount --bind "$state/sysctl/${name//\//-}" "/proc/sys/$name"
done

# cgroups v1: one folder for each controller; v2: one folder
for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do
    if [ -e "$dir/cgroup.procs" ] && [ ! -L "$dir" ]; then mkdir -p "$dir/$group"; fi
done

ip link set lo up
ip link add node0 type veth peer name node0p
ip addr add 10.240.0.1/24 dev node0
ip link set node0 up
ip link set node0p up
# without it no connection to the address of a Service begins
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward

mkdir -p "$state/tmp"
export TMPDIR=$state/tmp
"$@" <&0 &
code=0
wait "$!" || code=$?
exit "$code"
