#!/usr/bin/env bash
# Starts two workers of two sites with the ledger as their job, on one store. Ctrl-C ends all.
#
#   PORTS="7080 7081 2181" WORKER=target/debug/dr-worker LEDGER=target/debug/ledger examples/ledger/run.sh
#
# PORTS on 127.0.0.1: the endpoints of east-1 and west-1, ZooKeeper.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r east west zookeeper <<<"${PORTS:-7080 7081 2181}"
source "$here/../pair.sh"
LEDGER=${LEDGER:-$(built ledger)}

# Those of the example with HAProxy suffice: two sites, a short session, a job that checks tokens.
config=$here/../haproxy/worker.toml
store=sqlite:$dir/ledger.db
"$LEDGER" generate --orders 1000 --seed 1 --out "$dir/orders.csv" >"$dir/generate.log"
settings=(
    "--set=job.orders.command=[\"$LEDGER\", \"run\", \"--orders\", \"$dir/orders.csv\", \"--store\", \"$store\", \"--pace\", \"20ms\"]"
)
start_worker east-1 east "$east" "$zookeeper" "${settings[@]}"
start_worker west-1 west "$west" "$zookeeper" "${settings[@]}"

cat <<END
workers      http://127.0.0.1:$east  http://127.0.0.1:$west
logs         $dir/*.log

From another terminal:
  $LEDGER status --store $store      # what is booked, and by which token
  $WORKER --set zookeeper.connect=127.0.0.1:$zookeeper switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}                # west-1 is frozen: east-1 takes over, with a newer token
  kill -CONT ${pids[west-1]}
  $LEDGER wait --store $store --booked 1000 --timeout 5m
  $LEDGER check --store $store --orders $dir/orders.csv      # each order is booked once, none under an old token

Ctrl-C ends everything.
END

watch_all
