"""Fails a primary of PostgreSQL over, under Patroni and under dr-worker, and compares. `cargo xtask bench postgres` starts it.

Two hosts (network namespaces), each with a client that writes rows to its own server all the time, and records each row that was
acknowledged with the timeline of the server. After each round the rows are looked for on the primary.
"""
import argparse, importlib.metadata, json, os, pathlib, re, shutil, signal, statistics, subprocess, sys, time, urllib.request

import psycopg

BIN = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/postgres"
PORT = 5432
LONG = 180
SCOPE = f"bench-{os.getpid()}"
INSERT = "INSERT INTO rows VALUES (%s, %s) RETURNING substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)"
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
# Both have the same settings of PostgreSQL: those of the example.
SETTINGS = dict(re.findall(r"^(\w+) = (\S+)$", (EXAMPLE / "postgresql.conf").read_text(), re.M))


def wait(what, look):
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        try:
            if found := look():
                return found
        except (OSError, psycopg.Error, subprocess.SubprocessError, LookupError, TypeError, ValueError):
            pass
        time.sleep(0.2)
    raise SystemExit(f"{what}: not within {LONG} s")


class Node:
    """A host, and what runs on it."""

    def __init__(self, name, namespace, ip, directory):
        self.name, self.namespace, self.ip, self.home = name, namespace, ip, directory / name
        self.agent = None
        self.read, self.recent = 0, []
        self.home.mkdir(mode=0o700)
        shutil.chown(self.home, "postgres", "postgres")

    def start(self, command, log, env=None):
        with open(self.home.parent / f"{self.name}.{log}", "a") as file:
            return subprocess.Popen(["ip", "netns", "exec", self.namespace, *command], stdin=subprocess.DEVNULL, stdout=file,
                                    stderr=file, env=os.environ | (env or {}))

    def cut(self, yes):
        words = [["-A", "INPUT", "!", "-i", "lo", "-j", "DROP"], ["-A", "OUTPUT", "!", "-o", "lo", "-j", "DROP"]] if yes else [["-F"]]
        for word in words:
            subprocess.run(["ip", "netns", "exec", self.namespace, "iptables", "-w", *word], check=True)

    def sql(self, text):
        with psycopg.connect(host=str(self.home), port=PORT, user="postgres", dbname="postgres", autocommit=True) as server:
            cursor = server.execute(text)
            return cursor.fetchall() if cursor.description else []

    def leads(self):
        try:
            return self.sql("SELECT pg_is_in_recovery()") == [(False,)]
        except psycopg.Error:
            return False

    def postmaster(self):
        return int((self.home / "data/postmaster.pid").read_text().split()[0])

    def acks(self):
        """Those of this round: number, begin, end, timeline."""
        with open(self.home.parent / f"{self.name}.acks", "rb") as file:
            file.seek(self.read)
            lines = file.read().rpartition(b"\n")[0].decode().splitlines()
        self.read += sum(len(line) + 1 for line in lines)
        self.recent += [(self.name, int(n), float(begun), float(ended), timeline) for n, begun, ended, timeline in map(str.split, lines)]
        return self.recent


class Patroni:
    def __init__(self, given, nodes):
        self.given, self.nodes = given, nodes
        for node in nodes:
            # About the shares of Patroni's own defaults: 30, 10 and 10.
            dcs = {"ttl": given.ttl, "loop_wait": given.ttl * 3 // 10, "retry_timeout": given.ttl * 7 // 20,
                   "maximum_lag_on_failover": 1 << 20, "synchronous_mode": given.sync, "synchronous_mode_strict": given.sync,
                   "postgresql": {"use_pg_rewind": True, "parameters": SETTINGS}}
            users = {role: {"username": name, "password": "secret"} for role, name in
                     {"superuser": "postgres", "replication": "replicator", "rewind": "rewinder"}.items()}
            local = {"listen": f"{node.ip}:{PORT}", "connect_address": f"{node.ip}:{PORT}", "data_dir": str(node.home / "data"),
                     "bin_dir": str(BIN), "pgpass": str(node.home / "pgpass"), "authentication": users,
                     "parameters": {"unix_socket_directories": str(node.home)},
                     "pg_hba": ["local all all trust", "host all all all scram-sha-256", "host replication all all scram-sha-256"]}
            settings = {"scope": SCOPE, "namespace": "/patroni/", "name": node.name, "postgresql": local,
                        "restapi": {"listen": f"{node.ip}:8008", "connect_address": f"{node.ip}:8008"},
                        "zookeeper": {"hosts": given.zookeeper.split(",")}, "watchdog": {"mode": "off"},
                        "bootstrap": {"dcs": dcs, "initdb": [{"encoding": "UTF8"}, "data-checksums"]}}
            self.file(node).write_text(json.dumps(settings))
            self.start(node)
            wait("Patroni's first primary", nodes[0].leads)

    def file(self, node):
        return node.home.parent / f"{node.name}.yml"

    def start(self, node):
        patroni = [sys.executable, str(pathlib.Path(sys.executable).with_name("patroni")), str(self.file(node))]
        node.agent = node.start([*AS_POSTGRES, *patroni], "patroni.log")

    def switchover(self, old, new):
        control = pathlib.Path(sys.executable).with_name("patronictl")
        subprocess.run([sys.executable, control, "-c", self.file(old), "switchover", SCOPE, "--leader", old.name, "--candidate",
                        new.name, "--force"], check=True, capture_output=True)

    def forgive(self):
        pass

    def may_lead(self, node):
        with urllib.request.urlopen(f"http://{node.ip}:8008/cluster", timeout=3) as answer:
            found = next(one for one in json.load(answer)["members"] if one["name"] == node.name)
        return found["state"] == "streaming" and found["lag"] == 0


class Worker:
    def __init__(self, given, nodes):
        self.given, self.nodes = given, nodes
        base = nodes[0].home.parent
        self.lib = base / "lib"
        shutil.copytree(EXAMPLE, self.lib)
        text = (self.lib / "worker.toml").read_text().replace("/usr/local/lib/dr-postgres", str(self.lib))
        # No fence, as Patroni has none.
        text = re.sub(r"\[job.orders.fence\]\n(\w.*\n)+", "", text)
        (self.lib / "worker.toml").write_text(text)
        for node in nodes:
            if node is nodes[0]:
                node.start([*AS_POSTGRES, str(self.lib / "pg.py"), "init"], "init.log", self.env(node)).wait()
            else:
                subprocess.run(["cp", "-p", nodes[0].home / "pgpass", node.home], check=True)
            self.start(node)

    def env(self, node):
        return {"PG_HOME": str(node.home), "PG_BIN": str(BIN), "PG_ADDRESS": f"{node.ip}:{PORT}", "PG_WORKER": "127.0.0.1:7080",
                "PG_SYNC": " ".join(node.name for node in self.nodes) if self.given.sync else ""}

    def command(self, *words):
        files = ["worker.toml", *(["sync.toml"] if self.given.sync else [])]
        keys = {"connect": self.given.zookeeper, "root": f"/{SCOPE}", "session_timeout": f"{self.given.ttl}s"}
        return [self.given.worker, *(word for file in files for word in ("--config", str(self.lib / file))),
                *(word for key, value in keys.items() for word in ("--set", f"zookeeper.{key}={value}")),
                "--set", 'job.orders.user="postgres"', "--set", "job.orders.restart.max=1000", *words]

    def start(self, node):
        words = ["--set", f"node.id={node.name}", "--set", f"node.site={node.name}", "--set", f"node.address={node.ip}",
                 "--set", f"node.state_dir={node.home.parent / node.name}.state", "run"]
        node.agent = node.start(self.command(*words), "worker.log", self.env(node))

    def switchover(self, _, new):
        subprocess.run(self.command("switchover", "--to", new.name, "--wait"), check=True, capture_output=True)

    # A limit on takeovers is for jobs that fail, as that on restarts: here the rounds do that.
    def forgive(self):
        subprocess.run(self.command("ack"), check=True, capture_output=True)

    def may_lead(self, node):
        listed = json.loads(subprocess.run(self.command("--output", "json", "list"), check=True, capture_output=True, text=True).stdout)
        found = next(one for one in listed["members"] if one["member"] == node.name)
        return found["role"] == "standby" and found["health"] == "healthy" and int(found["attributes"]["lag"]) < 1 << 20 \
            and (found["attributes"]["async"] == "0" or not self.given.sync)


# Events: what happens to the old primary's node, and what ends it.

def planned(system, old, new):
    system.switchover(old, new)


def process_killed(_, old, __):
    os.kill(old.postmaster(), signal.SIGKILL)


def agent_killed(system, old, _):
    old.agent.kill()
    old.agent.wait()
    return lambda: system.start(old)


def cut_off(_, old, __):
    old.cut(True)
    return lambda: old.cut(False)


EVENTS = {"planned switchover": planned, "primary's process killed": process_killed, "agent killed": agent_killed,
          "host cut off": cut_off}


def settled(system):
    """The primary and its standby, once that may lead."""
    leads = [node for node in system.nodes if node.leads()]
    if len(leads) != 1:
        return None
    other = next(node for node in system.nodes if node is not leads[0])
    streams = leads[0].sql("SELECT state FROM pg_stat_replication WHERE state = 'streaming'")
    return (leads[0], other) if streams and system.may_lead(other) else None


def play(system, happens):
    """One round: seconds without an acknowledged row, seconds until another primary acknowledged one, rows lost, seconds in
    which two primaries acknowledged."""
    acks = lambda: sorted((ack for node in system.nodes for ack in node.acks()), key=lambda ack: ack[3])
    old, new = wait("a primary and a standby", lambda: settled(system))
    wait("rows", lambda: acks()[-1][2] > time.monotonic() - 0.5)
    time.sleep(1)
    before, at = acks()[-1], time.monotonic()
    undo = happens(system, old, new)
    newer = lambda: [ack for ack in acks() if ack[4] > before[4]]
    # A synchronous primary whose standby is away acknowledges nothing.
    wait("rows after it", lambda: newer() or undo and system.given.sync and new.leads()
         or happens is process_killed and acks()[-1][2] > at + 0.1)
    time.sleep(3)
    healed = time.monotonic()
    if undo:
        undo()
    system.forgive()
    primary, _ = wait("a primary and a standby again", lambda: settled(system))
    # Before the rows are read: clients go on.
    all_acks, after = acks(), newer()
    system.acknowledged |= {ack[:2] for ack in all_acks}
    for node in system.nodes:
        node.recent = []
    rows = set(primary.sql("SELECT node, number FROM rows"))
    ends = [before[3], *(ack[3] for ack in all_acks if before[3] < ack[3] < healed)]
    silent = max((late - early for early, late in zip(ends, ends[1:])), default=healed - before[3])
    late = [ack[2] - after[0][3] for ack in all_acks if ack[4] == before[4]] if after else []
    lost = system.acknowledged - rows - system.lost
    system.lost |= lost
    return silent, after[0][3] - at if after else silent, len(lost), max([0, *late])


def write(name, address, path):
    """The client of a host."""
    number = 0
    with open(path, "a", buffering=1) as file:
        while True:
            try:
                with psycopg.connect(host=address, port=PORT, user="writer", password="writer", dbname="postgres", connect_timeout=2,
                                     autocommit=True, keepalives_idle=2) as server:
                    while True:
                        # A row whose answer was lost may exist: its number is not used again.
                        number += 1
                        begun = time.monotonic()
                        timeline = server.execute(INSERT, (name, number)).fetchone()[0]
                        file.write(f"{number} {begun:.4f} {time.monotonic():.4f} {timeline}\n")
                        time.sleep(0.005)
            except psycopg.Error:
                time.sleep(0.05)


def measure(given, kind, directory, rounds):
    if rounds == 0:
        return {event: [] for event in EVENTS}
    directory.mkdir(mode=0o755)
    nodes = [Node(name, *host.split("="), directory) for name, host in zip(("east-1", "west-1"), given.host)]
    started, results = [], {}
    try:
        system = kind(given, nodes)
        system.acknowledged, system.lost = set(), set()
        first, _ = wait("the first primary and its standby", lambda: settled(system))
        first.sql("CREATE ROLE writer LOGIN PASSWORD 'writer'")
        first.sql("CREATE TABLE rows (node text, number bigint, PRIMARY KEY (node, number))")
        first.sql("GRANT INSERT ON rows TO writer")
        for node in nodes:
            words = [sys.executable, __file__, "--write", node.name, node.ip, str(directory / f"{node.name}.acks")]
            started.append(node.start(words, "client.log"))
        for event, happens in EVENTS.items():
            results[event] = []
            for number in range(rounds if event in given.event else 0):
                results[event].append(play(system, happens))
                print(f"{kind.__name__}, {event}, round {number + 1}:", *(f"{value:.2f}" for value in results[event][-1]), flush=True)
    finally:
        for process in [*started, *(node.agent for node in nodes if node.agent)]:
            process.terminate()
        for process in [*started, *(node.agent for node in nodes if node.agent)]:
            process.wait(60)
        for node in nodes:
            node.cut(False)
            if (node.home / "data/postmaster.pid").exists():
                os.kill(node.postmaster(), signal.SIGQUIT)
    return results


def table(given, of_patroni, of_worker):
    print("| event | | seconds without acknowledged rows: median (max) | until another primary acknowledges | rows lost "
          "| rounds with two primaries (longest) | ratio to Patroni |\n|---|---|---|---|---|---|---|")
    for event in given.event:
        median = lambda rows, column: statistics.median(row[column] for row in rows[event])
        shares = " / ".join(f"{median(of_worker, column) / median(of_patroni, column):.2f}" for column in (0, 1) if of_patroni[event])
        for name, rows, share in (("Patroni", of_patroni[event], ""), ("dr-worker", of_worker[event], shares)):
            if not rows:
                continue
            silent, other, lost, double = zip(*rows)
            print(f"| {event} | {name} | {statistics.median(silent):.1f} ({max(silent):.1f}) | {statistics.median(other):.1f} "
                  f"| {sum(lost)} | {sum(one > 0 for one in double)} ({max(double):.1f} s) | {share} |")
    rounds = f"{given.patroni_rounds} rounds of each event with Patroni, {given.rounds} with dr-worker"
    print(f"\nPatroni {importlib.metadata.version('patroni')}; {rounds}; ttl and session timeout {given.ttl} s; "
          f"{'synchronous' if given.sync else 'asynchronous'} replication.")


def main():
    if sys.argv[1:2] == ["--write"]:
        return write(*sys.argv[2:])
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patroni-rounds", type=int, metavar="ROUNDS", help="default: as many; 0 leaves Patroni out")
    parser.add_argument("--ttl", type=int, default=20, help="Patroni's ttl and dr-worker's session timeout; Patroni has 20 at least")
    parser.add_argument("--event", action="append", choices=EVENTS, help="default: all")
    parser.add_argument("--sync", action="store_true", help="commits wait for the standby; then only rows lost and two primaries count")
    for name in ("--zookeeper", "--worker", "--dir"):
        parser.add_argument(name, required=True)
    parser.add_argument("--host", action="append", metavar="NAMESPACE=IP")
    given = parser.parse_args()
    given.event = given.event or list(EVENTS)
    given.patroni_rounds = given.rounds if given.patroni_rounds is None else given.patroni_rounds
    base = pathlib.Path(given.dir)
    both = ((Patroni, given.patroni_rounds), (Worker, given.rounds))
    table(given, *(measure(given, kind, base / kind.__name__.lower(), rounds) for kind, rounds in both))


if __name__ == "__main__":
    main()
