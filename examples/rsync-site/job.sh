#!/usr/bin/env bash
# The job of the example: writes numbered files, ten a second, each one complete or not there. WRITTEN names a file that gets a
# line for each file once it is there.
set -euo pipefail
source "${SITE_CONF:-/etc/dr-worker/rsync-site.conf}"
cd "$SITE_DIR/current/files"

last=$(find . -name '*.order' -printf '%f\n' | sort | tail -n 1)
last=${last:-0.order}
number=$((10#${last%.order}))
while :; do
    number=$((number + 1))
    name=$(printf '%08d.order' "$number")
    echo "$name of $DR_MEMBER, token $DR_FENCING_TOKEN" >.new
    mv .new "$name"
    echo "$name of $DR_MEMBER, token $DR_FENCING_TOKEN" >>"${WRITTEN:-/dev/null}"
    sleep 0.1
done
