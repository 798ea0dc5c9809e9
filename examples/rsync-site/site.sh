#!/usr/bin/env bash
# Keeps a complete copy of a job's files on the other site, and never replaces newer files by older ones.
#
#   site.sh init       once, on the first site: what is in SITE_DIR/current/files is the first state
#   site.sh follow     copies from the other site again and again; runs beside the worker, on each site
#   site.sh pull       copies once: 0 copied; 3 nothing to copy, or refused; 1 the other site can't be reached
#   site.sh prepare | takeover | stopped | leader      the hooks prepare, before_takeover, after_stop, on_leader_changed
#   site.sh lag        the measure command
#   site.sh status     what is here
#
# SITE_CONF names a file with SITE (the name of this site), SITE_DIR (its directory) and PEER (that of the other site, as
# rsync names it: rsync://west-1/site, or west-1:/srv/site over SSH). HISTORY there is another command than `dr-worker --output
# json history --job JOB`.
#
# SITE_DIR/current is a link to the newest complete version: `files`, which the job writes while it leads here, and `marker`:
#   token N       the fencing token of the leadership that wrote the files
#   origin SITE   where that was
#   state open    the leadership lasts, or did not end cleanly; `final`: no process of the job was left
#   copied MS     of a copy: when its copying began, by this host's clock
#   base N STATE  at the origin: the marker of the files that this leadership began with
set -euo pipefail
shopt -s inherit_errexit

script=$(realpath "$0")
source "${SITE_CONF:-/etc/dr-worker/rsync-site.conf}"
cd "$SITE_DIR"

EVERY=${EVERY:-1}      # seconds between two copies
SILENT=${SILENT:-5}    # seconds after which a silent site counts as not reachable
STEP=5                 # the lag is in such steps: each change is a write to ZooKeeper
UNREACHABLE=1 NOTHING=3 DECLINE=75

say() { echo "$*" >&2; }
now() { date +%s%3N; }
field() { sed -n "s/^$2 //p" "$1" 2>/dev/null || true; }

# marker DIRECTORY NAME VALUE...: replaces it at once.
marker() {
    printf '%s %s\n' "${@:2}" >"$1/marker.new"
    sync "$1/marker.new"
    mv "$1/marker.new" "$1/marker"
}

copy() {
    local connect=()
    if [[ $PEER == rsync://* || $PEER == *::* ]]; then connect=("--contimeout=$SILENT"); fi
    rsync --timeout="$SILENT" "${connect[@]}" "$@"
}

# The hooks and `follow` exclude each other. The lock lasts until the shell ends that has opened the file.
lock() {
    exec 9>lock
    flock --wait "$((2 * SILENT))" 9 || { say "another copy is under way"; exit "$UNREACHABLE"; }
}

# What the leadership of this site wrote and the other site does not have is kept, and listed.
keep_diverged() {
    local token=$1 kept=diverged/$1
    mkdir -p "$kept"
    # Those that differ in what they contain; names that end with / are directories.
    rsync -rlcn --out-format=%n current/files/ next/files/ | sed '/\/$/d' >"$kept/list"
    if [ -s "$kept/list" ]; then
        rsync -a --files-from="$kept/list" current/files/ "$kept/files/"
        say "$(wc -l <"$kept/list") files of $SITE, written under token $token, are missing or different at the" \
            "other site: kept in $SITE_DIR/$kept"
    else
        rm -r "$kept"
    fi
}

# fetch FILE: the marker of the other site.
fetch() {
    copy "$PEER/current/marker" "$1" 2>"$1.error" ||
        { say "no marker from $PEER: $(head -n 1 "$1.error")"; exit "$UNREACHABLE"; }
    [[ $(field "$1" token) =~ ^[0-9]+$ && -n $(field "$1" origin) ]] ||
        { say "the marker of $PEER is not valid"; exit "$UNREACHABLE"; }
}

# Ends if there is nothing to copy.
decide() {
    token=$(field "$peer" token) origin=$(field "$peer" origin) state=$(field "$peer" state)
    own=$(field current/marker token)
    if [ "$origin" = "$SITE" ]; then
        say "the other site has a copy of the files of $SITE"
        exit "$NOTHING"
    fi
    if [ "$token" -lt "${own:-0}" ]; then
        say "refused: the files of $origin are of token $token, and those here of token $own"
        exit "$NOTHING"
    fi
}

# Runs in a shell of its own (see `tried`), which ends at the first failure.
pull() {
    local peer=peer.$1 begun token origin state own old
    begun=$(now)
    # Without the lock: a site that does not answer delays no hook.
    fetch "$peer"
    decide
    lock
    # A hook may have been faster.
    decide
    rm -rf next
    mkdir next
    # An unchanged file is a link to that of the former version. rsync never changes a file in place.
    copy -a --fsync --link-dest="$SITE_DIR/current/files/" "$PEER/current/files/" next/files/ 2>"$peer.error" ||
        { say "the copy is not complete: $(head -n 1 "$peer.error")"; exit "$UNREACHABLE"; }
    fetch "$peer.after"
    if [ "$(field "$peer.after" token) $(field "$peer.after" origin)" != "$token $origin" ]; then
        say "leadership has changed while the files were copied"
        exit "$UNREACHABLE"
    fi
    # The other site began with the final state of this one: then what differs was changed there.
    if [ "$(field current/marker origin)" = "$SITE" ] && [ "$(field "$peer" base)" != "$own final" ]; then keep_diverged "$own"; fi
    # `state` was read before the copy: if it was final, nothing was written since.
    marker next token "$token" origin "$origin" state "$state" copied "$begun"
    old=$(readlink current || true)
    mv next "version-$begun"
    ln -s "version-$begun" current.new
    mv -T current.new current
    if [ -n "$old" ]; then rm -r "$old"; fi
}

# tried COMMAND: its exit code in $code. `set -e` has no effect in a condition, so the command is none.
tried() {
    set +e
    (set -e; "$@")
    code=$?
    set -e
}

init() {
    if [ -e current/marker ]; then say "there are files of token $(field current/marker token) already"; exit 1; fi
    mkdir -p version-0/files
    [ -e current ] || ln -s version-0 current
    marker current token 0 origin "$SITE" state final
}

follow() {
    local said='' error code
    trap 'exit 0' TERM INT
    while :; do
        set +e
        error=$(set -e; pull follow 2>&1)
        code=$?
        set -e
        if [ "$error $code" != "$said" ]; then
            said="$error $code"
            say "$(date --iso-8601=seconds) ${error:-copies}"
        fi
        sleep "$EVERY" & wait $!
    done
}

# The token of the newest leadership that was READY, 0 if there is none.
newest_token() {
    local history
    history=$(${HISTORY:-dr-worker --output json history --job "$DR_JOB"} 9>&-) || { say "no history"; return 1; }
    history=$(grep -o '"fencing_token":[0-9]*' <<<"$history" | tail -n 1)
    history=${history##*:}
    echo "${history:-0}"
}

# before_takeover: this site leads now, and the job has not started.
takeover() {
    local code what base newest
    tried pull takeover
    lock
    if [ ! -e current/marker ]; then
        say "there is no complete copy here"
        exit "$DECLINE"
    fi
    local token origin state copied
    token=$(field current/marker token) origin=$(field current/marker origin)
    state=$(field current/marker state) copied=$(field current/marker copied)
    base="$token $state"
    if [ "$code" = 0 ]; then
        what="complete: copied from $origin after the end of its leadership, state $state"
    elif [ "$token $origin" = "$DR_FENCING_TOKEN $SITE" ]; then
        what="complete: the job is started again"
        base=$(field current/marker base)
    elif [ "$code" = "$NOTHING" ]; then
        what="complete: the files of token $token are the newest"
    elif newest=$(newest_token) && [ "$newest" = "$token" ] && { [ "$origin" = "$SITE" ] || [ "$state" = final ]; }; then
        what="complete: no other leadership has been READY since that of token $token"
    else
        case $DR_CAUSE in
            leader-lost | suspected | site-failed | failover | emergency) ;;
            *)
                # A planned move must lose nothing. An operator can order `failover`.
                say "declined: $PEER can't be reached, and what changed there last is not here"
                exit "$DECLINE"
                ;;
        esac
        what="PERHAPS INCOMPLETE: these are the files of token $token from $origin, copied at $(at "${copied:-}"). What was"
        what+=" written later, by the leadership of token ${newest:-unknown}, is missing here.$(age)"
    fi
    marker current token "$DR_FENCING_TOKEN" origin "$SITE" state open base "$base"
    echo "$(date --iso-8601=seconds) token $DR_FENCING_TOKEN, $DR_CAUSE: $what" | tee -a takeovers >&2
}

at() { if [ -n "$1" ]; then date --iso-8601=seconds --date "@$(($1 / 1000))"; else echo "no known time"; fi; }
age() {
    # The hook that notes the loss runs beside this one, and may be later.
    local lost
    lost=$(cat lost-at 2>/dev/null || now)
    if [ -n "$(field current/marker copied)" ]; then
        echo " The copy was $(((lost - $(field current/marker copied)) / 1000)) s old when the leader was lost."
    fi
}

# after_stop: no process of the job is left here.
stopped() {
    lock
    if [ "$(field current/marker token) $(field current/marker origin)" = "$DR_FENCING_TOKEN $SITE" ]; then
        marker current token "$DR_FENCING_TOKEN" origin "$SITE" state final base "$(field current/marker base)"
    fi
}

# on_leader_changed. The age of a copy does not grow while there is no leader that writes. Runs of it can overlap, so an older
# event changes nothing: the term grows, and within one term 'no leader' is the last event.
leader() {
    local term=0 was=
    exec 8>>leader.lock
    flock 8
    [ ! -e leader-seen ] || read -r term was <leader-seen
    if [ "$DR_TERM" -lt "$term" ] || { [ "$DR_TERM" -eq "$term" ] && [ "$was" = none ]; }; then return; fi
    if [ -z "${DR_LEADER:-}" ]; then
        now >lost-at
    else
        echo "$DR_LEADER_SITE" >led-by
        # This site may still be taking over, and reports the age then.
        [ "$DR_LEADER_SITE" = "$SITE" ] || rm -f lost-at
    fi
    echo "$DR_TERM ${DR_LEADER:-none}" >leader-seen.new
    mv leader-seen.new leader-seen
}

# measure: the age of the last complete copy in seconds.
lag() {
    if [ "${DR_ROLE:-}" = leader ]; then echo lag=0; return; fi
    [ -e current/marker ] || { say "no complete copy yet"; exit 1; }
    if [ "$(field current/marker origin)" = "$SITE" ]; then
        [ "$(cat led-by 2>/dev/null || echo "$SITE")" = "$SITE" ] || { say "another site has led since, and is not copied yet"; exit 1; }
        echo lag=0
        return
    fi
    local until age
    until=$(cat lost-at 2>/dev/null || now)
    age=$(((until - $(field current/marker copied)) / 1000))
    if [ "$age" -lt 0 ]; then age=0; fi
    echo "lag=$(((age / STEP + 1) * STEP))"
}

status() {
    cat current/marker
    echo "files $(find current/files/ -type f | wc -l)"
    if [ -e takeovers ]; then tail -n 5 takeovers; fi
    if [ -d diverged ]; then wc -l diverged/*/list; fi
}

case ${1:-} in
    init | follow | takeover | stopped | leader | lag | status) "$1" ;;
    pull) pull pull ;;
    # Warms up while the old leader still runs, so that the copy in `takeover` is short.
    prepare) timeout 6 "$script" pull || true ;;
    *) sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$script" >&2; exit 64 ;;
esac
