import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderLatchListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A contender of Curator's: a LeaderLatch that obeys words on standard input.
 *
 * <p>Contender HOSTS PATH NAME LOCKFILE: join, leave and quit; it says LEADS, LEFT, PARTICIPANTS, or TWO and who
 * else holds the lock file, which only a leader may create.
 */
public final class Contender implements LeaderLatchListener {
    private final Path lockFile;
    private final String name;
    private boolean holds;

    private Contender(Path lockFile, String name) {
        this.lockFile = lockFile;
        this.name = name;
    }

    @Override
    public synchronized void isLeader() {
        try {
            Files.writeString(lockFile, name, StandardOpenOption.CREATE_NEW);
            holds = true;
            System.out.println("LEADS");
        } catch (FileAlreadyExistsException e) {
            System.out.println("TWO");
        } catch (IOException e) {
            System.out.println("FAILED " + e);
        }
    }

    @Override
    public synchronized void notLeader() {
        try {
            if (holds) {
                Files.delete(lockFile);
                holds = false;
            }
        } catch (IOException e) {
            System.out.println("FAILED " + e);
        }
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(args[0], 6000, 30000, new ExponentialBackoffRetry(100, 5));
        client.start();
        client.blockUntilConnected();
        System.out.println("CONNECTED");
        Contender contender = new Contender(Path.of(args[3]), args[2]);
        LeaderLatch latch = null;
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String word = input.readLine(); word != null && !word.equals("quit"); word = input.readLine()) {
            if (word.equals("join")) {
                latch = new LeaderLatch(client, args[1], args[2]);
                latch.addListener(contender);
                latch.start();
            } else if (word.equals("leave")) {
                // Its work ends before its place is given up.
                contender.notLeader();
                latch.close();
                System.out.println("LEFT");
            } else if (word.equals("participants")) {
                StringBuilder ids = new StringBuilder("PARTICIPANTS");
                latch.getParticipants().forEach(one -> ids.append(' ').append(one.getId()));
                System.out.println(ids);
            }
        }
        client.close();
    }
}
