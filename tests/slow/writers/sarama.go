// As writer.py: TOPIC. The directory is in the package with the settings.
package main

import (
	"fmt"
	"os"
	"time"

	"example/saramaconfig"

	"github.com/IBM/sarama"
)

func main() {
	config, brokers, err := saramaconfig.Config()
	if err != nil {
		panic(err)
	}
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 0
	config.Metadata.Retry.Max = 0
	config.Metadata.RefreshFrequency = 500 * time.Millisecond
	producer, err := sarama.NewSyncProducer(brokers, config)
	for err != nil {
		fmt.Println("refused", err)
		time.Sleep(100 * time.Millisecond)
		producer, err = sarama.NewSyncProducer(brokers, config)
	}
	for {
		message := &sarama.ProducerMessage{Topic: os.Args[1], Value: sarama.StringEncoder("x")}
		if _, _, err := producer.SendMessage(message); err != nil {
			fmt.Println("refused", err)
		} else {
			fmt.Println("sent")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
