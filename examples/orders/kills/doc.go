// Package kills runs the orders service as five processes, kills them and the broker under load, and compares the answers that clients got, the rows in the
// database, the messages on the wire and the read model. It is the same for each broker.
//
// Each request is sent three times. Api, projectors and consumers are killed with SIGKILL at moments that hurt: in the middle of transactions, between
// publishing and the note about it, and with messages piled up behind handlers. [Report] counts what must be 0, and the messages that travelled twice.
//
// Read first: trial.go:Trial.Run, then kills.go:kills.round and evidence.go:evidence.judge. What a program for a broker has to bring is main.go:Program and wire.go:Wire.
package kills
