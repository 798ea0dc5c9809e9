#!/usr/bin/env bash
# Starts two workers on hosts of their own (network namespaces) in one segment; a virtual address moves with the leader. Ctrl-C
# ends all. Nothing of this machine's own network is changed. Needs root, and /dev/net/tun.
#
#   WORKER=target/debug/dr-worker examples/vip/run.sh
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ "$(id -u)" != 0 ] || [ ! -e /dev/net/tun ]; then
    echo "this example needs root, because it makes network namespaces, and /dev/net/tun (modprobe tun)" >&2
    exit 69
fi
# In a network of its own, which ends with its last process.
if [ "${OWN_NETWORK:-}" != "$$" ]; then
    exec env OWN_NETWORK=$$ unshare --net --mount --propagation private "${BASH_SOURCE[0]}"
fi
source "$here/../pair.sh"
needs python3 python3
needs ip iproute2

address=10.77.0.100 server=10.77.0.11:2181
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
ip link add segment type bridge
ip address add 10.77.0.1/24 dev segment
ip link set segment up

# host NAME ADDRESS
host() {
    ip netns add "$1"
    ip link add "$1" type veth peer name eth0 netns "$1"
    ip link set "$1" master segment up
    ip -n "$1" address add "$2/24" dev eth0
    ip -n "$1" link set eth0 up
    ip -n "$1" link set lo up
}
host east 10.77.0.11
host west 10.77.0.12
# The embedded server listens on loopback only.
start relay ip netns exec east python3 "$here/relay.py" "$server" 127.0.0.1:2181

settings=(
    --set=zookeeper.session_timeout=6s --set=zookeeper.tick_time=500ms "--set=policy.sites=[\"east\", \"west\"]"
    "--set=job.orders.command=[\"python3\", \"$here/vip.py\", \"hold\", \"$address\", \"eth0\", \"127.0.0.1:7080\",
        \"python3\", \"$here/../haproxy/server.py\", \"$address:8080\"]"
    "--set=job.orders.ready={ kind = \"tcp\", address = \"$address:8080\" }"
    "--set=job.orders.liveness.address=$address:8080"
)
on=(ip netns exec east)
start_worker east-1 east 7080 2181 "${settings[@]}"
on=(ip netns exec west)
start_worker west-1 west 7080 2181 "${settings[@]}" --set=zookeeper.connect="$server"

there="nsenter --target $$ --net --mount"
cat <<END
address      $address, on the host of the leader
logs         $dir/*.log

From another terminal, as root:
  $there curl http://$address:8080      # the leader answers
  $there python3 $here/vip.py watch $address segment      # who has the address
  $there $WORKER --set zookeeper.connect=$server switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}                # west-1 is frozen: the kernel removes the address, then east-1 takes over
  kill -CONT ${pids[west-1]}

Ctrl-C ends everything.
END

watch_all
