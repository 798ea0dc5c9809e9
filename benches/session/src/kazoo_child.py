"""kazoo as one of the clients of the benchmark: see child.rs for the orders that it obeys."""

import collections
import os
import signal
import sys
import time

from kazoo.client import KazooClient

SESSION_TIMEOUT = 10.0
DATA = b"\x07" * 128
WIDTH = 64
PATH = "/bench-%d" % os.getpid()


def connect(address):
    client = KazooClient(hosts=address, timeout=SESSION_TIMEOUT)
    client.start(timeout=15)
    return client


def one_by_one(operation, end, times):
    while True:
        started = time.perf_counter()
        if started >= end:
            return
        operation()
        times.append(time.perf_counter() - started)


def wide(operation, end, times):
    under_way = collections.deque()
    while True:
        while len(under_way) < WIDTH and time.perf_counter() < end:
            under_way.append((time.perf_counter(), operation()))
        if not under_way:
            return
        started, answer = under_way.popleft()
        answer.get(timeout=30)
        times.append(time.perf_counter() - started)


def bear(client, load, seconds):
    how, operation = {
        "read": (one_by_one, lambda: client.get(PATH)),
        "write": (one_by_one, lambda: client.set(PATH, DATA)),
        "wide-read": (wide, lambda: client.get_async(PATH)),
        "wide-write": (wide, lambda: client.set_async(PATH, DATA)),
    }[load]
    times = []
    begun = time.perf_counter()
    how(operation, begun + seconds, times)
    took = time.perf_counter() - begun
    times.sort()

    def at(share):
        return times[min(int(len(times) * share), len(times) - 1)] * 1e6

    return "%f %f %f" % (len(times) / took, at(0.5), at(0.99))


def connect_medians(address, number):
    made, read = [], []
    for _ in range(number):
        begun = time.perf_counter()
        client = connect(address)
        made.append(time.perf_counter() - begun)
        client.get(PATH)
        read.append(time.perf_counter() - begun)
    return "%f %f" % tuple(sorted(times)[number // 2] * 1e3 for times in (made, read))


def main():
    # The benchmark ends its children; the interrupt is for it alone.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    address = sys.argv[1]
    threads = len(os.listdir("/proc/self/task"))
    client = connect(address)
    client.create(PATH, DATA, ephemeral=True)
    kept = []
    print("ok %d" % threads, flush=True)
    for order in sys.stdin:
        word, number = order.split()
        try:
            if word == "sessions":
                while len(kept) < int(number):
                    kept.append(connect(address))
                    kept[-1].get(PATH)
                said = ""
            elif word == "connect":
                said = connect_medians(address, int(number))
            else:
                said = bear(client, word, int(number) / 1000)
            print("ok " + said, flush=True)
        except Exception as error:
            print("failed %r" % (error,), flush=True)
    # Closing so many sessions in order takes long, and the servers are about to end.
    os._exit(0)


main()
