#!/usr/bin/env bash
# Starts two workers of two sites with a job that writes files, and of each site what copies them. Ctrl-C ends all.
#
#   PORTS="7080 7081 8730 8731 2181" WORKER=target/debug/dr-worker examples/rsync-site/run.sh
#
# PORTS on 127.0.0.1: the endpoints of east-1 and west-1, the rsync daemons of both sites, ZooKeeper.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -r east west east_rsync west_rsync zookeeper <<<"${PORTS:-7080 7081 8730 8731 2181}"
source "$here/../pair.sh"
needs rsync rsync

# The programs are here instead of in /usr/local/lib/dr-worker.
config=$dir/worker.toml
sed "s|/usr/local/lib/dr-worker|$here|" "$here/worker.toml" >"$config"

# site NAME RSYNC-PORT PORT-OF-THE-OTHER-SITE
site() {
    mkdir "$dir/site-$1"
    cat >"$dir/$1.conf" <<END
SITE=$1
SITE_DIR=$dir/site-$1
PEER=rsync://127.0.0.1:$3/site
SILENT=2
HISTORY="$WORKER --set zookeeper.connect=127.0.0.1:$zookeeper --output json history --job files"
END
    sed "s|/srv/site|$dir/site-$1|; s/uid = .*/uid = $(id -u)/" "$here/rsyncd.conf" >"$dir/$1-rsyncd.conf"
    start "rsync-$1" rsync --daemon --no-detach --config="$dir/$1-rsyncd.conf" --address=127.0.0.1 --port="$2"
    SITE_CONF=$dir/$1.conf start "follow-$1" "$here/site.sh" follow
}
site east "$east_rsync" "$west_rsync"
site west "$west_rsync" "$east_rsync"
SITE_CONF=$dir/east.conf "$here/site.sh" init

settings() {
    echo '--set=zookeeper.session_timeout=6s'
    echo '--set=zookeeper.tick_time=500ms'
    echo "--set=job.files.env={ SITE_CONF = \"$dir/$1.conf\", WRITTEN = \"$dir/written\" }"
}
mapfile -t east_settings < <(settings east)
mapfile -t west_settings < <(settings west)
start_worker east-1 east "$east" "$zookeeper" "${east_settings[@]}"
start_worker west-1 west "$west" "$zookeeper" "${west_settings[@]}"

cat <<END
workers      http://127.0.0.1:$east  http://127.0.0.1:$west
files        $dir/site-east/current/files  $dir/site-west/current/files
logs         $dir/*.log

From another terminal:
  export DR_WORKER__ZOOKEEPER__CONNECT=127.0.0.1:$zookeeper
  $WORKER list                          # the lag of each member
  $WORKER switchover --to west-1 --wait           # planned: nothing is lost
  SITE_CONF=$dir/west.conf $here/site.sh status
  kill -STOP ${pids[rsync-west]} ${pids[west-1]}                       # the west is lost: east-1 leads when its session has ended
  SITE_CONF=$dir/east.conf $here/site.sh status   # what may be missing
  kill -CONT ${pids[rsync-west]} ${pids[west-1]}                       # the west is back
  SITE_CONF=$dir/west.conf $here/site.sh status   # what was missing is kept under diverged/

Ctrl-C ends everything.
END

watch_all
