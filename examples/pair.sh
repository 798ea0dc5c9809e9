# What the examples with two workers share: `source` it. It takes an empty directory $dir for logs and state, and ends all
# that was started with this shell.
#
#   WORKER is the program dr-worker. It is built if it is not given.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# needs PROGRAM PACKAGE
needs() {
    if ! command -v "$1" >/dev/null; then
        echo "there is no program $1; on Debian: apt-get install --no-install-recommends $2" >&2
        exit 69
    fi
}

# built PACKAGE: builds its program, and prints the path.
built() {
    (cd "$root" && cargo build --package "$1") >&2
    echo "${CARGO_TARGET_DIR:-$root/target}/debug/$1"
}
WORKER=${WORKER:-$(built dr-worker)}

dir=$(mktemp -d)
declare -A pids=()
on=()
stop() {
    kill "$1" 2>/dev/null || true
    # A process that was stopped by hand receives it only when it is continued.
    kill -CONT "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
end() {
    trap '' INT TERM
    local name
    for name in "${!pids[@]}"; do
        [ "$name" = east-1 ] || stop "${pids[$name]}"
    done
    # The worker with the ZooKeeper server last.
    [ -z "${pids[east-1]:-}" ] || stop "${pids[east-1]}"
    rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND...
start() {
    local name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 &
    pids[$name]=$!
}

# start_worker NAME SITE HTTP-PORT ZOOKEEPER-PORT VERB-OR-SETTING...: with $config, or worker.toml beside the script; east-1 has
# the server, unless ENSEMBLE names others. The command $on, if it is set, starts it on a host of its own.
start_worker() {
    local name=$1 site=$2 http=$3 zookeeper=$4
    shift 4
    local verb=(run)
    if [ "$name" = east-1 ] && [ -z "${ENSEMBLE:-}" ]; then verb=(dev --port "$zookeeper"); fi
    start "$name" "${on[@]}" "$WORKER" --config "${config:-$here/worker.toml}" --set "node.id=$name" --set "node.site=$site" \
        --set "http.listen=127.0.0.1:$http" --set "zookeeper.connect=${ENSEMBLE:-127.0.0.1:$zookeeper}" \
        --set "node.state_dir=$dir/$name" "$@" "${verb[@]}"
}

# Waits until one of them ends, and shows its last lines.
watch_all() {
    local name
    wait -n "${pids[@]}" || true
    for name in "${!pids[@]}"; do
        if ! kill -0 "${pids[$name]}" 2>/dev/null; then
            echo "$name has ended:" >&2
            tail -n 20 "$dir/$name.log" >&2
        fi
    done
    exit 70
}
