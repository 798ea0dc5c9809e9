#!/usr/bin/env bash
# Starts two workers of two sites, and a Prometheus server that scrapes them and evaluates the alerts. Ctrl-C ends all.
#
#   PORTS="7080 7081 9090 2181" WORKER=target/debug/dr-worker examples/prometheus/run.sh
#
# PORTS are those of east-1, west-1, Prometheus and ZooKeeper on 127.0.0.1.
# WORKER is the program. It is built if it is not given.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
read -r east west web zookeeper <<<"${PORTS:-7080 7081 9090 2181}"

if ! command -v prometheus >/dev/null; then
    echo "there is no program prometheus; on Debian: apt-get install --no-install-recommends prometheus" >&2
    exit 69
fi
if [ -z "${WORKER:-}" ]; then
    (cd "$root" && cargo build --package dr-worker)
    WORKER=${CARGO_TARGET_DIR:-$root/target}/debug/dr-worker
fi

dir=$(mktemp -d)
declare -A pids=()
end() {
    trap '' INT TERM
    # The worker with the ZooKeeper server last.
    for name in west-1 prometheus east-1; do
        if [ -n "${pids[$name]:-}" ]; then
            kill "${pids[$name]}" 2>/dev/null || true
            wait "${pids[$name]}" 2>/dev/null || true
        fi
    done
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start() {
    local name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 &
    pids[$name]=$!
}

start east-1 "$WORKER" --config "$here/worker.toml" --set node.id=east-1 --set node.site=east \
    --set "http.listen=127.0.0.1:$east" dev --port "$zookeeper"
start west-1 "$WORKER" --config "$here/worker.toml" --set node.id=west-1 --set node.site=west \
    --set "http.listen=127.0.0.1:$west" --set "zookeeper.connect=127.0.0.1:$zookeeper" \
    --set "node.state_dir=$dir/west-1" run
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

# Ends with the first of them that ends.
wait -n "${pids[@]}" || true
for name in "${!pids[@]}"; do
    if ! kill -0 "${pids[$name]}" 2>/dev/null; then
        echo "$name has ended:" >&2
        tail -n 20 "$dir/$name.log" >&2
    fi
done
exit 70
