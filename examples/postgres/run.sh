#!/usr/bin/env bash
# Two workers of two sites on this machine, each with PostgreSQL. Ctrl-C ends all. README.md describes the environment.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r port east west zookeeper <<<"${PORTS:-5441 7080 7081 2181}"
source "$here/../pair.sh"
needs /usr/bin/python3 python3
export PG_BIN=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
needs "$PG_BIN/postgres" postgresql
# PostgreSQL is not root. Its user has to reach its own directories and these programs.
lib=$dir/lib config=$dir/lib/worker.toml owner=(-o "$(id -un)") user=()
[ "$(id -u)" != 0 ] || owner=(-o postgres -g postgres) user=(--set 'job.orders.user="postgres"')
chmod 711 "$dir"
install -D -m 755 -t "$lib" "$here"/*.*
sed -i "s|/usr/local/lib/dr-postgres|$lib|; s|\"/usr/local/sbin/fence-ipmi\"|\"$lib/fence.sh\", \"$dir/pg\"|" "$config"
if [ "${1:-}" = sync ]; then export PG_SYNC="east-1 west-1" && user+=(--config "$lib/sync.toml"); fi
for node in "east-1 east 127.0.0.1 $east" "west-1 west 127.0.0.2 $west"; do
    read -r name site address http <<<"$node"
    export PG_HOME=$dir/pg/$name PG_ADDRESS=$address:$port PG_WORKER=127.0.0.1:$http
    install -d -m 700 "${owner[@]}" "$PG_HOME"
    if [ "$name" = east-1 ]; then
        setpriv --reuid="${owner[1]}" --init-groups /usr/bin/python3 "$lib/pg.py" init
    else
        cp -p "$dir/pg/east-1/pgpass" "$PG_HOME"
    fi
    start_worker "$name" "$site" "$http" "$zookeeper" --set "node.address=$address" "${user[@]}"
done
command="$WORKER --set zookeeper.connect=${ENSEMBLE:-127.0.0.1:$zookeeper}"
cat <<END_OF_TEXT
From another terminal:
  $command list     # the lag of each member
  $PG_BIN/psql "host=$dir/pg/east-1 port=$port user=postgres" -c 'SELECT * FROM dr.leadership'
  $command switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}      # when \`list\` shows east-1 as streaming: west-1 is frozen, its guard ends PostgreSQL, east-1 leads
  kill -CONT ${pids[west-1]}      # west-1 is rewound, and becomes the standby
END_OF_TEXT
watch_all
