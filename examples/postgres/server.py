"""The PostgreSQL server of this node: its files, its settings, its programs, and what its worker says.

Environment, the same for the worker and for the keeper:

    PG_HOME     directory of everything, such as /var/lib/dr-postgres
    PG_BIN      directory of PostgreSQL's programs
    PG_ADDRESS  host:port for clients and standbys
    PG_WORKER   http.listen of this node's worker
    PG_JOB      the job's name (orders)
    PG_USER     who runs the programs if this is root (postgres)
    PG_CONF     settings that all nodes share (postgresql.conf beside this file)
    PG_SYNC     members that confirm each commit, separated by spaces; empty: replication is asynchronous
"""

import contextlib
import fcntl
import http.client
import json
import os
import pathlib
import pwd
import re
import subprocess
import sys
import time

ADDRESS = re.compile(r"[A-Za-z0-9.-]+:[0-9]{1,5}")


class Failed(Exception):
    """A reason, for people."""


def log(text):
    print(text, flush=True)


def setting(name, default=None):
    value = os.environ.get(name, default)
    if value is None:
        sys.exit(f"{name} is not set")
    return value


def split(address):
    """An address may come from another member, by way of ZooKeeper."""
    if not ADDRESS.fullmatch(address or ""):
        raise Failed(f"{address!r} is no host:port")
    return address.rsplit(":", 1)


def quoted(value):
    """As a value in PostgreSQL's configuration, or in a connection string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Server:
    def __init__(self):
        self.home = pathlib.Path(setting("PG_HOME"))
        self.bin = pathlib.Path(setting("PG_BIN"))
        self.address = setting("PG_ADDRESS")
        self.job = setting("PG_JOB", "orders")
        self.shared = setting("PG_CONF", str(pathlib.Path(__file__).resolve().parent / "postgresql.conf"))
        self.data = self.home / "data"
        self.conf = self.home / "postgresql.conf"
        self.password = self.home / "pgpass"
        # While it exists, the data is between two states: it can only be replaced.
        self.incomplete = self.home / "incomplete"
        # The term in which this primary need not wait for a standby.
        self.alone = self.home / "alone"
        if os.geteuid() == 0:
            # PostgreSQL refuses to be root.
            user = pwd.getpwnam(setting("PG_USER", "postgres"))
            os.initgroups(user.pw_name, user.pw_gid)
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
        os.umask(0o077)
        try:
            os.chdir(self.home)
            if os.stat(".").st_mode & 0o077:
                raise OSError(f"others have access to {self.home}")
        except OSError as error:
            sys.exit(f"PG_HOME: {error}; PostgreSQL's user needs it for itself: install -d -o postgres -m 700 {self.home}")

    # What this node knows of its data.

    @property
    def state(self):
        """`term`: the leadership whose data this is; `tried`: the last one that began here; `known`: how far its WAL is
        known to reach; `got`: how far it has arrived here; `primary`: whether it was written here; `sync`: whether each
        commit waited for this member."""
        try:
            return json.loads((self.home / "state.json").read_text())
        except FileNotFoundError:
            return {}

    @state.setter
    def state(self, state):
        self.write("state.json", json.dumps(state))

    def write(self, name, text):
        new = self.home / (name + ".new")
        with open(new, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self.home / name)

    @contextlib.contextmanager
    def lock(self, patience):
        """The data directory, for as long as it is changed or a server is started on it. Keeper and hooks take turns."""
        end = time.monotonic() + patience
        with open(self.home / "lock", "w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise Failed("the data directory is in use: it is being cloned or rewound, or a hook runs") from None
                    time.sleep(0.05)
            yield

    # The worker.

    def ask(self, path):
        connection = http.client.HTTPConnection(setting("PG_WORKER"), timeout=3)
        try:
            connection.request("GET", f"{path}?job={self.job}")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"the worker does not answer: {error}") from None
        finally:
            connection.close()
        if answer.status != 200:
            raise Failed(f"the worker answers {path} with {answer.status}")
        return json.loads(body)

    def role(self):
        """The role of this member, and its id."""
        status = self.ask("/status")
        return status["jobs"][self.job]["role"], status["member"]

    def newest(self):
        """The term of the newest leadership that was READY, also if its leader is gone; 0 if there was none."""
        return max((one["term"] for one in self.ask("/history")["leaderships"]), default=0)

    # Programs and settings.

    def run(self, program, *args, **options):
        """A program of PostgreSQL; its output."""
        done = subprocess.run([self.bin / program, *args], capture_output=True, text=True, errors="replace", **options)
        if done.returncode:
            raise Failed(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def sql(self, text, address=None, **variables):
        """The rows of a statement, of this server or of another member's. Variables are used as :'name'."""
        host, port = split(address) if address else (str(self.home), split(self.address)[1])
        target = {
            "PGHOST": host, "PGPORT": port, "PGUSER": "replicator" if address else "postgres", "PGDATABASE": "postgres",
            "PGPASSFILE": str(self.password), "PGCONNECT_TIMEOUT": "3", "PGOPTIONS": "-c statement_timeout=20s",
        }
        given = [f"--set={name}={value}" for name, value in variables.items()]
        rows = self.run("psql", "-XAtq", "--set=ON_ERROR_STOP=1", *given, input=text, env=os.environ | target, timeout=30)
        return [row.split("|") for row in rows.splitlines()]

    def source(self, address, member):
        """A connection string for replication from another member."""
        host, port = split(address)
        return (
            f"host={host} port={port} user=replicator dbname=postgres passfile={quoted(str(self.password))} "
            f"application_name={quoted(member)} connect_timeout=3 keepalives_idle=5 keepalives_interval=2 keepalives_count=3"
        )

    def configure(self, **more):
        """Writes the settings, which are outside of the data directory: pg_rewind and pg_basebackup replace what is in it."""
        host, port = split(self.address)
        settings = {
            "listen_addresses": host, "port": port, "unix_socket_directories": str(self.home),
            # The socket's directory admits its owner only.
            "hba_file": str(self.home / "pg_hba.conf"),
            "restore_command": "false",
        } | more
        lines = [f"include {quoted(self.shared)}", *(f"{name} = {quoted(value)}" for name, value in settings.items())]
        self.write("postgresql.conf", "\n".join(lines) + "\n")
        access = "local all all trust", "host all all all scram-sha-256", "host replication replicator all scram-sha-256"
        self.write("pg_hba.conf", "\n".join(access) + "\n")

    def command(self):
        return [str(self.bin / "postgres"), "-D", str(self.data), "-c", f"config_file={self.conf}"]

    def control(self):
        """What pg_controldata says, by name."""
        lines = self.run("pg_controldata", "-D", self.data, env=os.environ | {"LC_ALL": "C"}).splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def is_running(self):
        return subprocess.run([self.bin / "pg_ctl", "status", "-D", self.data], capture_output=True).returncode == 0

    def signal_file(self, name):
        return self.data / f"{name}.signal"

    def is_standby(self):
        return self.signal_file("standby").exists()
