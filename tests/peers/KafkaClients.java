// Apache Kafka's own clients behind a line protocol: one command a line on standard input, fields separated by tabs.
// Every command is answered by lines of output and a line with a single dot, or by one line "! what went wrong".
//
//   topic NAME [KEY=VALUE]...                                create a topic with one partition
//   producer ID [KEY=VALUE]...                               transactional if transactional.id is given
//   send ID TOPIC TIMESTAMP KEY VALUE [HEADER VALUE]...      bytes in base64, "-" for null
//   flush ID | begin ID | commit ID | abort ID | close ID
//   delete TOPIC OFFSET                                      delete the records below
//   read TOPIC ISOLATION_LEVEL                               offset, timestamp, type, epoch, key, value, headers a line
//   offsets TOPIC                                            first, next, last stable, that of the largest timestamp
//   times TOPIC TIMESTAMP...                                 offset and timestamp at or after each, "-" for none
//
// Run as a single source file: java -cp JARS KafkaClients.java BOOTSTRAP_SERVERS

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class KafkaClients {
    private static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private static final Map<String, List<Future<RecordMetadata>>> pending = new HashMap<>();
    private static String servers;
    private static Admin admin;

    public static void main(String[] arguments) throws Exception {
        servers = arguments[0];
        admin = Admin.create(Map.of("bootstrap.servers", servers));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                StringBuilder answer = new StringBuilder();
                execute(line.split("\t", -1), answer);
                System.out.print(answer + ".\n");
            } catch (Exception e) {
                System.out.print("! " + e.toString().replace('\n', ' ') + "\n");
            }
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // open transactions stay open
    }

    private static void execute(String[] words, StringBuilder answer) throws Exception {
        switch (words[0]) {
            case "topic" -> {
                NewTopic topic = new NewTopic(words[1], 1, (short) 1).configs(properties(words, 2));
                admin.createTopics(List.of(topic)).all().get();
            }
            case "producer" -> startProducer(words[1], properties(words, 2));
            case "send" -> send(words);
            case "flush" -> flush(words[1]);
            case "begin" -> producers.get(words[1]).beginTransaction();
            case "commit" -> { flush(words[1]); producers.get(words[1]).commitTransaction(); }
            case "abort" -> { flush(words[1]); producers.get(words[1]).abortTransaction(); }
            case "close" -> { flush(words[1]); producers.remove(words[1]).close(); }
            case "delete" -> {
                RecordsToDelete below = RecordsToDelete.beforeOffset(Long.parseLong(words[2]));
                admin.deleteRecords(Map.of(partition(words[1]), below)).all().get();
            }
            case "read" -> read(words[1], words[2], answer);
            case "offsets" -> {
                answer.append(offset(words[1], OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)).append('\t');
                answer.append(offset(words[1], OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)).append('\t');
                answer.append(offset(words[1], OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)).append('\t');
                answer.append(offset(words[1], OffsetSpec.maxTimestamp(), IsolationLevel.READ_UNCOMMITTED)).append('\n');
            }
            case "times" -> times(words, answer);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void startProducer(String id, Map<String, String> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", servers);
        config.putIfAbsent("linger.ms", "60000"); // a batch ends at flush
        config.put("delivery.timeout.ms", "120000");
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (more.containsKey("transactional.id")) producer.initTransactions();
        producers.put(id, producer);
        pending.put(id, new ArrayList<>());
    }

    private static void send(String[] words) {
        List<Header> headers = new ArrayList<>();
        for (int i = 6; i < words.length; i += 2)
            headers.add(new RecordHeader(new String(bytes(words[i])), bytes(words[i + 1])));
        Long timestamp = words[3].equals("-") ? null : Long.valueOf(words[3]);
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(words[2], 0, timestamp, bytes(words[4]), bytes(words[5]), headers);
        pending.get(words[1]).add(producers.get(words[1]).send(record));
    }

    private static void flush(String id) throws Exception {
        producers.get(id).flush();
        for (Future<RecordMetadata> future : pending.get(id)) future.get();
        pending.get(id).clear();
    }

    private static void read(String topic, String isolation, StringBuilder answer) {
        Map<String, Object> config = Map.of("bootstrap.servers", servers, "isolation.level", isolation);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = partition(topic);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) append(record, answer);
        }
    }

    private static void append(ConsumerRecord<byte[], byte[]> record, StringBuilder answer) {
        answer.append(record.offset()).append('\t').append(record.timestamp());
        answer.append('\t').append(record.timestampType().id).append('\t').append(record.leaderEpoch().orElse(-1));
        answer.append('\t').append(text(record.key())).append('\t').append(text(record.value()));
        for (Header header : record.headers())
            answer.append('\t').append(text(header.key().getBytes())).append('\t').append(text(header.value()));
        answer.append('\n');
    }

    private static long offset(String topic, OffsetSpec which, IsolationLevel isolation) throws Exception {
        return admin.listOffsets(Map.of(partition(topic), which), new ListOffsetsOptions(isolation))
            .partitionResult(partition(topic)).get().offset();
    }

    private static void times(String[] words, StringBuilder answer) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", servers), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (int i = 2; i < words.length; i++) {
                Map<TopicPartition, Long> asked = Map.of(partition(words[1]), Long.valueOf(words[i]));
                OffsetAndTimestamp found = consumer.offsetsForTimes(asked).get(partition(words[1]));
                answer.append(found == null ? "-\t-" : found.offset() + "\t" + found.timestamp()).append('\n');
            }
        }
    }

    private static TopicPartition partition(String topic) {
        return new TopicPartition(topic, 0);
    }

    private static Map<String, String> properties(String[] words, int from) {
        Map<String, String> properties = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        return properties;
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
