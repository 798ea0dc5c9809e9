#!/usr/bin/python3 -IS
"""PostgreSQL as a job of dr-worker with standbys. README.md lists the verbs and the environment."""
import _signal
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # first: a stop during the other imports is no error
import contextlib, json, os, pathlib, shutil, subprocess, sys, time

HOME, BIN, LIB = pathlib.Path(os.environ["PG_HOME"]), pathlib.Path(os.environ["PG_BIN"]), pathlib.Path(__file__).resolve().parent
HOST, PORT = os.environ["PG_ADDRESS"].rsplit(":", 1)
SYNC, TERM, CAUSE = (os.environ.get(name, "") for name in ("PG_SYNC", "DR_TERM", "DR_CAUSE"))
# While INCOMPLETE exists, the data is between two states: it can only be replaced.
DATA, CONF, PASSWORD, INCOMPLETE = HOME / "data", HOME / "postgresql.conf", HOME / "pgpass", HOME / "incomplete"
# The former leader has ended its job properly, or is about to.
PLANNED = "switchover", "leader-shutdown", "standing-order", "better-candidate", "slots-changed"
# The newest leadership in this data, how far its WAL reaches, and the primary's by the connection to it.
POSITION = """SELECT pg_is_in_recovery(), (SELECT max(term) FROM dr.leadership), CASE WHEN pg_is_in_recovery()
    THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) ELSE pg_current_wal_flush_lsn() END - '0/0',
    coalesce((SELECT latest_end_lsn - '0/0' FROM pg_stat_wal_receiver WHERE status = 'streaming'), 0),
    current_setting('synchronous_standby_names')"""
Failed = RuntimeError  # with a reason, for people
# How many standbys are attached, and how many have this.
RECEIVED = "SELECT count(*), count(*) FILTER (WHERE flush_lsn - '0/0' >= :'position') FROM pg_stat_replication"
# Not by a commit that waits for a standby: a primary is ready before its standbys are back.
READY = "SET synchronous_commit = local; INSERT INTO dr.leadership VALUES (:'token', :'term', :'member') ON CONFLICT DO NOTHING"

def run(program, *args, **options):
    done = subprocess.run([BIN / program, *args], capture_output=True, text=True, errors="replace", **options)
    if done.returncode:
        raise Failed(f"{program} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout

def sql(text, host=None, patience=20, **variables):
    """The rows of a statement, of this server or of another member's. Variables are used as :'name'."""
    target = {"PGHOST": host or str(HOME), "PGPORT": PORT, "PGUSER": "replicator" if host else "postgres",
              "PGDATABASE": "postgres", "PGPASSFILE": str(PASSWORD), "PGCONNECT_TIMEOUT": "3"}
    given = [f"--set={name}={value}" for name, value in ({"ON_ERROR_STOP": 1} | variables).items()]
    rows = run("psql", "-XAtq", *given, input=text, env=os.environ | target, timeout=patience)
    return [row.split("|") for row in rows.splitlines()]

def ask(path):
    """What the worker of this node says."""
    import urllib.request  # takes longer than the rest
    of_job = "" if path == "/status" else f"?job={os.environ.get('PG_JOB', 'orders')}"
    with urllib.request.urlopen(f"http://{os.environ['PG_WORKER']}{path}{of_job}", timeout=3) as answer:
        return json.load(answer)

def newest():
    """The term of the newest leadership that was READY, also if its leader is gone."""
    return max((one["term"] for one in ask("/history")["leaderships"]), default=0)

def me():
    return os.environ.get("DR_MEMBER") or ask("/status")["member"]

def others():
    """The members that confirm each commit on this one."""
    return [name for name in SYNC.split() if name != me()]

def note(name, value):
    """`known`: how far the WAL of a term is known to reach, and whether each commit waited for this member; `tried`: the last
    term that began here; `alone`: the term whose commits wait for no member; `owed`: whose last WAL a takeover has lacked after
    the newest leadership in this data."""
    with open(HOME / f"{name}.{os.getpid()}", "w") as file:
        print(json.dumps(value), file=file, flush=True)
        os.fsync(file.fileno())
    os.replace(file.name, HOME / name)

def noted(name):
    return json.loads((HOME / name).read_text()) if (HOME / name).exists() else {}

def source(host):
    return (f"host={host} port={PORT} user=replicator dbname=postgres passfile={PASSWORD} application_name={me()} "
            "connect_timeout=3 keepalives_idle=5 keepalives_interval=2 keepalives_count=3")

def configure(primary="", alone=False):
    """The settings are outside of the data directory: pg_rewind and pg_basebackup replace what is in it."""
    names = [] if alone else [f'"{name}"' for name in others()]
    settings = {"include": os.environ.get("PG_CONF", LIB / "postgresql.conf"), "hba_file": LIB / "pg_hba.conf", "port": PORT,
                "listen_addresses": HOST, "unix_socket_directories": HOME, "primary_conninfo": primary and source(primary),
                "synchronous_standby_names": f"ANY {len(names)} ({', '.join(names)})" if names else ""}
    CONF.write_text("".join(f"{name} = '{value}'\n" for name, value in settings.items()))

@contextlib.contextmanager
def started(data):
    """A server for a moment, on its socket only."""
    options = f"-c config_file='{CONF}' -c listen_addresses="
    run("pg_ctl", "start", "-w", "-t", "86400", "-D", data, "-l", HOME / "moment.log", "-o", options)
    yield
    run("pg_ctl", "stop", "-D", data, "-m", "fast")

def init():
    note("known", {"term": 0, "wal": 1, "sync": True})
    password = os.urandom(24).hex()
    PASSWORD.write_text(f"*:*:*:replicator:{password}\n")
    # pg_rewind needs the checksums.
    run("initdb", "-D", HOME / "data.new", "--username=postgres", "--data-checksums", "--encoding=UTF8", "--auth=reject")
    configure(alone=True)
    with started(HOME / "data.new"):
        # By standard input: others can read arguments.
        sql(f"\\set password {password}\n{(LIB / 'schema.sql').read_text()}")
    (HOME / "data.new").rename(DATA)

def primary():
    """After a crash of the primary, or where no standby ran."""
    if (DATA / "standby.signal").exists():
        (DATA / "standby.signal").rename(DATA / "recovery.signal")
    configure(alone=CAUSE == "emergency" or noted("alone") == int(TERM))
    postmaster()

def standby():
    address = os.environ["DR_LEADER_ADDRESS"]
    if address and leads(os.environ["DR_LEADER"]):
        make_standby_of(address)
    if INCOMPLETE.exists() or not DATA.exists():
        raise Failed("there is no usable data, and no leader to clone")
    (DATA / "standby.signal").touch()
    configure(address)
    postmaster()

def postmaster():
    os.execv(BIN / "postgres", ["postgres", "-D", str(DATA), "-c", f"config_file={CONF}"])

def leads(member):
    with contextlib.suppress(OSError):  # without ZooKeeper the data is left as it is
        return (ask("/cluster")["slots"][0]["leader"] or {}).get("member") == member

def attached():
    # If nothing comes from a leader that answers, this data may have to be rewound, which could not be known at the start.
    with contextlib.suppress(Failed, subprocess.TimeoutExpired):
        if sql(POSITION)[0][3] == "0" and leads(os.environ["DR_LEADER"]) and sql("SELECT 1", os.environ["DR_LEADER_ADDRESS"], 5):
            sys.exit("nothing comes from the leader, which answers")

def make_standby_of(leader):
    """Data from which a standby of this leader can start."""
    theirs = sql("SELECT system_identifier FROM pg_control_system()", leader)[0][0]
    if DATA.exists() and not INCOMPLETE.exists() and can_rewind(leader, theirs):
        # The checkpoint after its promotion tells pg_rewind of the leader's timeline.
        sql("CHECKPOINT", leader, 3600)
        INCOMPLETE.touch()
        try:
            print("rewound:", run("pg_rewind", "-D", DATA, "--source-server", source(leader)), flush=True)
            return INCOMPLETE.unlink()
        except Failed as error:
            print(error)
    print(f"cloning {leader}", flush=True)
    new, old = HOME / "data.new", HOME / "data.replaced"
    shutil.rmtree(new, ignore_errors=True)
    run("pg_basebackup", "-D", new, "-X", "stream", "-c", "fast", "-d", source(leader))
    if DATA.exists():
        shutil.rmtree(old, ignore_errors=True)
        DATA.rename(old)
    new.rename(DATA)
    note("tried", 0)
    INCOMPLETE.unlink(missing_ok=True)

def can_rewind(leader, theirs):
    control, tried = run("pg_controldata", "-D", DATA, env=os.environ | {"LC_ALL": "C"}), noted("tried")
    if theirs not in control.split():
        raise Failed(f"{DATA} is another database than that of {leader}: move it away to have this node cloned")
    # The timeline of a leadership that came to nothing may have the number of another one.
    if tried and not sql("SELECT 1 FROM dr.leadership WHERE term = :'tried'", leader, tried=tried):
        return False
    if "shut down" not in control:
        (DATA / "standby.signal").touch()
        configure()
        with started(DATA): pass  # pg_rewind needs a clean stop
    return True

def before_takeover():
    if CAUSE == "emergency":  # an operator has decided: no server runs here, and no worker answers
        if INCOMPLETE.exists() or not DATA.exists():
            raise Failed("there is no usable data")
        return note("tried", -1)  # no election knows this leadership: if another one wins, this data is cloned
    (_, term, got, *_), known = sql(POSITION)[0], noted("known")
    confirms = not SYNC or known.get("term") == int(term) and known["sync"]
    # A member that is first in line takes over by the elector's last look. What an operator asks for may accept a loss.
    if CAUSE not in ("failover", "switchover") and not (confirms and int(term) >= newest()):
        raise Failed("this data does not continue the newest leadership: only `failover --accept-loss` names this member")
    # Named again after it has declined, because the former primary is no candidate yet, this member lacks the same WAL.
    former = os.environ["DR_PREVIOUS_LEADER"] if CAUSE in PLANNED else CAUSE != "failover" and noted("owed").get(term)
    if former and not has_the_end(int(got)) and any(one["member"] == former for one in ask("/cluster")["members"]):
        note("owed", {term: former})
        raise Failed("the former primary's last WAL has not arrived: it leads again")
    note("tried", int(TERM))

def has_the_end(position):
    """The last WAL record here is the checkpoint of the former primary's shutdown."""
    segment = f"{(position - 1) // 2**32:08X}{(position - 1) % 2**32 // 2**24:08X}"
    file = max((DATA / "pg_wal").glob(f"????????{segment}"))
    start = max((position - 1) // 2**24 * 2**24, position - 2**14)
    command = [BIN / "pg_waldump", "-s", f"{start // 2**32:X}/{start % 2**32:X}", file]
    found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    return bool(found) and "CHECKPOINT_SHUTDOWN" in found[-1]

def ready():
    sql(READY, term=TERM, token=os.environ["DR_FENCING_TOKEN"], member=me())
    note("known", {"term": int(TERM), "wal": int(sql(POSITION)[0][2]), "sync": True})

def before_stop():
    """The stop writes a checkpoint and sends all WAL. Both are short if most of it is done before, while clients write."""
    sql("CHECKPOINT", patience=3600)
    position, end = sql(POSITION)[0][2], int(os.environ["DR_DEADLINE_MS"]) / 1000 - 2
    while (row := sql(RECEIVED, position=position)[0])[1] == "0" != row[0]:
        if time.time() > end:
            raise Failed("no standby that is attached has all WAL yet")
        time.sleep(0.05)

def measure():
    """`lag` is printed only if the data continues the newest leadership's: without it the member can't be elected."""
    (recovers, *numbers, sync), known = sql(POSITION)[0], noted("known")
    term, got, end = map(int, numbers)
    if recovers == "f":
        if os.environ["DR_ROLE"] == "leader":
            note("known", {"term": term, "wal": got, "sync": True})
        return print(f"state=primary\nwal={got}\nsync={sync}\nlag=0\nasync=0")
    print("state=streaming" if end else "state=waiting")
    if term < newest():
        return
    if known.get("term") != term:
        known = {"term": term, "wal": 0, "sync": False}
    cluster = ask("/cluster")
    leader = cluster["slots"][0]["leader"] or {"term": -1, "member": ""}
    published = next((one["attributes"] for one in cluster["members"] if one["member"] == leader["member"]), {})
    if leader["term"] == term and leader["member"] != me() and "wal" in published:
        known = {"term": term, "wal": max(known["wal"], int(published["wal"])), "sync": f'"{me()}"' in published.get("sync", "")}
    known["wal"] = max(known["wal"], end)
    note("known", known)
    if known["wal"]:
        print(f"async={0 if known['sync'] else 1}\nlag={max(0, known['wal'] - got)}")

def alone(how):
    """Whether this primary commits without its standbys, in this term."""
    cluster, is_on = ask("/cluster"), how == "on"
    # In maintenance a member is not elected, and ZooKeeper keeps that: a member that lacks commits must not lead.
    electable = set(others()) - {one["member"] for one in cluster["maintenance"]}
    if is_on and electable:
        raise Failed("; ".join(f"first: dr-worker maintenance {name}" for name in sorted(electable)))
    note("alone", cluster["slots"][0]["leader"]["term"] if is_on else 0)
    configure(alone=is_on)
    run("pg_ctl", "reload", "-D", DATA)
    position = sql(POSITION)[0][2]
    while not is_on and int(sql(RECEIVED, position=position)[0][1]) < len(others()): time.sleep(0.2)

if __name__ == "__main__":
    os.umask(0o077)
    try:
        globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        print(error, flush=True)
        # A hook declines leadership by this code.
        sys.exit(75 if sys.argv[1] == "before-takeover" else 1)
