"""Lets kazoo's own tests run against a server that is there already.

ZK_TESTKIT_CONNECT names it; what kazoo's harness would start and stop is left alone. With
pytest, and the server of `cargo run -p zk-testkit --example serve`:

    ZK_TESTKIT_CONNECT=127.0.0.1:PORT ZOOKEEPER_VERSION=3.8.0 PYTHONPATH=tests/kazoo \
        python3 -m pytest -p conftest --pyargs kazoo.tests.test_client
"""
import os

import kazoo.testing.harness as harness


class Server:
    running = True

    def __init__(self, address):
        self.address = address


class Cluster(list):
    def start(self):
        pass

    stop = terminate = expire_session = start

    def get_logs(self):
        return []


CLUSTER = Cluster(Server(address) for address in os.environ["ZK_TESTKIT_CONNECT"].split(","))
harness.get_global_cluster = lambda: CLUSTER
