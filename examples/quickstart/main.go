// Command quickstart shows what goes wrong without an outbox, and what does not with oncebox. It needs Go
// on Linux or macOS: the programs of PostgreSQL are those of this machine, or are downloaded once, and the
// broker lives in this process.
//
//	go run ./examples/quickstart          # prints its story and ends
//	go run ./examples/quickstart -serve   # then serves, for you to try with curl
//
// It compiles and starts the program in the folder memory, and shows life meanwhile. The service and the story are package tour. The same story on a
// broker, in the module that has its client; NATS runs in the process, the others have to be there:
//
//	go run -C messaging/nats ./examples/quickstart
//	ONCEBOX_KAFKA_URL=localhost:9092 go run -C messaging/kafka ./examples/quickstart
//	ONCEBOX_RABBITMQ_URL=amqp://localhost:5672 go run -C messaging/rabbitmq ./examples/quickstart
//	ONCEBOX_PULSAR_URL=pulsar://localhost:6650 go run ./examples/quickstart/pulsar
package main

import (
	"os"

	"github.com/oncebox/oncebox/examples/quickstart/starter"
)

func main() { os.Exit(starter.Main("github.com/oncebox/oncebox/examples/quickstart/memory")) }
