#!/usr/bin/env bash
# Two workers of two sites on this machine, each with a server. Ctrl-C ends all. PORTS: the servers', both workers', ZooKeeper's.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r PORT east west zookeeper <<<"${PORTS:-6390 7080 7081 2181}"
source "$here/../pair.sh"
command -v valkey-server >/dev/null || needs redis-server redis-server
export PORT config=$dir/worker.toml
sed "s|/usr/local/lib/dr-valkey|$here|" "$here/worker.toml" >"$config"
for node in "east-1 east 127.0.0.1 $east" "west-1 west 127.0.0.2 $west"; do
    read -r name site address http <<<"$node"
    mkdir "$dir/$name.data"
    ADDRESS=$address DIR=$dir/$name.data HTTP=127.0.0.1:$http \
        start_worker "$name" "$site" "$http" "$zookeeper" --set "node.address=$address"
done
command="$WORKER --set zookeeper.connect=${ENSEMBLE:-127.0.0.1:$zookeeper}"
cat <<END_OF_TEXT
From another terminal:
  $command failover --to east-1 --accept-loss --wait   # the first leadership
  redis-cli -h 127.0.0.1 -p $PORT set order 1          # valkey-cli, if that is installed
  $command switchover --to west-1 --wait
  redis-cli -h 127.0.0.2 -p $PORT get order
END_OF_TEXT
watch_all
