#!/usr/bin/env bash
# Starts two workers of two sites, each with a small server as its job, and HAProxy, which routes to the leader. Ctrl-C ends all.
#
#   PORTS="8080 8404 7080 7081 9081 9082 2181" WORKER=target/debug/dr-worker examples/haproxy/run.sh
#
# PORTS on 127.0.0.1: HAProxy and its status page, the endpoints of east-1 and west-1, their jobs, ZooKeeper.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r front status east west east_job west_job zookeeper <<<"${PORTS:-8080 8404 7080 7081 9081 9082 2181}"
source "$here/../pair.sh"
needs haproxy haproxy
needs python3 python3

job() {
    echo "--set=job.orders.command=[\"python3\", \"$here/server.py\", \"127.0.0.1:$1\"]"
    echo "--set=job.orders.ready={ kind = \"tcp\", address = \"127.0.0.1:$1\" }"
}
mapfile -t east_settings < <(job "$east_job")
mapfile -t west_settings < <(job "$west_job")
start_worker east-1 east "$east" "$zookeeper" "${east_settings[@]}"
start_worker west-1 west "$west" "$zookeeper" "${west_settings[@]}"
sed -e "s/:8080/:$front/; s/:8404/:$status/; s/:9081 port 7080/:$east_job port $east/; s/:9082 port 7081/:$west_job port $west/" \
    "$here/haproxy.cfg" >"$dir/haproxy.cfg"
start haproxy haproxy -db -f "$dir/haproxy.cfg"

cat <<END
HAProxy      http://127.0.0.1:$front
its status   http://127.0.0.1:$status
logs         $dir/*.log

From another terminal:
  curl http://127.0.0.1:$front      # the leader answers
  $WORKER --set zookeeper.connect=127.0.0.1:$zookeeper switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}                # west-1 is frozen: east-1 takes over when its session has ended
  kill -CONT ${pids[west-1]}

Ctrl-C ends everything.
END

watch_all
