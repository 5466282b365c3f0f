// Command oncebox-rabbitmq is the command oncebox for services on RabbitMQ. See https://pkg.go.dev/github.com/oncebox/oncebox/cmd/oncebox.
package main

import (
	"github.com/oncebox/oncebox/cmd/oncebox/command"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
)

func main() { command.Main(rabbitmq.Kind()) }
