// Asks a server for everything that ZooKeeper's own client can ask for. The recorder (main.rs) starts it as
//     java -cp JARS Everything.java PART RELAY SERVER
// It goes through RELAY, where the bytes are recorded, and makes a few changes past it, at SERVER. It writes orders to
// standard output, one a line, and waits for a line on standard input after each:
//     step NAME       what is recorded from here on has that name
//     cut, heal       close all connections and refuse new ones; accept them again
//     alone           stop all servers but the one behind RELAY

import static org.apache.zookeeper.ZooDefs.Ids.CREATOR_ALL_ACL;
import static org.apache.zookeeper.ZooDefs.Ids.OPEN_ACL_UNSAFE;
import static org.apache.zookeeper.ZooDefs.Ids.READ_ACL_UNSAFE;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.Watcher.WatcherType;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

public class Everything {
    static final int TIMEOUT_MS = 10_000;
    static final BufferedReader ANSWERS = new BufferedReader(new InputStreamReader(System.in));

    static String relay;
    static String server;

    public static void main(String[] arguments) throws Exception {
        relay = arguments[1];
        server = arguments[2];
        switch (arguments[0]) {
            case "java" -> {
                nodes();
                refusals();
                identities();
                groups();
                watches();
                removedWatches();
                reconnects();
                sessions();
            }
            case "sasl" -> sasl();
            case "ensemble" -> ensemble();
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    static void order(String line) throws IOException {
        System.out.println(line);
        if (ANSWERS.readLine() == null) {
            throw new IOException("the recorder is gone");
        }
    }

    static void step(String name) throws IOException {
        order("step " + name);
    }

    // Collects what a session or its watches are told.
    static class Events extends LinkedBlockingQueue<WatchedEvent> implements Watcher {
        @Override
        public void process(WatchedEvent event) {
            add(event);
        }

        void await(KeeperState state) throws Exception {
            while (next().getState() != state) {}
        }

        // Of znodes, not of the session.
        void await(int events) throws Exception {
            for (int seen = 0; seen < events; ) {
                seen += next().getPath() == null ? 0 : 1;
            }
        }

        WatchedEvent next() throws Exception {
            WatchedEvent event = poll(30, TimeUnit.SECONDS);
            if (event == null) {
                throw new Exception("no event came");
            }
            return event;
        }
    }

    static ZooKeeper connect(String address, int timeoutMs) throws Exception {
        Events events = new Events();
        ZooKeeper zk = new ZooKeeper(address, timeoutMs, events);
        events.await(KeeperState.SyncConnected);
        return zk;
    }

    interface Call {
        void run() throws Exception;
    }

    static void refused(KeeperException.Code code, Call call) throws Exception {
        try {
            call.run();
        } catch (KeeperException refusal) {
            if (refusal.code() == code) {
                return;
            }
            throw refusal;
        }
        throw new Exception("not refused with " + code);
    }

    // The client asks lists whether they contain null, which those of List.of refuse to answer.
    static List<ACL> acl(ACL... entries) {
        return Arrays.asList(entries);
    }

    static void sync(ZooKeeper zk, String path) throws Exception {
        CountDownLatch done = new CountDownLatch(1);
        zk.sync(path, (code, of, context) -> done.countDown(), null);
        done.await();
    }

    static void nodes() throws Exception {
        byte[] one = "one".getBytes();
        step("connect");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        step("create");
        zk.create("/a", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        step("create2");
        zk.create("/b", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, new Stat());
        step("create without data");
        zk.create("/null", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.create("/empty", new byte[0], READ_ACL_UNSAFE, CreateMode.PERSISTENT);
        step("create persistent sequential");
        zk.create("/a/s-", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL);
        step("create ephemeral");
        zk.create("/a/e", one, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL, new Stat());
        step("create ephemeral sequential");
        zk.create("/a/es-", one, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL);
        step("create container");
        zk.create("/container", one, OPEN_ACL_UNSAFE, CreateMode.CONTAINER);
        step("create ttl");
        zk.create("/ttl", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, new Stat(), 3_600_000);
        step("create ttl sequential");
        zk.create("/ttl-", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, new Stat(), 3_600_001);
        step("create with a path beyond ASCII");
        zk.create("/pläne-€", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        step("exists");
        zk.exists("/a/e", false);
        step("getData");
        zk.getData("/b", false, new Stat());
        step("getData null and empty");
        zk.getData("/null", false, new Stat());
        zk.getData("/empty", false, new Stat());
        step("setData");
        zk.setData("/b", new byte[] {0, (byte) 0xff, 0x7f}, 0);
        zk.setData("/b", null, -1);
        step("getACL");
        zk.getACL("/empty", new Stat());
        step("setACL");
        zk.setACL("/b", acl(new ACL(Perms.ALL, new Id("world", "anyone")), new ACL(Perms.READ, new Id("ip", "10.0.0.0/8"))), 0);
        zk.getACL("/b", new Stat());
        step("getChildren");
        zk.getChildren("/a", false);
        zk.getChildren("/b", false);
        step("getChildren2");
        zk.getChildren("/a", false, new Stat());
        step("sync");
        sync(zk, "/a");
        step("getEphemerals");
        zk.getEphemerals();
        zk.getEphemerals("/a/es");
        zk.getEphemerals("/nowhere");
        step("getAllChildrenNumber");
        zk.getAllChildrenNumber("/a");
        step("getConfig");
        zk.getConfig(false, new Stat());
        step("delete");
        zk.delete("/null", 0);
        zk.delete("/empty", -1);
        step("closeSession");
        zk.close();
    }

    static void refusals() throws Exception {
        step("refusals");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        zk.create("/e", null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        step("create refused");
        refused(KeeperException.Code.NODEEXISTS, () -> zk.create("/a", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        refused(KeeperException.Code.NONODE, () -> zk.create("/x/y", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT, new Stat()));
        refused(KeeperException.Code.NOCHILDRENFOREPHEMERALS, () -> zk.create("/e/c", null, OPEN_ACL_UNSAFE, CreateMode.CONTAINER));
        refused(KeeperException.Code.INVALIDACL, () -> zk.create("/n", null, CREATOR_ALL_ACL, CreateMode.PERSISTENT));
        step("delete refused");
        refused(KeeperException.Code.NONODE, () -> zk.delete("/x", -1));
        refused(KeeperException.Code.NOTEMPTY, () -> zk.delete("/a", -1));
        refused(KeeperException.Code.BADVERSION, () -> zk.delete("/b", 7));
        step("reads refused");
        zk.exists("/x", false);
        refused(KeeperException.Code.NONODE, () -> zk.getData("/x", false, new Stat()));
        refused(KeeperException.Code.NONODE, () -> zk.getChildren("/x", false));
        refused(KeeperException.Code.NONODE, () -> zk.getChildren("/x", false, new Stat()));
        refused(KeeperException.Code.NONODE, () -> zk.getACL("/x", new Stat()));
        step("setData refused");
        refused(KeeperException.Code.BADVERSION, () -> zk.setData("/b", null, 7));
        step("reconfig refused");
        ZooKeeperAdmin admin = new ZooKeeperAdmin(relay, TIMEOUT_MS, new Events());
        refused(KeeperException.Code.RECONFIGDISABLED, () -> admin.reconfigure("server.2=127.0.0.1:2:3;4", "1", null, -1, new Stat()));
        refused(KeeperException.Code.RECONFIGDISABLED, () -> admin.reconfigure((String) null, null, "server.1=127.0.0.1:2:3;4", 5, new Stat()));
        admin.close();
        zk.close();
    }

    static void identities() throws Exception {
        step("identities");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        step("whoAmI");
        zk.whoAmI();
        step("auth");
        zk.addAuthInfo("digest", "alice:secret".getBytes());
        zk.whoAmI();
        step("create with the creator's access list");
        zk.create("/alice", null, CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        zk.getACL("/alice", new Stat());
        step("access list beyond the first plane");
        ACL smile = new ACL(Perms.ALL, new Id("digest", "\ud83d\ude00:x"));
        zk.create("/smile", null, acl(smile, OPEN_ACL_UNSAFE.get(0)), CreateMode.PERSISTENT);
        zk.getACL("/smile", new Stat());
        zk.close();
        step("not authorized");
        ZooKeeper other = connect(relay, TIMEOUT_MS);
        refused(KeeperException.Code.NOAUTH, () -> other.getData("/alice", false, new Stat()));
        other.close();
        step("auth refused");
        Events events = new Events();
        ZooKeeper bad = new ZooKeeper(relay, TIMEOUT_MS, events);
        events.await(KeeperState.SyncConnected);
        bad.addAuthInfo("no-such-scheme", new byte[] {1, 2, 3});
        events.await(KeeperState.AuthFailed);
        bad.close();
    }

    static void groups() throws Exception {
        byte[] one = "one".getBytes();
        step("groups");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        step("multi");
        zk.multi(List.of(
            Op.create("/m", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.create("/m/container", one, OPEN_ACL_UNSAFE, CreateMode.CONTAINER),
            Op.create("/m/ttl", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT_WITH_TTL, 3_600_000),
            Op.create("/m/e-", one, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL_SEQUENTIAL),
            Op.check("/m", 0),
            Op.setData("/m", null, 0),
            Op.delete("/m/ttl", -1)));
        step("multi refused");
        refused(KeeperException.Code.NODEEXISTS, () -> zk.multi(List.of(
            Op.setData("/m", one, -1),
            Op.create("/m", one, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
            Op.delete("/m/container", -1))));
        step("check in a multi refused");
        refused(KeeperException.Code.BADVERSION, () -> zk.multi(List.of(Op.check("/m", 7), Op.delete("/m", -1))));
        step("multiRead");
        zk.multi(List.of(Op.getData("/m"), Op.getChildren("/m"), Op.getData("/b"), Op.getChildren("/b")));
        step("multiRead with refusals");
        zk.multi(List.of(Op.getData("/x"), Op.getData("/m"), Op.getChildren("/alice")));
        zk.close();
    }

    static void watches() throws Exception {
        step("watches");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        Events events = new Events();
        step("event created");
        zk.exists("/w", events);
        zk.create("/w", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        events.await(1);
        step("event data changed");
        zk.getData("/w", events, new Stat());
        zk.setData("/w", null, -1);
        events.await(1);
        step("event children changed");
        zk.getChildren("/w", events, new Stat());
        zk.create("/w/c", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        events.await(1);
        step("event deleted");
        zk.exists("/w/c", events);
        zk.delete("/w/c", -1);
        events.await(1);
        step("addWatch persistent");
        zk.addWatch("/w", events, AddWatchMode.PERSISTENT);
        zk.setData("/w", null, -1);
        zk.create("/w/c", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        events.await(2);
        step("addWatch recursive");
        Events below = new Events();
        zk.addWatch("/a", below, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.create("/a/ä", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.create("/a/ä/d", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        zk.setData("/a/ä/d", null, -1);
        zk.delete("/a/ä/d", -1);
        zk.delete("/a/ä", -1);
        below.await(5);
        step("event of a multi");
        zk.multi(List.of(Op.setData("/w", null, -1), Op.delete("/w/c", -1)));
        events.await(2);
        zk.close();
    }

    static void removedWatches() throws Exception {
        step("removed watches");
        ZooKeeper zk = connect(relay, TIMEOUT_MS);
        Events first = new Events();
        Events second = new Events();
        zk.getData("/w", first, new Stat());
        zk.getData("/w", second, new Stat());
        zk.getChildren("/w", first);
        zk.addWatch("/m", second, AddWatchMode.PERSISTENT);
        step("checkWatches");
        zk.removeWatches("/w", first, WatcherType.Data, false);
        step("removeWatches");
        zk.removeAllWatches("/w", WatcherType.Data, false);
        zk.removeAllWatches("/w", WatcherType.Children, false);
        zk.removeAllWatches("/m", WatcherType.Any, false);
        zk.close();
    }

    static void reconnects() throws Exception {
        step("setWatches prepared");
        ZooKeeper past = connect(server, TIMEOUT_MS);
        Events session = new Events();
        ZooKeeper zk = new ZooKeeper(relay, TIMEOUT_MS, session);
        session.await(KeeperState.SyncConnected);
        Events events = new Events();
        zk.getData("/w", events, new Stat());
        zk.exists("/late", events);
        zk.getChildren("/m", events);
        zk.getData("/b", events, new Stat());
        order("cut");
        session.await(KeeperState.Disconnected);
        past.setData("/w", "changed meanwhile".getBytes(), -1);
        past.create("/late", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        past.create("/m/late", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        step("setWatches");
        order("heal");
        events.await(3);
        step("setWatches2 prepared");
        zk.addWatch("/m", events, AddWatchMode.PERSISTENT);
        zk.addWatch("/a", events, AddWatchMode.PERSISTENT_RECURSIVE);
        zk.getData("/w", events, new Stat());
        order("cut");
        session.await(KeeperState.Disconnected);
        step("setWatches2");
        order("heal");
        session.await(KeeperState.SyncConnected);
        zk.setData("/m", null, -1);
        zk.close();
        past.close();
    }

    static void sessions() throws Exception {
        step("ping");
        ZooKeeper pinged = connect(relay, 1_000);
        Thread.sleep(1_000);
        pinged.close();
        step("connect for read-only, too");
        Events events = new Events();
        ZooKeeper readOnly = new ZooKeeper(relay, TIMEOUT_MS, events, true);
        events.await(KeeperState.SyncConnected);
        long id = readOnly.getSessionId();
        byte[] password = readOnly.getSessionPasswd();
        readOnly.close();
        step("connect to a session that is over");
        Events over = new Events();
        ZooKeeper late = new ZooKeeper(relay, TIMEOUT_MS, over, id, password);
        over.await(KeeperState.Expired);
        late.close();
    }

    static void sasl() throws Exception {
        step("sasl");
        Events events = new Events();
        ZooKeeper zk = new ZooKeeper(relay, TIMEOUT_MS, events);
        events.await(KeeperState.SaslAuthenticated);
        step("whoAmI with SASL");
        zk.whoAmI();
        zk.create("/bob", null, CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        zk.getACL("/bob", new Stat());
        zk.close();
        step("sasl refused");
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty(ZKClientConfig.LOGIN_CONTEXT_NAME_KEY, "Wrong");
        Events refused = new Events();
        ZooKeeper wrong = new ZooKeeper(relay, TIMEOUT_MS, refused, config);
        refused.await(KeeperState.AuthFailed);
        wrong.close();
    }

    static void ensemble() throws Exception {
        step("connect");
        Events events = new Events();
        ZooKeeperAdmin zk = new ZooKeeperAdmin(relay, TIMEOUT_MS, events);
        events.await(KeeperState.SyncConnected);
        step("getConfig");
        String config = new String(zk.getConfig(false, new Stat()));
        step("reconfig");
        // It joins as what it is already: a change that costs nobody the leader or a connection.
        String joining = config.lines().filter(line -> line.startsWith("server.1=")).findFirst().get();
        zk.reconfigure(joining + ";" + server, null, null, -1, new Stat());
        step("reconfig of another version");
        refused(KeeperException.Code.BADVERSION, () -> zk.reconfigure((String) null, "2", null, 1, new Stat()));
        step("ephemeral of a local session");
        refused(KeeperException.Code.EPHEMERALONLOCALSESSION, () -> zk.create("/e", null, OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL));
        zk.close();
        step("read-only");
        order("alone");
        Events late = new Events();
        ZooKeeper reader = new ZooKeeper(relay, TIMEOUT_MS, late, true);
        late.await(KeeperState.ConnectedReadOnly);
        reader.getData("/", false, new Stat());
        refused(KeeperException.Code.NOTREADONLY, () -> reader.create("/a", null, OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
        reader.close();
    }
}
