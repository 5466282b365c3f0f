// Command oncebox-nats is the command oncebox for services on NATS. See https://pkg.go.dev/github.com/oncebox/oncebox/cmd/oncebox.
package main

import (
	"github.com/oncebox/oncebox/cmd/oncebox/command"
	"github.com/oncebox/oncebox/messaging/nats"
)

func main() { command.Main(nats.Kind()) }
