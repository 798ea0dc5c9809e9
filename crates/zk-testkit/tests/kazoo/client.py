"""What kazoo's users do, on the server named by the first argument.

Asks for faults by a line on standard output, and goes on when it has read one: see kazoo.rs.
"""

import logging
import sys
import threading
import time
import uuid

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.recipe.watchers import ChildrenWatch, DataWatch
from kazoo.security import make_digest_acl

SOON = 30.0
HOSTS = sys.argv[1]

logging.basicConfig(level=logging.CRITICAL)


def please(fault, client):
    print("%s %x" % (fault, client.client_id[0]), flush=True)
    assert sys.stdin.readline().strip() == "done", fault


class Seen:
    """Things that happen, in order; waits for them."""

    def __init__(self):
        self.all = []
        self.changed = threading.Condition()

    def __call__(self, what):
        with self.changed:
            self.all.append(what)
            self.changed.notify_all()

    def until(self, *wanted):
        with self.changed:
            ok = self.changed.wait_for(lambda: self.all[: len(wanted)] == list(wanted), SOON)
            assert ok, "%r, and not %r" % (self.all, wanted)
            del self.all[: len(wanted)]


def connect(hosts=HOSTS, **options):
    client = KazooClient(hosts=hosts, timeout=4.0, **options)
    client.start(timeout=SOON)
    return client


def fails(error, call, *args, **more):
    try:
        call(*args, **more)
    except error:
        return
    raise AssertionError("no %s" % error.__name__)


def sessions(root):
    client, other = connect(), connect()
    states = Seen()
    client.add_listener(states)
    client.create(root + "/mine", ephemeral=True)
    first = client.client_id
    please("drop", client)
    states.until(KazooState.SUSPENDED, KazooState.CONNECTED)
    assert client.client_id == first and other.exists(root + "/mine")

    gone = Seen()
    assert other.exists(root + "/mine", watch=lambda event: gone((event.type, event.path)))
    please("expire", client)
    gone.until(("DELETED", root + "/mine"))
    states.until(KazooState.SUSPENDED, KazooState.LOST, KazooState.CONNECTED)
    assert client.client_id[0] != first[0]

    client.create(root + "/closed", ephemeral=True)
    client.stop()
    assert other.exists(root + "/closed") is None, "a closed session's ephemerals are gone"
    assert other.server_version()[:2] == (3, 8)
    assert other.command(b"ruok") == "imok"
    other.stop()


def znodes(root):
    client = connect(HOSTS + root)
    client.ensure_path("/a/b")
    fails(NodeExistsError, client.create, "/a")
    fails(NotEmptyError, client.delete, "/a")
    fails(NoNodeError, client.get, "/none")
    fails(NoNodeError, client.create, "/none/x")
    path, stat = client.create("/data", b"one", include_data=True)
    assert (path, stat.version, stat.dataLength) == ("/data", 0, 3)
    assert client.set("/data", b"two").version == 1
    fails(BadVersionError, client.set, "/data", b"x", version=7)
    data, stat = client.get("/data")
    assert (data, stat.version) == (b"two", 1)
    names = [client.create("/a/s-", sequence=True) for _ in range(3)]
    assert names == ["/a/s-%010d" % number for number in (1, 2, 3)]
    children, stat = client.get_children("/a", include_data=True)
    assert sorted(children) == ["b"] + [name[3:] for name in names] and stat.numChildren == 4
    assert client.create("/deep/er/x", makepath=True) == "/deep/er/x"
    client.delete("/deep", recursive=True)
    big = b"x" * 900000
    client.set("/data", big)
    assert client.get("/data")[0] == big and client.sync("/data")
    answers = [client.get_async("/data") for _ in range(200)]
    assert all(answer.get(timeout=SOON)[0] == big for answer in answers[-20:])

    acl = make_digest_acl("ann", "secret", all=True)
    client.add_auth("digest", "ann:secret")
    client.create("/private", b"hidden", acl=[acl])
    assert client.get_acls("/private")[0] == [acl]
    stranger = connect(HOSTS + root)
    fails(NoAuthError, stranger.get, "/private")
    friend = connect(HOSTS + root, auth_data=[("digest", "ann:secret")])
    assert friend.get("/private")[0] == b"hidden"
    for one in (client, stranger, friend):
        one.stop()


def watches(root):
    client, writer = connect(HOSTS + root), connect(HOSTS + root)
    client.ensure_path("/w")
    seen = Seen()
    once = lambda event: seen((event.type, event.path))
    client.get("/w", watch=once)
    client.get_children("/w", watch=once)
    assert client.exists("/w/new", watch=once) is None
    writer.set("/w", b"1")
    seen.until(("CHANGED", "/w"))
    writer.create("/w/new")
    seen.until(("CREATED", "/w/new"), ("CHILD", "/w"))
    writer.set("/w", b"2")

    data, children = Seen(), Seen()
    DataWatch(client, "/w", lambda value, stat: data(value))
    ChildrenWatch(client, "/w", lambda names: children(sorted(names)))
    data.until(b"2")
    children.until(["new"])
    # What happens while the client is away is told when it is back.
    please("drop", client)
    writer.set("/w", b"3")
    writer.create("/w/newer")
    data.until(b"3")
    children.until(["new", "newer"])
    assert seen.all == []
    client.stop()
    writer.stop()


def transactions(root):
    client = connect(HOSTS + root)
    client.create("/t", b"0")
    good = client.transaction()
    good.check("/t", 0)
    good.create("/t/x", b"x")
    good.set_data("/t", b"1")
    good.create("/t/y", ephemeral=True, sequence=True)
    good.delete("/t/x")
    results = good.commit()
    assert results[0] is True and results[1] == "/t/x" and results[2].version == 1, results
    assert results[3].startswith("/t/y") and results[4] is True, results
    bad = client.transaction()
    bad.set_data("/t", b"2")
    bad.check("/t", 77)
    bad.delete("/t")
    kinds = [type(result) for result in bad.commit()]
    assert kinds == [RolledBackError, BadVersionError, RuntimeInconsistency], kinds
    assert client.get("/t")[0] == b"1"
    client.stop()


def locks(root):
    one, two = connect(HOSTS + root), connect(HOSTS + root)
    held, waits = one.Lock("/lock", "one"), two.Lock("/lock", "two")
    assert held.acquire(timeout=SOON) and not waits.acquire(blocking=False)
    got = threading.Event()

    def second():
        if waits.acquire(timeout=SOON):
            got.set()

    waiter = threading.Thread(target=second)
    waiter.start()
    until(lambda: held.contenders() == ["one", "two"])
    assert not got.is_set()
    please("expire", one)
    assert got.wait(SOON), "the lock of an expired session is free"
    waiter.join()
    waits.release()
    with two.WriteLock("/rw", "w"):
        assert not one.ReadLock("/rw", "r").acquire(blocking=False)
    one.stop()
    two.stop()


def until(so):
    deadline = time.monotonic() + SOON
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def elections(root):
    clients = [connect(HOSTS + root) for _ in range(3)]
    led, leave = Seen(), [threading.Event() for _ in clients]
    elections = [client.Election("/election", str(index)) for index, client in enumerate(clients)]

    def lead(index):
        led(index)
        leave[index].wait(SOON)

    threads = []
    for index, election in enumerate(elections):
        threads.append(threading.Thread(target=election.run, args=(lead, index)))
        threads[-1].start()
        until(lambda: len(elections[0].contenders()) == index + 1)
    led.until(0)
    please("expire", clients[0])
    led.until(1)
    leave[1].set()
    led.until(2)
    leave[0].set()
    leave[2].set()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    for client in clients:
        client.stop()


def more_recipes(root):
    one, two = connect(HOSTS + root), connect(HOSTS + root)
    counter = one.Counter("/counter")
    counter += 3
    assert two.Counter("/counter").value == 3
    queue = one.LockingQueue("/queue")
    queue.put_all([b"a", b"b"])
    taken = two.LockingQueue("/queue")
    assert taken.get(timeout=SOON) == b"a" and taken.consume() and len(queue) == 1
    semaphore = one.Semaphore("/semaphore", max_leases=1)
    assert semaphore.acquire(timeout=SOON)
    assert not two.Semaphore("/semaphore", max_leases=1).acquire(blocking=False)
    party = one.Party("/party", "one")
    party.join()
    assert list(two.Party("/party", "two")) == ["one"]
    barrier = one.Barrier("/barrier")
    barrier.create()
    assert not two.Barrier("/barrier").wait(timeout=0.1)
    barrier.remove()
    assert two.Barrier("/barrier").wait(timeout=SOON)
    one.stop()
    two.stop()


def main():
    client = connect()
    for part in (sessions, znodes, watches, transactions, locks, elections, more_recipes):
        root = "/%s-%s" % (part.__name__, uuid.uuid4().hex)
        client.create(root)
        part(root)
        print("passed %s" % part.__name__, flush=True)
    client.stop()


main()
