// Package command is the command oncebox as a function, for the programs that are built with other brokers than Pulsar:
//
//	func main() { command.Main(nats.Kind()) }
//
// is oncebox for a service on NATS (messaging/nats/cmd/oncebox-nats). The commands, their output and their exit codes are the same; the documentation
// of [github.com/oncebox/oncebox/cmd/oncebox] describes them. With several kinds the variables of the service, or the flag --broker, decide.
//
// Only three commands use the broker: relay publishes to it, doctor examines it, and status, stuck and consumers ask it how many messages wait.
//
// Read first: main.go:Main, then root.go.
package command
