// Command oncebox-kafka is the command oncebox for services on Kafka. See https://pkg.go.dev/github.com/oncebox/oncebox/cmd/oncebox.
package main

import (
	"github.com/oncebox/oncebox/cmd/oncebox/command"
	"github.com/oncebox/oncebox/messaging/kafka"
)

func main() { command.Main(kafka.Kind()) }
