import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** As writer.py: DIRECTORY TOPIC. */
public class Writer {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.load(new FileReader(args[0] + "/java.properties"));
        settings.put("max.block.ms", "5000");
        settings.put("metadata.max.age.ms", "500");
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, text, text)) {
            while (true) {
                try {
                    producer.send(new ProducerRecord<>(args[1], "x")).get();
                    System.out.println("sent");
                } catch (ExecutionException error) {
                    System.out.println("refused " + error.getCause());
                } catch (RuntimeException error) {
                    System.out.println("refused " + error);
                }
                Thread.sleep(100);
            }
        }
    }
}
