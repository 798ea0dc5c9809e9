#!/usr/bin/env bash
# Starts two workers of two sites, and a Prometheus server that scrapes them and evaluates the alerts. Ctrl-C ends all.
#
#   PORTS="7080 7081 9090 2181" WORKER=target/debug/dr-worker examples/prometheus/run.sh
#
# PORTS are those of east-1, west-1, Prometheus and ZooKeeper on 127.0.0.1.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r east west web zookeeper <<<"${PORTS:-7080 7081 9090 2181}"
source "$here/../pair.sh"
needs prometheus prometheus

start_worker east-1 east "$east" "$zookeeper"
start_worker west-1 west "$west" "$zookeeper"
sed -e "s/7080/$east/; s/7081/$west/; s|alerts.yml|$root/config/prometheus/alerts.yml|" \
    "$here/prometheus.yml" >"$dir/prometheus.yml"
start prometheus prometheus --config.file="$dir/prometheus.yml" --storage.tsdb.path="$dir/data" \
    --web.listen-address="127.0.0.1:$web" --log.level=warn

cat <<END
workers      http://127.0.0.1:$east/metrics  http://127.0.0.1:$west/metrics
Prometheus   http://127.0.0.1:$web/alerts  http://127.0.0.1:$web/graph
logs         $dir/*.log

From another terminal:
  $WORKER --set zookeeper.connect=127.0.0.1:$zookeeper list
  $WORKER --set zookeeper.connect=127.0.0.1:$zookeeper switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}      # west-1 is frozen: east-1 takes over when its session has ended
  kill -CONT ${pids[west-1]}

Ctrl-C ends everything.
END

watch_all
