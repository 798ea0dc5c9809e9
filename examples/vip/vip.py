#!/usr/bin/env python3
"""Holds a virtual IPv4 address for as long as a job of dr-worker may run, and runs the job's program behind it.

    vip.py hold ADDRESS INTERFACE WORKER PROGRAM [ARGUMENT...]    as the job's command; WORKER is http.listen
    vip.py watch ADDRESS INTERFACE                                prints which host answers for the address

The address is bound to two things:

* The lease. Each time the worker reports how long its lease lasts, the kernel gets a lifetime for the address that ends
  before the lease, in whole seconds. Without renewal the kernel removes the address, whichever process is frozen.
* This process. The address is on an interface that the kernel removes with the process, before its parent can know that
  it has ended.

It needs CAP_NET_ADMIN and CAP_NET_RAW, /dev/net/tun, and the default `arp_ignore` (0) on the interface.
"""

import fcntl
import http.client
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time

RENEW = 0.5  # between two renewals, and the longest wait for the worker's answer
PROBE = 0.1  # how long another host has time to answer for the address
ANNOUNCEMENTS = 5
# The kernel removes an address at most one second after its lifetime, and this much is for the call.
LATE, CALL = 1, 0.25
ROLES = ("taking-over", "leader", "stepping-down")


def clock():
    """Runs while the machine is suspended, as the worker's lease does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def log(text):
    print(text, flush=True)


class Arp:
    """Questions and announcements about an address on an interface."""

    def __init__(self, address, interface):
        try:
            self.address = socket.inet_pton(socket.AF_INET, address)
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            self.socket.bind((interface, 0x0806))
        except OSError as error:
            sys.exit(f"no ARP for {address} on {interface}: {error}; it needs an IPv4 address, an interface, CAP_NET_RAW")
        self.own = self.socket.getsockname()[4]

    def send(self, sender):
        head = b"\xff" * 6 + self.own + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 1)
        try:
            self.socket.send(head + self.own + sender + bytes(6) + self.address)
        except OSError as error:
            log(f"cannot send ARP: {error}")

    def ask(self):
        self.send(bytes(4))

    def announce(self):
        self.send(self.address)

    def answers(self, within):
        """The hosts that have used the address, as they are heard."""
        end = time.monotonic() + within
        while select.select([self.socket], [], [], max(0, end - time.monotonic()))[0]:
            try:
                packet = self.socket.recv(64)
            except OSError as error:
                # Once, when the interface goes down.
                log(f"cannot hear ARP: {error}")
                continue
            if packet[28:32] == self.address and packet[22:28] != self.own:
                yield packet[22:28].hex(":")


class Address:
    """The address, on an interface of this process."""

    def __init__(self, address):
        self.address = socket.inet_aton(address)
        self.until = 0  # by the kernel it is gone then
        self.device = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
        name = fcntl.ioctl(self.device, 0x400454CA, struct.pack("16sH22x", b"vip%d", 0x1001))  # TUNSETIFF: TUN, NO_PI
        self.index = socket.if_nametoindex(name[:16].rstrip(b"\0").decode())
        self.netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self.request(16, struct.pack("BxHiII", 0, 0, self.index, 1, 1))  # RTM_NEWLINK: up

    def request(self, kind, body, flags=0):
        head = struct.pack("IHHII", 16 + len(body), kind, 0x5 | flags, 0, 0)  # NLM_F_REQUEST, NLM_F_ACK
        self.netlink.send(head + body)
        error = -struct.unpack_from("i", self.netlink.recv(4096), 16)[0]
        if error:
            raise OSError(error, os.strerror(error))

    def change(self, kind, lifetime, flags=0):
        body = struct.pack("BBBBi", socket.AF_INET, 32, 0, 0, self.index)
        for attribute in (1, 2):  # IFA_ADDRESS, IFA_LOCAL
            body += struct.pack("HH4s", 8, attribute, self.address)
        body += struct.pack("HHIIII", 20, 6, lifetime, lifetime, 0, 0)  # IFA_CACHEINFO
        self.request(kind, body, flags)

    def renew(self, end):
        """Keeps it, but not beyond `end`; false if there is no time left for that."""
        lifetime = int(end - clock() - LATE - CALL)
        if lifetime < 1:
            return False
        self.change(20, lifetime, 0x500)  # RTM_NEWADDR: NLM_F_CREATE, NLM_F_REPLACE
        self.until = clock() + lifetime + LATE
        if self.until > end:
            # This process was stopped in between.
            self.change(21, 0)  # RTM_DELADDR
            self.until = 0
            return False
        return True

    def is_held(self):
        return clock() < self.until

    def close(self):
        os.close(self.device)


def end_of_lease(worker):
    """Until when this leadership may last without a heartbeat, by this host's clock; 0 if it does not last."""
    asked = clock()
    if os.environ.get("DR_CAUSE") == "emergency":
        return asked + 10  # `emergency-lead`: no lease, and no worker to ask. The address goes with this process
    connection = http.client.HTTPConnection(worker, timeout=RENEW)
    try:
        connection.request("GET", "/leader?job=" + os.environ["DR_JOB"])
        answer = json.load(connection.getresponse())
    except (OSError, ValueError, http.client.HTTPException):
        return 0  # a frozen worker
    finally:
        connection.close()
    if answer.get("role") not in ROLES or str(answer.get("term")) != os.environ["DR_TERM"]:
        return 0
    return asked + (answer.get("lease_remaining_ms") or 0) / 1000


def hold(address, interface, worker, *program):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    arp, child, announced = Arp(address, interface), None, 0
    try:
        held = Address(address)
    except OSError as error:
        sys.exit(f"no tun interface: {error}; it needs /dev/net/tun and CAP_NET_ADMIN")
    for scope in ("all", interface):
        with open(f"/proc/sys/net/ipv4/conf/{scope}/arp_ignore") as setting:
            if setting.read().strip() != "0":
                sys.exit(f"net.ipv4.conf.{scope}.arp_ignore must be 0, or {interface} does not answer for {address}")
    try:
        while child is None or child.poll() is None:
            begun = time.monotonic()
            end = end_of_lease(worker)
            others = set()
            if not held.is_held():
                announced = 0
                arp.ask()
                others.update(arp.answers(PROBE))
            others.update(arp.answers(0))
            for other in others:
                log(f"{address} is in use at {other}")
            if (held.is_held() or not others) and held.renew(end):
                if announced < ANNOUNCEMENTS:
                    announced += 1
                    arp.announce()
                    if announced == 1:
                        log(f"{address} is here")
                if child is None:
                    child = subprocess.Popen(program)
            elif announced and not held.is_held():
                announced = 0
                log(f"{address} is not here any more")
            pause = max(0, begun + RENEW - time.monotonic())
            if child is None:
                time.sleep(pause)
            else:
                pidfd = os.pidfd_open(child.pid)
                select.select([pidfd], [], [], pause)
                os.close(pidfd)
        sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
    finally:
        # The address goes first, then the program.
        held.close()
        if child is not None:
            child.terminate()
            child.wait()


def watch(address, interface):
    arp, last = Arp(address, interface), None
    while True:
        arp.ask()
        for host in list(arp.answers(PROBE / 2)) or ["no host"]:
            if host != last:
                last = host
                log(f"{clock():.3f} {host}")


if __name__ == "__main__":
    commands = {"hold": (hold, 4), "watch": (watch, 2)}
    command, least = commands.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if command is None or len(sys.argv) - 2 < least:
        sys.exit(__doc__)
    try:
        command(*sys.argv[2:])
    except KeyboardInterrupt:
        pass
