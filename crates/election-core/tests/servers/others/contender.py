"""A contender of kazoo's, obeying words on standard input.

contender.py HOSTS PATH NAME LOCKFILE FORMAT

join: stands in the election. leave: gives up leadership, or stands no more. quit: ends.
It says LEADS, LEFT, or TWO and who else holds the lock file: the file is what only a
leader may create.
"""

import logging
import os
import sys
import threading

from kazoo.client import KazooClient
from kazoo.recipe.lock import Lock

hosts, path, name, lock_file, znode_format = sys.argv[1:]
logging.basicConfig(stream=sys.stderr, level=logging.WARNING)


class LatchLock(Lock):
    """kazoo's lock with the names of Curator's LeaderLatch. kazoo itself can only be told to
    respect such names (extra_lock_patterns), not to bear one, which Curator would not respect."""

    _NODE_NAME = "-latch-"
    _EXCLUDE_NAMES = ["latch-"]


def say(what):
    print(what, flush=True)


class Contender(threading.Thread):
    def __init__(self, client):
        super().__init__(daemon=True)
        self.election = client.Election(path, name)
        if znode_format == "leader-latch":
            self.election.lock = LatchLock(client, path, name)
        self.done = threading.Event()

    def run(self):
        self.election.run(self.lead)
        say("LEFT")

    def lead(self):
        try:
            with os.fdopen(os.open(lock_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY), "w") as held:
                held.write(name)
        except FileExistsError:
            with open(lock_file) as held:
                say("TWO " + held.read())
            return
        say("LEADS")
        self.done.wait()
        os.remove(lock_file)

    def leave(self):
        self.done.set()
        self.election.cancel()


client = KazooClient(hosts=hosts, timeout=6.0)
client.start(timeout=30)
contender = None
say("CONNECTED")
for line in sys.stdin:
    word = line.strip()
    if word == "join":
        contender = Contender(client)
        contender.start()
    elif word == "leave":
        contender.leave()
    elif word == "quit":
        break
client.stop()
