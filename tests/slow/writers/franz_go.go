// As writer.py: TOPIC. The directory is in the package with the settings.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"example/franzgo"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	options, err := franzgo.Options()
	if err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(append(options,
		kgo.RecordDeliveryTimeout(5*time.Second), kgo.UnknownTopicRetries(1),
		kgo.MetadataMaxAge(500*time.Millisecond), kgo.MetadataMinAge(250*time.Millisecond))...)
	if err != nil {
		panic(err)
	}
	for {
		err := client.Ping(context.Background())
		if err == nil {
			record := &kgo.Record{Topic: os.Args[1], Value: []byte("x")}
			err = client.ProduceSync(context.Background(), record).FirstErr()
		}
		if err != nil {
			fmt.Println("refused", err)
		} else {
			fmt.Println("sent")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
