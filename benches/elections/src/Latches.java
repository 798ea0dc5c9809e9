import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Many LeaderLatches on one client, speaking the lines of contestant's mode 'many'.
 *
 * <p>Latches HOSTS PATH SESSION_MS N
 */
public final class Latches {
    private Latches() {}

    private static synchronized void say(String line) {
        System.out.println(line + " " + System.nanoTime());
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        int session = Integer.parseInt(args[2]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], session, 30000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        say("CONNECTED");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        input.readLine();
        say("START");
        int count = Integer.parseInt(args[3]);
        LeaderLatch[] latches = new LeaderLatch[count];
        for (int i = 0; i < count; i++) {
            int number = i;
            latches[i] = new LeaderLatch(client, args[1] + "/e" + i, "curator");
            latches[i].addListener(new LeaderLatchListener() {
                @Override
                public void isLeader() {
                    say("LEADER " + number);
                }

                @Override
                public void notLeader() {
                    say("LOST " + number);
                }
            });
            latches[i].start();
        }
        say("READY");
        while (input.readLine() != null) {
            // Until it is killed, or the reader has gone.
        }
    }
}
