import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/** Kafka's own client: BOOTSTRAP TOPIC COPY. Writes, reads in groups of both protocols, copies in transactions. */
public class Clients {
    static final int COUNT = 1000;
    static String bootstrap;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        String topic = args[1], copy = args[2];
        try (Producer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < COUNT; i++)
                producer.send(new ProducerRecord<>(topic, i % 3, null, "" + i));
            producer.flush();
        }
        for (String protocol : List.of("classic", "consumer"))
            inGroup(topic, protocol);
        for (String protocol : List.of("classic", "consumer"))
            copied(topic, copy + "-" + protocol, protocol);
        System.out.println("DONE");
    }

    /** Two members share the partitions; what they read together is everything, once. */
    static void inGroup(String topic, String protocol) {
        Set<String> seen = new HashSet<>();
        int[] count = {0};
        try (Consumer<String, String> one = consumer("java-" + protocol, protocol);
                Consumer<String, String> other = consumer("java-" + protocol, protocol)) {
            one.subscribe(List.of(topic));
            other.subscribe(List.of(topic));
            until("both members of a " + protocol + " group have partitions", () -> {
                one.poll(Duration.ofMillis(50));
                other.poll(Duration.ofMillis(50));
                return one.assignment().size() + other.assignment().size() == 3
                    && !one.assignment().isEmpty() && !other.assignment().isEmpty();
            });
            one.seekToBeginning(one.assignment());
            other.seekToBeginning(other.assignment());
            until("a " + protocol + " group reads everything", () -> {
                for (Consumer<String, String> each : List.of(one, other))
                    each.poll(Duration.ofMillis(50)).forEach(record -> {
                        count[0]++;
                        seen.add(record.value());
                    });
                return seen.size() == COUNT;
            });
            one.commitSync();
            other.commitSync();
        }
        check(count[0] == COUNT, protocol + " group read " + count[0]);
        System.out.println(protocol + " group read " + count[0]);
    }

    /** Every third transaction is aborted and done again. */
    static void copied(String topic, String copy, String protocol) {
        String group = "copy-" + protocol;
        try (Consumer<String, String> consumer = consumer(group, protocol);
                Producer<String, String> producer = producer(Map.of(ProducerConfig.TRANSACTIONAL_ID_CONFIG, group))) {
            producer.initTransactions();
            consumer.subscribe(List.of(topic));
            int[] done = {0, 0};
            until("all is copied", () -> {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty())
                    return done[0] == COUNT;
                producer.beginTransaction();
                records.forEach(record -> producer.send(new ProducerRecord<>(copy, record.partition(), null, record.value())));
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition place : records.partitions())
                    offsets.put(place, new OffsetAndMetadata(consumer.position(place)));
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (done[1]++ % 3 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                    for (TopicPartition place : records.partitions())
                        consumer.seek(place, records.records(place).get(0).offset());
                } else {
                    producer.commitTransaction();
                    done[0] += records.count();
                }
                return done[0] == COUNT;
            });
            System.out.println("copied " + done[0] + " in " + done[1] + " transactions with the " + protocol + " protocol");
        }
    }

    static Producer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(more);
        config.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static Consumer<String, String> consumer(String group, String protocol) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", group);
        config.put("group.protocol", protocol);
        config.put("isolation.level", "read_committed");
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", 100);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    interface Condition {
        boolean holds();
    }

    static void until(String what, Condition condition) {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.holds())
            check(System.nanoTime() < deadline, "not within 60 s: " + what);
    }

    static void check(boolean condition, String what) {
        if (!condition)
            throw new AssertionError(what);
    }
}
