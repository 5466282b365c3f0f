// Package kills runs the orders service as five processes, kills them and the broker under load, and compares the answers that clients got, the rows in the
// database, the messages on the wire and the read model. It is the same for each broker; a program for a broker is a few lines:
//
//	go run ./examples/orders/kills/pulsar -orders 600 -rounds 2
//	go run -C messaging/nats ./examples/kills -orders 600 -rounds 2
//
// A trial makes a plan for each order, with what must come of it, and carries the plans out through the API. Meanwhile it kills. When nothing is on its
// way any more, it collects the evidence and compares it with the plans.
//
// Each request is sent three times. Api, projectors and consumers are killed with SIGKILL at moments that hurt: in the middle of transactions, between
// publishing and the note about it, and with messages piled up behind handlers. [Report] counts what must be 0, and the messages that travelled twice.
//
// Read first: trial.go:Trial.Run, then kills.go:kills.round and evidence.go:evidence.judge. What a program for a broker has to bring is in
// main.go:Program and wire.go:Wire.
package kills
