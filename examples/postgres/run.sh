#!/usr/bin/env bash
# Starts two workers of two sites with PostgreSQL as their job, and the keepers of their standbys. Ctrl-C ends all.
#
#   PORTS="5441 5442 7080 7081 2181" WORKER=target/debug/dr-worker examples/postgres/run.sh [sync]
#
# PORTS on 127.0.0.1: PostgreSQL of east-1 and west-1, their workers' endpoints, ZooKeeper. `sync`: commits wait for the standby.
# ENSEMBLE=host:port,... uses these ZooKeeper servers, such as those of `cargo xtask ensemble up`, instead of one in east-1.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r east_db west_db east west zookeeper <<<"${PORTS:-5441 5442 7080 7081 2181}"
source "$here/../pair.sh"
needs /usr/bin/python3 python3
export PG_BIN
PG_BIN=${PG_BIN:-$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)}
needs "$PG_BIN/postgres" postgresql

# PostgreSQL is not root. Its user has to reach its own directories and these programs.
chmod 711 "$dir"
lib=$dir/lib
mkdir -m 755 "$lib"
install -m 755 "$here"/*.py "$here"/*.sh "$lib"
install -m 644 "$here/postgresql.conf" "$lib"
as=()
own=(install -d -m 700)
if [ "$(id -u)" = 0 ]; then
    as=("--set=job.orders.user=\"postgres\"")
    own+=(-o postgres -g postgres)
fi
sed -e "s|/usr/local/lib/dr-postgres|$lib|; s|\"/usr/local/sbin/fence-ipmi\"|\"$lib/fence.sh\", \"$dir/pg\"|" \
    "$here/worker.toml" >"$lib/worker.toml"
if [ "${1:-}" = sync ]; then
    export PG_SYNC="east-1 west-1"
    as+=(--config "$here/sync.toml")
fi
here=$lib # of worker.toml
mkdir -m 755 "$dir/pg"

# node NAME SITE DB-PORT HTTP-PORT
node() {
    export PG_HOME=$dir/pg/$1 PG_ADDRESS=127.0.0.1:$3 PG_WORKER=127.0.0.1:$4
    "${own[@]}" "$PG_HOME"
    if [ "$1" = east-1 ]; then
        /usr/bin/python3 "$lib/primary.py" init
    else
        cp -p "$dir/pg/east-1/pgpass" "$PG_HOME"
    fi
    start_worker "$1" "$2" "$4" "$zookeeper" "${as[@]}"
    start "keeper-$1" /usr/bin/python3 "$lib/keeper.py"
}
node east-1 east "$east_db" "$east"
node west-1 west "$west_db" "$west"

command="$WORKER --set zookeeper.connect=${ENSEMBLE:-127.0.0.1:$zookeeper}"
cat <<END_OF_TEXT
east-1       PostgreSQL 127.0.0.1:$east_db  worker http://127.0.0.1:$east
west-1       PostgreSQL 127.0.0.1:$west_db  worker http://127.0.0.1:$west
logs         $dir/*.log

From another terminal:
  $command list     # the lag of each member
  $PG_BIN/psql "host=$dir/pg/east-1 port=$east_db user=postgres" -c 'SELECT * FROM dr.leadership'
  $command switchover --to west-1 --wait
  kill -STOP ${pids[west-1]}      # when \`list\` shows east-1 as streaming: west-1 is frozen, its guard ends PostgreSQL, east-1 leads
  kill -CONT ${pids[west-1]}      # west-1 is rewound, and becomes the standby

Ctrl-C ends everything.
END_OF_TEXT

watch_all
