"""A job that grows a tree of processes by a seed, and does what makes them hard to find and to end.

    tree.py SEED MARK DEPTH [END]

A SEED that begins with "named" grows a tree of which no process clears its environment.
MARK is a fifo, opened once by the first process and inherited by all others, or its descriptor: who holds it
open lives, however it hides. The test's checker reads it. At END, by the clock since the machine was started, all end by
themselves, for a test that was killed ends nothing.
"""

import os
import random
import signal
import sys
import time

DEEPEST = 3
NOBODY = 65534
LIFETIME = 60
IGNORED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGCHLD]


def grow(seed, mark, depth):
    """The life of one process. Does not return."""
    try:
        dice = random.Random(seed)
        for step in range(dice.randrange(2, 7)):
            act(dice, f"{seed}.{step}", mark, depth)
            time.sleep(dice.random() * 0.03)
        end = dice.random()
        while depth > 0 and end < 0.15 and time.monotonic() < END:
            # A chain: each link starts the next one and ends.
            if os.fork():
                break
            if end < 0.05:
                leave_session()
            time.sleep(0.005)
        if depth == 0 or end >= 0.4:
            while time.monotonic() < END:
                time.sleep(1)
    finally:
        os._exit(0)


def act(dice, seed, mark, depth):
    deed = dice.choice(
        ["fork", "fork", "fork", "fork twice", "session", "group", "user", "ignore", "die hard", "stop", "bare"]
    )
    if deed == "fork" and depth < DEEPEST:
        if os.fork() == 0:
            grow(seed, mark, depth + 1)
    elif deed == "fork twice" and depth < DEEPEST:
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            grow(seed, mark, depth + 1)
    elif deed == "session":
        leave_session()
    elif deed == "group":
        try:
            os.setpgid(0, 0)
        except OSError:
            pass
    elif deed == "user" and os.geteuid() == 0 and dice.random() < 0.5:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    elif deed == "ignore":
        signal.signal(dice.choice(IGNORED), signal.SIG_IGN)
    elif deed == "die hard" and depth < DEEPEST:
        ends = dice.random() < 0.5

        def spawn(*_):
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                grow(seed, mark, depth + 1)
            if ends:
                os._exit(0)

        signal.signal(signal.SIGTERM, spawn)
    elif deed == "stop" and depth > 0 and dice.random() < 0.3:
        os.kill(os.getpid(), signal.SIGSTOP)
    elif deed == "bare" and depth > 0 and dice.random() < 0.5 and not seed.startswith("named"):
        # Without the environment that it came with.
        os.execve(sys.executable, [sys.executable, "-ISE", __file__, seed + "!", str(mark), str(DEEPEST), str(END)], {})


def leave_session():
    try:
        os.setsid()
    except OSError:
        pass


if __name__ == "__main__":
    seed, mark, depth = sys.argv[1], sys.argv[2], int(sys.argv[3])
    held = int(mark) if mark.isdecimal() else os.open(mark, os.O_WRONLY)
    os.set_inheritable(held, True)
    END = float(sys.argv[4]) if len(sys.argv) > 4 else time.monotonic() + LIFETIME
    grow(seed, held, depth)
