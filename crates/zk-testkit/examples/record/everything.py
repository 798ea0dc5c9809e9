"""Asks a server for what kazoo can ask for, and by hand for what neither kazoo nor ZooKeeper's own client sends.

The recorder (main.rs) starts it as `python3 everything.py RELAY`; the orders are those of Everything.java.
"""
import logging
import socket
import struct
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, KazooException
from kazoo.protocol.serialization import CheckVersion, Create2
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id, make_digest_acl

RELAY = sys.argv[1]
# Of what is refused on purpose.
logging.disable(logging.ERROR)


def order(line):
    print(line, flush=True)
    if not sys.stdin.readline():
        sys.exit("the recorder is gone")


def step(name):
    order("step " + name)


def refused(name, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except KazooException as refusal:
        if type(refusal).__name__ == name:
            return
        raise
    raise AssertionError("not refused with " + name)


def kazoo():
    step("connect")
    client = KazooClient(hosts=RELAY, timeout=10)
    client.start()
    step("create")
    client.create("/k", b"one")
    client.create("/k/e-", b"", ephemeral=True, sequence=True)
    step("create2")
    client.create("/k/two", b"two", include_data=True)
    refused("NodeExistsError", client.create, "/k/two", b"two", include_data=True)
    step("exists")
    client.exists("/k")
    client.exists("/x")
    step("getData")
    client.get("/k/two")
    refused("NoNodeError", client.get, "/x")
    step("setData")
    client.set("/k/two", b"\x00\xff", version=0)
    refused("BadVersionError", client.set, "/k/two", b"", version=0)
    step("getChildren")
    client.get_children("/k")
    step("getChildren2")
    client.get_children("/k", include_data=True)
    step("setACL")
    client.set_acls("/k/two", OPEN_ACL_UNSAFE + [make_digest_acl("bob", "secret", read=True)])
    step("getACL")
    client.get_acls("/k/two")
    step("access list beyond the first plane")
    client.set_acls("/k/two", OPEN_ACL_UNSAFE + [ACL(1, Id("digest", "\U0001f600:x"))])
    try:
        client.get_acls("/k/two")
        raise AssertionError("a server writes that as UTF-8")
    except UnicodeDecodeError:
        pass
    step("sync")
    client.sync("/k")
    step("auth")
    client.add_auth("digest", "carol:secret")
    step("multi")
    group = client.transaction()
    group.create("/k/m", b"m")
    group.operations.append(Create2("/k/m2", b"m2", list(OPEN_ACL_UNSAFE), 0))
    group.check("/k/m", 0)
    group.set_data("/k/m", b"mm")
    group.delete("/k/m")
    try:
        group.commit()
    except (KazooException, TypeError, AttributeError):
        pass  # kazoo does not know the reply to a create2 in a group
    step("multi refused")
    group = client.transaction()
    group.set_data("/k", b"1")
    group.delete("/x")
    group.check("/k", 0)
    results = group.commit()
    assert len(results) == 3, results
    step("watches")
    seen = client.handler.event_object()
    client.get("/k", watch=lambda event: seen.set())
    client.set("/k", b"changed")
    assert seen.wait(10)
    step("delete")
    refused("NotEmptyError", client.delete, "/k")
    client.delete("/k/two")
    step("closeSession")
    client.stop()
    client.close()
    step("auth refused")
    client = KazooClient(hosts=RELAY, timeout=10)
    client.start()
    try:
        client.add_auth("no-such-scheme", "x")
        raise AssertionError("not refused")
    except AuthFailedError:
        pass
    client.stop()
    client.close()


class Bare:
    """A client without any sense of its own."""

    def __init__(self, hello):
        host, port = RELAY.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.ask(hello)
        self.xid = 0

    def ask(self, body):
        self.socket.sendall(struct.pack("!i", len(body)) + body)
        return self.frame()

    def frame(self):
        """None at the end of the connection."""
        length = self.take(4)
        return length and self.take(struct.unpack("!i", length)[0])

    def take(self, count):
        taken = b""
        while len(taken) < count:
            more = self.socket.recv(count - len(taken))
            if not more:
                return None
            taken += more
        return taken

    def do(self, op, body=b""):
        self.xid += 1
        reply = self.ask(struct.pack("!ii", self.xid, op) + body)
        assert reply is None or struct.unpack_from("!i", reply)[0] == self.xid
        return reply and struct.unpack_from("!i", reply, 12)[0]

    def close(self):
        assert self.do(-11) == 0
        self.socket.close()


def string(text):
    return struct.pack("!i", len(text)) + text.encode()


def by_hand():
    hello = struct.pack("!iqiqi", 0, 0, 10_000, 0, 16) + bytes(16)
    step("connect without saying whether read-only would do")
    Bare(hello).close()
    step("by hand")
    bare = Bare(hello + b"\0")
    step("ping")
    bare.ask(struct.pack("!ii", -2, 11))
    anyone = struct.pack("!i", 1) + struct.pack("!i", 31) + string("world") + string("anyone")
    step("create without an access list")
    for nobody in (-1, 0):
        assert bare.do(1, string("/n") + struct.pack("!iii", 0, nobody, 0)) == -114
    step("create with null data")
    assert bare.do(15, string("/n") + struct.pack("!i", -1) + anyone + struct.pack("!i", 0)) == 0
    step("no such watch")
    assert bare.do(17, string("/n") + struct.pack("!i", 3)) == -121
    assert bare.do(18, string("/n") + struct.pack("!i", 3)) == -121
    step("setWatches of nothing")
    for op, lists in ((101, 3), (105, 5)):
        reply = bare.ask(struct.pack("!iiq", -8, op, 0) + struct.pack("!i", 0) * lists)
        assert struct.unpack_from("!iqi", reply)[2] == 0
    step("getEphemerals of everything")
    assert bare.do(103, struct.pack("!i", 0)) == 0
    step("addWatch of an unknown mode")
    assert bare.do(106, string("/n") + struct.pack("!i", 7)) == -5
    step("delete")
    assert bare.do(2, string("/n") + struct.pack("!i", -1)) == 0
    bare.close()
    step("unknown request")
    bare = Bare(hello + b"\0")
    assert bare.do(4711, b"whatever") == -6
    bare.socket.close()
    # From 3.9 on it is as unknown. Up to 3.8 it is answered only where it fails.
    step("check outside of a group")
    bare = Bare(hello + b"\0")
    assert bare.do(13, string("/") + struct.pack("!i", 7)) in (-103, -6)
    bare.socket.close()


kazoo()
by_hand()
