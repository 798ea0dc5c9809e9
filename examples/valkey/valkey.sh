#!/bin/sh -eu
# A server of Valkey or Redis as a job with standbys. Environment: ADDRESS and data (DIR) of this node, PORT, worker (HTTP).
command -v valkey-server >/dev/null && kind=valkey || kind=redis
# Without -e an answer that is an error, as while data is loaded, would count as success.
cli() { timeout 5 "$kind-cli" -e -h "$ADDRESS" -p "$PORT" "$@"; }
serve() { exec "$kind-server" ${CONF:-} --bind "$ADDRESS" --port "$PORT" --dir "$DIR" --appendonly yes --save '' "$@"; }
# position HOST PORT: the role of a server, the id and the end of its history, and the host and port that it replicates.
position() {
    timeout 2 "$kind-cli" -h "$1" -p "$2" info replication | tr -d '\r' | awk -F: '{ v[$1] = $2 }
        END { print v["role"], v["master_replid"], v["master_repl_offset"], v["master_host"], v["master_port"] }'
}
case $1 in
primary) serve ;;
standby) # A replica of port 1 has no primary yet, and takes no writes.
    serve --replicaof "${DR_LEADER_ADDRESS:-127.0.0.1}" "$([ -z "$DR_LEADER_ADDRESS" ] && echo 1 || echo "$PORT")" ;;
promote) cli replicaof no one ;;
demote) # Writes wait until each attached replica has all of them. Then they are refused.
    cli client pause 60000 write
    until cli info replication | tr -d '\r' | awk -F '[:,=]' '/^slave[0-9]/ { at[$1] = $9 } /^master_repl_offset/ { end = $2 }
        END { for (i in at) if (at[i] != end) exit 1 }'; do sleep 0.05; done
    cli replicaof 127.0.0.1 1
    cli client unpause ;;
follow) cli replicaof "$DR_LEADER_ADDRESS" "$PORT" ;;
answers) cli ping | grep -q PONG ;;
leads) cli role | grep -qx master ;;
before-takeover) # A former primary that was demoted still answers. All that it has must be here.
    case $DR_CAUSE in failover | emergency) exit 0 ;; esac
    for _ in 1 2 3 4 5; do set -- $(position "$ADDRESS" "$PORT"); [ $# -lt 3 ] || break; done
    set -- "$2 $3" $(position "$4" "$5")
    [ "${2:-}" != slave ] || [ "$1" = "$3 $4" ] || { echo "this is $1, the former primary is $3 $4"; exit 75; } ;;
lag) # The primary's position comes through ZooKeeper, and is kept. Without a common history nothing is printed.
    set -- $(position "$ADDRESS" "$PORT")
    known=$(curl -sm 2 "http://$HTTP/cluster?job=$DR_JOB" | sed -n 's/.*"position":"\([0-9a-f]* [0-9]*\)".*/\1/p')
    if [ "$1" = master ]; then known="$2 $3" && echo "position=$known"; fi
    [ -z "$known" ] || echo "$known" >"$DIR/known"
    ! read -r id end <"$DIR/known" || [ "$2" != "$id" ] || echo "lag=$((end > $3 ? end - $3 : 0))" ;;
esac
