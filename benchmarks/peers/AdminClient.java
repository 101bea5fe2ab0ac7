// Apache Kafka's own admin client as a process that is up before the cluster is, so that the start of a JVM is in no
// figure. One command a line on standard input, answered by one line: "ok" with what was asked, or "! what went wrong".
//
//   create NAME PARTITIONS REPLICAS    tried until it is done and every partition has a leader
//   write NAME PARTITIONS              one record to each of them with acks=all, by a new producer, until each is acknowledged
//   leader                             node id of the leader of the metadata quorum
//
// Run as a single source file: java -cp JARS AdminClient.java BOOTSTRAP_SERVERS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.LeaderNotAvailableException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class AdminClient {
    private static final long PAUSE_MS = 10;
    private static String servers;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        Map<String, Object> config = Map.of(
            "bootstrap.servers", servers,
            "reconnect.backoff.ms", 10, "reconnect.backoff.max.ms", 50,
            "retry.backoff.ms", 10, "retry.backoff.max.ms", 50,
            "default.api.timeout.ms", 120_000);
        Admin admin = Admin.create(config);
        System.out.println("ok");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                System.out.println("ok" + execute(admin, line.split(" ")));
            } catch (Exception e) {
                System.out.println("! " + e.toString().replace('\n', ' '));
            }
        }
        System.exit(0);
    }

    private static String execute(Admin admin, String[] command) throws Exception {
        if (command[0].equals("leader")) {
            return " " + admin.describeMetadataQuorum().quorumInfo().get().leaderId();
        }
        int partitions = Integer.parseInt(command[2]);
        if (command[0].equals("write")) {
            write(command[1], partitions);
        } else {
            create(admin, command[1], partitions, Short.parseShort(command[3]));
        }
        return "";
    }

    private static void create(Admin admin, String name, int partitions, short replicas) throws Exception {
        while (!isDone(() -> admin.createTopics(List.of(new NewTopic(name, partitions, replicas))).all().get())) {
            Thread.sleep(PAUSE_MS);
        }
        while (!isDone(() -> checkLed(admin.describeTopics(List.of(name)).allTopicNames().get().get(name)))) {
            Thread.sleep(PAUSE_MS);
        }
    }

    private static void write(String topic, int partitions) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", servers, "acks", "all", "linger.ms", 0);
        ByteArraySerializer bytes = new ByteArraySerializer();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            for (int partition = 0; partition < partitions; partition++) {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, new byte[100])));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    private interface Attempt {
        void run() throws Exception;
    }

    private static boolean isDone(Attempt attempt) throws Exception {
        try {
            attempt.run();
            return true;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof TopicExistsException) {
                return true;  // by an attempt whose answer was lost
            }
            if (e.getCause() instanceof RetriableException
                || e.getCause() instanceof InvalidReplicationFactorException) {
                return false;  // the latter: no broker has registered yet
            }
            throw e;
        }
    }

    private static void checkLed(TopicDescription topic) throws Exception {
        for (var partition : topic.partitions()) {
            Node leader = partition.leader();
            if (leader == null || leader.isEmpty()) {
                throw new ExecutionException(new LeaderNotAvailableException("yet"));
            }
        }
    }
}
