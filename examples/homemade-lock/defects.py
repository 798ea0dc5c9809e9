"""Shows the usual defects of home-made ZooKeeper locks, on a real ensemble.

    defects.py SERVERS [NAME...]    SERVERS as in zk1:2181,zk2:2181; all defects by default

Each one prints what happens, and a line with SEEN once the defect has had its effect. It works below a znode of its own and
removes it. It needs kazoo (Debian's package python3-kazoo). Exit code 1: a defect was not seen.

docs/from-a-zookeeper-lock.md explains them.
"""

import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NodeExistsError, NotEmptyError

TIMEOUT = 4.0  # of a session, in seconds
CREATE = (1, 15)  # the numbers of these requests
LONG = 60  # nothing here takes so long


class Relay:
    """Connections to the servers that can be cut without notice, or lose the reply to a request."""

    def __init__(self, servers):
        self.servers = [server.rsplit(":", 1) for server in servers.split(",")]
        self.open = threading.Event()
        self.open.set()
        self.loses = ()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self):
        """From now on nothing passes, and no connection is closed: as when a firewall drops packets."""
        self.open.clear()

    def lose_reply(self, requests):
        """The next of these requests is carried out, and its connection is closed before the reply passes."""
        self.loses = requests

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            host, port = self.servers[0]
            server = socket.create_connection((host, int(port)))
            lost = []
            for pair in ((client, server, self.request), (server, client, self.reply)):
                threading.Thread(target=self.pump, args=(*pair, lost), daemon=True).start()

    def pump(self, source, target, look, lost):
        first = True
        try:
            while True:
                length = exactly(source, 4)
                frame = exactly(source, struct.unpack(">i", length)[0])
                self.open.wait()
                # The first frame of each side opens the session, and has no request number.
                if not first and look(frame, lost):
                    break
                first = False
                target.sendall(length + frame)
        except OSError:
            pass  # the other side has closed it
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def request(self, frame, lost):
        number, kind = struct.unpack(">ii", frame[:8])
        if kind in self.loses:
            self.loses = ()
            lost.append(number)
        return False

    def reply(self, frame, lost):
        return struct.unpack(">i", frame[:4])[0] in lost


def exactly(source, count):
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise OSError("closed")
        data += more
    return data


class Stage:
    """A znode of its own, and clients."""

    def __init__(self, servers, name):
        self.servers, self.name, self.clients = servers, name, []
        self.root = "/homemade-lock-%s" % uuid.uuid4().hex[:8]
        self.seen = False
        self.client("control").ensure_path(self.root)

    def client(self, who, servers=None, **settings):
        client = KazooClient(servers or self.servers, timeout=TIMEOUT, connection_retry={"max_tries": -1, "delay": 0.05}, **settings)
        client.start(LONG)
        self.clients.append(client)
        return client

    def say(self, text):
        print("%s: %s" % (self.name, text), flush=True)

    def see(self, is_so, text):
        self.seen = bool(is_so)
        self.say(("SEEN: " if is_so else "not seen: ") + text)

    def end(self):
        control = self.clients[0]
        deadline = time.monotonic() + LONG
        while True:
            try:
                control.delete(self.root, recursive=True)
                break
            except NotEmptyError:
                # A client that worked on has created another znode meanwhile.
                if time.monotonic() > deadline:
                    raise
        for client in self.clients:
            # One that is cut off can't say goodbye.
            if client.connected:
                client.stop()
                client.close()


def wait(what, condition):
    until = time.monotonic() + LONG
    while not condition():
        if time.monotonic() > until:
            sys.exit("not within %d s: %s" % (LONG, what))
        time.sleep(0.02)


def take(client, path, who):
    """Creates the lock's znode as soon as it is free."""

    def is_mine():
        try:
            client.create(path, who.encode(), ephemeral=True)
            return True
        except NodeExistsError:
            return False

    wait("%s gets the lock" % who, is_mine)


def expired(stage):
    """The end of the session is taken for a disconnect."""
    path = stage.root + "/lock"
    a, b = stage.client("A"), stage.client("B")
    leads = {"A": False, "B": False}
    changes = []

    def changed(state):
        changes.append(state)
        # A waits while it is not connected, and goes on afterwards. It does not distinguish LOST.
        leads["A"] = state == KazooState.CONNECTED

    take(a, path, "A")
    leads["A"] = True
    a.add_listener(changed)
    stage.say("A has the lock")
    # A client that knows id and password of a session can close it. It ends as by its timeout.
    other = stage.client("A again", client_id=a.client_id)
    other.stop()
    # It may have connected once more before that.
    wait("A is connected again", lambda: KazooState.LOST in changes and changes[-1] == KazooState.CONNECTED)
    take(b, path, "B")
    leads["B"] = True
    stage.say("the session of A has ended, and A is connected again: %s" % " ".join(changes[changes.index(KazooState.LOST):]))
    stage.see(leads["A"] and leads["B"], "A goes on, and B has the lock")


def cut_off(stage):
    """The leader works on while it is disconnected."""
    path, relay = stage.root + "/lock", Relay(stage.servers)
    a, b = stage.client("A", relay.address), stage.client("B")
    lost = threading.Event()
    a.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
    take(a, path, "A")
    stage.say("A has the lock, and its network is cut")
    relay.cut()
    cut = time.monotonic()
    take(b, path, "B")
    stage.say("B has the lock %.1f s later" % (time.monotonic() - cut))
    # The end of a session is reported by a server. A reaches none.
    stage.see(not lost.is_set(), "A has not heard that its session is over, and works on beside B")


def own_znode(stage):
    """A znode of an own, older session is taken for the present one."""
    path, relay = stage.root + "/lock", Relay(stage.servers)
    before = stage.client("A", relay.address)
    take(before, path, "host-a")
    relay.cut()
    stage.say("the process on host-a has the lock, and dies; systemd starts it again")
    a, b = stage.client("A"), stage.client("B")
    a.sync(path)
    data, stat = a.get(path)
    leads = data == b"host-a"
    stage.say("the new process finds its host's name in the lock, and leads")
    is_old = stat.ephemeralOwner != a.client_id[0]
    take(b, path, "host-b")
    stage.see(leads and is_old, "the znode was of the former session, and has ended with it: host-b leads too")


def retried_create(stage):
    """A create is repeated after a lost reply, without an id by which the first znode could be found."""
    relay = Relay(stage.servers)
    a, b = stage.client("A", relay.address), stage.client("B")
    relay.lose_reply(CREATE)
    while True:
        try:
            mine = a.create(stage.root + "/n-", ephemeral=True, sequence=True)
            break
        except ConnectionLoss:
            stage.say("A has lost the connection, and repeats the create")
            wait("A is connected", lambda: a.connected)
    b.sync(stage.root)
    queue = sorted(b.get_children(stage.root))
    owners = {b.exists("%s/%s" % (stage.root, name)).ephemeralOwner for name in queue}
    first = stage.root + "/" + queue[0]
    stage.say("the queue: %s" % " ".join(queue))
    stage.see(len(queue) == 2 and len(owners) == 1 and mine != first, "both are of A, which waits for its own first znode: no client gets the lock")


def herd(stage):
    """All waiters watch one znode."""
    count, path = 20, stage.root + "/lock"
    holder, waiters = stage.client("holder"), [stage.client(i) for i in range(count)]
    take(holder, path, "holder")
    woken = []
    for waiter in waiters:
        waiter.sync(path)  # its server may not have the holder's write yet
        waiter.exists(path, watch=woken.append)
    holder.delete(path)
    wait("all are woken", lambda: len(woken) == count)
    all_watch = len(woken)
    # In a queue each one watches the znode before its own.
    names = [waiter.create(stage.root + "/n-", ephemeral=True, sequence=True) for waiter in waiters]
    woken.clear()
    for before, waiter in zip(names, waiters[1:]):
        waiter.sync(before)
        waiter.exists(before, watch=woken.append)
    waiters[0].delete(names[0])
    wait("one is woken", lambda: woken)
    # What a server sends before its next reply to a session has arrived with that.
    for waiter in waiters:
        waiter.sync(stage.root)
    stage.say("%d waiters; a queue would wake %d" % (count, len(woken)))
    stage.see(all_watch == count and len(woken) == 1, "one release wakes all %d, and each of them tries to get the lock" % all_watch)


def lost_watch(stage):
    """The state is read first, and the watch is set afterwards."""
    path = stage.root + "/lock"
    holder, a = stage.client("holder"), stage.client("A")
    take(holder, path, "holder")
    woken = threading.Event()
    a.sync(path)  # its server may not have the holder's write yet
    is_taken = a.exists(path) is not None
    stage.say("A reads: the lock is %s" % ("taken" if is_taken else "free"))
    holder.delete(path)
    stage.say("the holder releases it")
    a.sync(path)
    # The answer has the present state. A only wants the watch.
    a.exists(path, watch=lambda event: woken.set())
    stage.say("A sets a watch, and waits for the release")
    was_woken = woken.wait(TIMEOUT / 2)
    stage.see(is_taken and not was_woken and holder.exists(path) is None, "the lock is free, and A waits")


def holder(servers, path, store):
    """The process A of `late_write`."""
    client = KazooClient(servers, timeout=TIMEOUT)
    client.start(LONG)
    client.create(path, b"A", ephemeral=True)
    if client.connected and client.exists(path).ephemeralOwner == client.client_id[0]:
        # Here the scheduler, a garbage collector or a hypervisor may stop the process, for any time.
        os.kill(os.getpid(), signal.SIGSTOP)
        with open(store, "a") as file:
            file.write("A, token %d\n" % 1)
    os._exit(0)


def late_write(stage):
    """The process is stopped between its check and its write; the store takes the write."""
    path = stage.root + "/lock"
    b = stage.client("B")
    with tempfile.NamedTemporaryFile("r") as store:
        a = subprocess.Popen([sys.executable, __file__, stage.servers, "--holder", path, store.name])
        try:
            os.waitpid(a.pid, os.WUNTRACED)
            stage.say("A has checked that it has the lock, and is stopped before it writes")
            take(b, path, "B")
            with open(store.name, "a") as file:
                file.write("B, token %d\n" % 2)
            stage.say("B has the lock, and has written")
            os.kill(a.pid, signal.SIGCONT)
            a.wait(LONG)
        finally:
            a.kill()
        lines = store.read().splitlines()
    stage.see(lines == ["B, token 2", "A, token 1"], "A has written after B: %s" % "; ".join(lines))


def blocked_callback(stage):
    """The work is done in the callback of a watch, which delays all other events."""
    path = stage.root + "/lock"
    former, a, b = stage.client("former"), stage.client("A"), stage.client("B")
    take(former, path, "former")
    told, ends, working = threading.Event(), threading.Event(), threading.Event()

    def is_free(event):
        a.create(path, b"A", ephemeral=True)
        a.exists(path, watch=lambda event: told.set())  # A wants to hear of the loss
        working.set()
        ends.wait(LONG)  # the work

    a.sync(path)
    a.exists(path, watch=is_free)
    former.delete(path)
    wait("A works", working.is_set)
    stage.say("A has the lock, and works in the callback that reported the release")
    # An operator removes a lock that seems to hang.
    stage.clients[0].delete(path)
    take(b, path, "B")
    stage.say("the lock of A was deleted; B has the lock")
    is_blocked = not told.wait(TIMEOUT / 2)
    ends.set()
    stage.see(is_blocked and told.wait(LONG), "A has heard of it only when its work had ended")


DEFECTS = {
    "expired": expired,
    "cut-off": cut_off,
    "own-znode": own_znode,
    "retried-create": retried_create,
    "herd": herd,
    "lost-watch": lost_watch,
    "late-write": late_write,
    "blocked-callback": blocked_callback,
}


def main(servers, *names):
    unknown = [name for name in names if name not in DEFECTS]
    if unknown:
        sys.exit("unknown: %s; there are %s" % (" ".join(unknown), " ".join(DEFECTS)))
    # Lost connections are the subject.
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    code = 0
    for name in names or DEFECTS:
        stage = Stage(servers, name)
        DEFECTS[name](stage)
        stage.end()
        if not stage.seen:
            code = 1
    # Threads of clients that are cut off never end.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    if sys.argv[2:3] == ["--holder"]:
        holder(sys.argv[1], *sys.argv[3:])
    main(*sys.argv[1:])
