#!/usr/bin/python3
"""Runs PostgreSQL as the primary: the job of dr-worker, its hooks, and what an operator does to it.

    primary.py init                      creates the database, once, on the first node
    primary.py lead                      job.orders.command: becomes the postmaster of the primary
    primary.py ready                     job.orders.ready: writes the leadership's row
    primary.py before-takeover           hook: stops the standby, checks what has arrived, prepares the promotion
    primary.py before-stop               hook: makes the stop short
    primary.py alone on|off              lets this primary commit without its standbys, and ends that
"""

import os
import secrets
import subprocess
import sys
import time

from server import Failed, Server, log, setting

DECLINED = 75
# The former primary has ended its job properly, or is about to.
PLANNED = ("switchover", "leader-shutdown", "standing-order", "better-candidate", "slots-changed")
SCHEMA = """
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'password';
GRANT EXECUTE ON FUNCTION pg_ls_dir(text, boolean, boolean), pg_stat_file(text, boolean), pg_read_binary_file(text),
    pg_read_binary_file(text, bigint, bigint, boolean) TO replicator;
CREATE SCHEMA dr;
GRANT USAGE ON SCHEMA dr TO PUBLIC;
CREATE TABLE dr.leadership (
    token bigint PRIMARY KEY, term bigint NOT NULL, member text NOT NULL, since timestamptz DEFAULT now());
GRANT SELECT ON dr.leadership TO PUBLIC;
CREATE FUNCTION dr.require(newest bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE mine bigint := (SELECT max(token) FROM dr.leadership);
BEGIN
    IF mine < newest THEN
        RAISE EXCEPTION 'this server has the token %, and a newer one was seen: %', mine, newest;
    END IF;
    RETURN mine;
END $$;
"""
# The row is written without waiting for a standby: a primary is ready before its standbys are back.
READY = """
SET synchronous_commit = local;
INSERT INTO dr.leadership (token, term, member) VALUES (:'token', :'term', :'member') ON CONFLICT (token) DO NOTHING;
"""


class Primary:
    def __init__(self):
        self.server = Server()

    def others(self, member):
        return [name for name in setting("PG_SYNC", "").split() if name != member]

    def configure(self, others):
        """Each commit waits for all of these members."""
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in others)
        self.server.configure(synchronous_standby_names=f"ANY {len(others)} ({names})" if others else "")

    def init(self):
        server = self.server
        if server.data.exists():
            raise Failed(f"{server.data} exists")
        if not server.password.exists():
            server.write("pgpass", f"*:*:*:replicator:{secrets.token_hex(24)}\n")
        password = server.password.read_text().strip().rpartition(":")[2]
        new = server.home / "data.new"
        # pg_rewind needs the checksums. Access is by PG_HOME/pg_hba.conf.
        server.run("initdb", "-D", new, "--username=postgres", "--data-checksums", "--encoding=UTF8", "--auth=reject")
        server.configure()
        # On its socket only.
        options = f"-c config_file='{server.conf}' -c listen_addresses="
        done = subprocess.run([server.bin / "pg_ctl", "start", "-w", "-D", new, "-l", server.home / "init.log", "-o", options])
        if done.returncode:
            raise Failed(f"see {server.home / 'init.log'}")
        try:
            # By standard input: others can read arguments.
            server.sql(f"\\set password {password}\n{SCHEMA}")
        finally:
            server.run("pg_ctl", "stop", "-D", new, "-m", "fast")
        new.rename(server.data)
        server.state = {"term": 0, "tried": 0, "primary": True}
        log(f"created {server.data}; copy {server.password} to the other nodes")

    def lead(self):
        server, term, others = self.server, int(setting("DR_TERM")), self.others(setting("DR_MEMBER"))
        if server.is_standby() or server.incomplete.exists():
            raise Failed("the data is a standby's: before-takeover has not run")
        if server.alone.exists() and int(server.alone.read_text()) == term:
            others = []
        self.configure(others)
        server.state = server.state | {"tried": term}
        # This process becomes the postmaster, so the guard's signals go to it, and the kernel kills it if the guard dies.
        os.execv(server.bin / "postgres", server.command())

    def ready(self):
        term, token, member = int(setting("DR_TERM")), int(setting("DR_FENCING_TOKEN")), setting("DR_MEMBER")
        self.server.sql(READY, term=term, token=token, member=member)
        self.server.state = {"term": term, "tried": term, "primary": True}

    def before_takeover(self):
        server = self.server
        if not server.data.exists() or server.incomplete.exists():
            raise Failed("this member has no usable data yet")
        # A member that is first in line takes over by the elector's last look, when it may have measured otherwise. What an
        # operator asks for is decided at once, and may accept a loss.
        if setting("DR_CAUSE") not in ("failover", "switchover") and not self.continues():
            raise Failed("this data does not continue the newest leadership: only `failover --accept-loss` names this member")
        with server.lock(5):
            if not server.is_standby():
                return  # It was the primary.
            running = server.is_running()
            if running:
                self.wait_for("what has arrived is not replayed", lambda: server.sql(
                    "SELECT pg_last_wal_replay_lsn() >= coalesce(pg_last_wal_receive_lsn(), '0/0')") == [["t"]])
                server.run("pg_ctl", "stop", "-D", server.data, "-m", "fast", "-t", "50")
            if setting("DR_CAUSE") in PLANNED and self.predecessor_lives() and not self.has_the_end():
                raise Failed("the former primary's last WAL has not arrived: it leads again")
            # The server replays all WAL that it has, then begins a new timeline.
            server.signal_file("standby").rename(server.signal_file("recovery"))

    def continues(self):
        state = self.server.state
        confirmed = not setting("PG_SYNC", "") or state.get("primary") or state.get("sync")
        return bool(state.get("term") == self.server.newest() and confirmed)

    def wait_for(self, what, condition):
        end = int(setting("DR_DEADLINE_MS")) / 1000 - 2
        while not condition():
            if time.time() > end:
                raise Failed(what)
            time.sleep(0.05)

    def predecessor_lives(self):
        members = self.server.ask("/cluster")["members"]
        return any(one["member"] == setting("DR_PREVIOUS_LEADER") for one in members)

    def has_the_end(self):
        """The last WAL record here is the checkpoint of the former primary's shutdown. Nothing follows that one."""
        control = self.server.control()
        found = subprocess.run([
            self.server.bin / "pg_waldump", "-p", self.server.data / "pg_wal", "-n", "2",
            "-t", control["Latest checkpoint's TimeLineID"], "-s", control["Latest checkpoint location"],
        ], capture_output=True, text=True)
        records = found.stdout.splitlines()
        return len(records) == 1 and "CHECKPOINT_SHUTDOWN" in records[0]

    def before_stop(self):
        """The stop writes a checkpoint and sends all WAL. Both are short if most of it is done before, while clients write."""
        self.server.sql("CHECKPOINT")
        position = self.server.sql("SELECT pg_current_wal_flush_lsn()")[0][0]
        self.wait_for(f"no standby has all WAL until {position}", lambda: self.has_received(position))

    def has_received(self, position):
        attached, arrived = self.server.sql(
            "SELECT count(*), count(*) FILTER (WHERE flush_lsn >= :'position'::pg_lsn) FROM pg_stat_replication",
            position=position)[0]
        if attached == "0":
            raise Failed("no standby is attached: none can lead without a loss")
        return arrived != "0"

    def alone(self, how):
        server = self.server
        role, member = server.role()
        if role != "leader":
            raise Failed(f"{member} does not lead")
        cluster = server.ask("/cluster")
        term = cluster["slots"][0]["leader"]["term"]
        others = self.others(member)
        if not others:
            raise Failed("PG_SYNC names no other member: commits wait for none")
        if how == "on":
            # In maintenance a member is not elected, and that is kept by ZooKeeper. Without that, a member that lacks the
            # commits of this time could lead.
            serviced = [one["member"] for one in cluster["maintenance"]]
            electable = [name for name in others if name not in serviced]
            if electable:
                raise Failed("; ".join(f"first: dr-worker maintenance {name}" for name in electable))
            server.write("alone", str(term))
        else:
            server.alone.unlink(missing_ok=True)
        self.configure([] if how == "on" else others)
        server.run("pg_ctl", "reload", "-D", server.data)
        if how == "off":
            position = server.sql("SELECT pg_current_wal_flush_lsn()")[0][0]
            waits = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum' AND flush_lsn >= :'position'::pg_lsn"
            while int(server.sql(waits, position=position)[0][0]) < len(others):
                time.sleep(0.2)
            log("; ".join(f"now: dr-worker maintenance {name} --off" for name in others))


VERBS = {"init": 0, "lead": 0, "ready": 0, "before-takeover": 0, "before-stop": 0, "alone": 1}

if __name__ == "__main__":
    verb, *arguments = sys.argv[1:] or [""]
    if VERBS.get(verb) != len(arguments) or not set(arguments) <= {"on", "off"}:
        sys.exit(__doc__)
    try:
        getattr(Primary(), verb.replace("-", "_"))(*arguments)
    except Failed as error:
        log(error)
        sys.exit(DECLINED if verb == "before-takeover" else 1)
