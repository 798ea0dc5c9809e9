#!/bin/sh -u
# job.orders.fence on ONE machine: kills what is left of the former leader's PostgreSQL. It takes the place of a power switch, and is for
# tests and first looks: on two hosts it proves nothing. docs/fencing.md has commands for those.
#
#   fence.sh BASE     the data directory of each member is BASE/MEMBER/data
data=$(readlink -f "$1/${DR_PREVIOUS_LEADER:?}/data") || exit 1

# Every process of PostgreSQL has the data directory as its working directory, also after its postmaster's death.
left() { find /proc/[0-9]*/cwd -maxdepth 0 -lname "$data" 2>/dev/null | cut -d / -f 3; }

for _ in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(left)
    [ -n "$pids" ] || exit 0
    # The postmaster with the others, so that it starts no new one.
    kill -9 $pids 2>/dev/null
    sleep 0.2
done
echo "processes of $data are left: $pids" >&2
exit 1
