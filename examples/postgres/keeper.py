#!/usr/bin/python3
"""Runs PostgreSQL as a standby while this member does not lead, and measures. A service on every node, beside the worker.

It clones, rewinds and starts the standby when another member leads; it never promotes anything. The job (primary.py) runs the
primary. What it measures it writes to PG_HOME/measured, for job.orders.measure.
"""

import os
import shutil
import signal
import subprocess
import sys
import time

from server import Failed, Server, log

PAUSE = 0.5
# How long a standby may take to stream from a leader that answers, before its data is rewound, then cloned.
PATIENCE = 60
PRIMARY = """SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0'), current_setting('synchronous_standby_names')
    WHERE NOT pg_is_in_recovery()"""
STANDBY = """SELECT coalesce(w.status, ''), coalesce(pg_wal_lsn_diff(w.latest_end_lsn, '0/0'), 0),
    pg_wal_lsn_diff(greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')
    FROM (VALUES (1)) AS one LEFT JOIN pg_stat_wal_receiver AS w ON true"""
TAKES_PART = ("leader", "taking-over", "stepping-down")


class Keeper:
    def __init__(self):
        self.server = Server()
        self.child = None
        self.follows = None  # (term, address) of the leader
        self.since = 0
        self.effort = 0  # how much was done to follow: 0 started, 1 rewound, 2 cloned
        self.measured = ""
        self.said = None

    def keep(self):
        try:
            while True:
                try:
                    self.look()
                    self.say(None)
                except (Failed, OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
                    self.say(f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else str(error))
                time.sleep(PAUSE)
        finally:
            self.stop()

    def say(self, problem):
        """Each problem once."""
        if problem not in (None, self.said):
            log(problem)
        self.said = problem

    def look(self):
        role, member = self.server.role()
        if role in TAKES_PART:
            self.reap()
            if role == "leader":
                self.measure_primary()
            # In a handover the last measurement counts.
            return self.publish(self.measured)
        cluster = self.server.ask("/cluster")
        leader = cluster["slots"][0]["leader"]
        if leader and (leader["status"] != "READY" or leader["member"] == member):
            leader = None
        published = {}
        if leader:
            newest = leader["term"]
            others = (other["attributes"] for other in cluster["members"] if other["member"] == leader["member"])
            published = next(others, {})
            if "postgres" in published:
                self.follow((newest, published["postgres"]), member)
        else:
            newest = self.server.newest()
        self.measure_standby(newest, published, member)

    # Measurements.

    def publish(self, text):
        self.measured = text
        if text:
            path = self.server.home / "measured"
            path.with_suffix(".new").write_text(text)
            os.replace(path.with_suffix(".new"), path)

    def measure_primary(self):
        """How far the WAL reaches, so that the others know what they lack even if no replication connects them."""
        rows = self.server.sql(PRIMARY)
        if rows:
            wal, sync = rows[0]
            self.publish(f"state=primary\npostgres={self.server.address}\nlag=0\nasync=0\nwal={wal}\nsync={sync}\n")

    def measure_standby(self, newest, published, member):
        """`lag` is printed only if the data continues the newest leadership's: without it the member can't be elected."""
        state, status = self.server.state, "stopped"
        streams = False
        if self.child:
            try:
                status, end, got = self.server.sql(STANDBY)[0]
                streams = status == "streaming"
                state["got"] = int(got)
            except Failed:
                status = "starting"
            if streams and self.follows and self.follows[0] == newest:
                if state.get("term") != newest:
                    state = {"term": newest, "tried": newest, "got": int(got), "known": 0, "sync": False}
                    log(f"streams from {self.follows[1]}, the leader in term {newest}")
                self.effort, self.since = 0, time.monotonic()
                state["known"] = max(state["known"], int(end))
        is_known = state.get("term") == newest and not self.server.incomplete.exists() and self.server.data.exists()
        if is_known and not state.get("primary"):
            if "wal" in published:
                state["known"] = max(state["known"], int(published["wal"]))
                state["sync"] = f'"{member}"' in published.get("sync", "")
            elif published and not streams:
                is_known = False  # the leader lives, and how far it is can't be found out
        if state != self.server.state:
            self.server.state = state
        lines = [f"state={status or 'waiting'}", f"postgres={self.server.address}", "async=1"]
        if is_known and state.get("primary"):
            # It was the primary, and no other member has led since.
            lines[2:] = ["async=0", "lag=0"]
        elif is_known and state["known"]:
            lines[2:] = [f"async={0 if state['sync'] else 1}", f"lag={max(0, state['known'] - state['got'])}"]
        self.publish("\n".join(lines) + "\n")

    # The standby.

    def reap(self):
        if self.child and self.child.poll() is not None:
            log(f"the standby has ended with {self.child.returncode}")
            self.child = None

    def stop(self):
        if self.child:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(60)
            except subprocess.TimeoutExpired:
                self.child.send_signal(signal.SIGQUIT)
                self.child.wait()
            self.child = None

    def follow(self, leader, member):
        """Keeps a standby of this leader running."""
        self.reap()
        if self.follows != leader:
            self.effort = 0
        elif self.child:
            if time.monotonic() - self.since < PATIENCE:
                return
            # Without an answer there is nothing to rewind to.
            self.since = time.monotonic()
            self.server.sql("SELECT 1", leader[1])
            self.effort += 1
            log(f"does not stream from {leader[1]}")
        with self.server.lock(0):
            if self.server.role()[0] in TAKES_PART:
                return
            self.stop()
            if self.server.data.exists() and self.server.is_running():
                raise Failed("another server runs on this data: the job's, which has not ended")
            self.make_standby(leader, member)
            self.server.configure(primary_conninfo=self.server.source(leader[1], member))
            # The kernel ends it with this process.
            self.child = subprocess.Popen(["setpriv", "--pdeathsig", "QUIT", "--", *self.server.command()])
            self.follows, self.since = leader, time.monotonic()
            log(f"standby of {leader[1]}, term {leader[0]}")

    def make_standby(self, leader, member):
        """Data from which a standby of this leader can start."""
        server, state = self.server, self.server.state
        if not server.data.exists():
            return self.clone(leader, member)
        own = server.control()["Database system identifier"]
        if [[own]] != server.sql("SELECT system_identifier FROM pg_control_system()", leader[1]):
            raise Failed(
                f"{server.data} is another database than that of {leader[1]}: it is left alone; move it away to have this node cloned")
        # A leadership that the leader does not know has begun on this node, and came to nothing.
        known = server.sql("SELECT count(*) FROM dr.leadership WHERE term = :'term'", leader[1], term=state.get("tried", 0))
        if self.effort > 1 or server.incomplete.exists() or (known == [["0"]] and state.get("tried")):
            return self.clone(leader, member)
        if not server.is_standby() or self.effort:
            server.incomplete.touch()
            try:
                said = server.run("pg_rewind", "-D", server.data, "--source-server", server.source(leader[1], member))
                log(f"rewound: {said.strip()}")
            except Failed as error:
                log(f"{error}; cloning instead")
                return self.clone(leader, member)
            self.finish(state)

    def clone(self, leader, member):
        server = self.server
        new, old = server.home / "data.new", server.home / "data.replaced"
        log(f"cloning {leader[1]}")
        shutil.rmtree(new, ignore_errors=True)
        server.run("pg_basebackup", "-D", new, "-X", "stream", "-c", "fast", "-d", server.source(leader[1], member))
        (new / "standby.signal").touch()
        if server.data.exists():
            shutil.rmtree(old, ignore_errors=True)
            server.data.rename(old)
        new.rename(server.data)
        self.finish({})

    def finish(self, state):
        """The data is a standby's. It is of no term until it streams."""
        server = self.server
        server.signal_file("recovery").unlink(missing_ok=True)
        server.signal_file("standby").touch()
        server.state = {"term": -1, "tried": state.get("tried", 0)}
        server.incomplete.unlink(missing_ok=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        Keeper().keep()
    except KeyboardInterrupt:
        pass
