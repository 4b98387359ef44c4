// As writer.py: DIRECTORY TOPIC.
const { Kafka, logLevel } = require("kafkajs");
const fs = require("fs");

async function main() {
  const [directory, topic] = process.argv.slice(2);
  const settings = JSON.parse(fs.readFileSync(`${directory}/kafkajs.json`, "utf8"));
  const kafka = new Kafka({ ...settings, logLevel: logLevel.NOTHING, retry: { retries: 0 } });
  const producer = kafka.producer({ metadataMaxAge: 500 });
  for (;;) {
    try {
      await producer.connect();
      await producer.send({ topic, messages: [{ value: "x" }] });
      console.log("sent");
    } catch (error) {
      console.log("refused", error.name, error.message);
    }
    await new Promise((done) => setTimeout(done, 100));
  }
}
main();
