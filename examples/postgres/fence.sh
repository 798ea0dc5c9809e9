#!/bin/sh -u
# job.orders.fence on ONE machine: kills what is left of the former leader's PostgreSQL, in BASE/MEMBER/data. On two hosts it
# proves nothing: docs/fencing.md has commands for those.
data=$(readlink -f "$1/${DR_PREVIOUS_LEADER:?}/data") || exit 1
# Each of PostgreSQL's processes has this working directory, also after its postmaster's death. All at once: none starts another.
left() { find /proc/[0-9]*/cwd -maxdepth 0 -lname "$data" 2>/dev/null | cut -d / -f 3; }
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ -n "$(left)" ] || exit 0
    kill -9 $(left) 2>/dev/null
    sleep 0.2
done
exit 1
