package main

import (
	"github.com/oncebox/oncebox/cmd/oncebox/command"
	"github.com/oncebox/oncebox/messaging/pulsar"
)

func main() { command.Main(pulsar.Kind()) }
