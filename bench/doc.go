// Command bench compares the speed of oncebox with code written by hand (the floor), which does the same work without the guarantees:
//
//	go run -C bench . table
//	go run -C bench . commit
//	go run -C bench . relay
//	go run -C bench . brokers
//	go run -C bench . relay-flat
//	go run -C bench . scaling
//	go run -C bench . fairness
//	go run -C bench . outage -down 2m
//	go run -C bench . hot
//	go run -C bench . brokerless
//	go run -C bench . latency
//	go run -C bench . consume
//	go run -C bench . http
//	go run -C bench . telemetry
//	go run -C bench . scrape
//	go run -C bench . console
//	go run -C bench . long
//	go run -C bench . objects
//	go run -C bench . peers
//
// Each command prints a table and ends with one line of figures, NAME key=value key=value.
//
// # Rules
//
// A ratio is the rate of oncebox divided by the rate of its floor. In each round both run directly after each other, and the ratio is computed for
// the round. The printed figure is the median of the rounds, with its range. Rates alone prove little on a machine that also does other work.
//
// A floor uses the best settings that we found for it; the table names them. The floor model-hand is the exception: it is written as services with bun
// are written. Each run has a schema of its own, which is empty at the start, and a topic of its own. The table also has the CPU time per event of this
// program and of the servers, which depends less on other programs of the machine.
//
// relay-flat and scaling run each projector in a process of its own, so that its memory can be measured and the process can be killed. With its
// defaults relay-flat needs most of an hour, and 40 GB of free disk for the rows and for the messages that Pulsar keeps until it cleans up.
//
// relay-flat fills its tables within the server, by INSERT ... SELECT from rows that the store itself has written. That gives the same rows in the
// same pages as COPY, in lanes that the store has chosen, and no row has to pass through the client. When the tables are full and before it
// measures, it reads the plans of all statements of a batch. If a plan has a sequential scan or a sort of a table that grows, it ends with exit
// code 1.
//
// consume handles messages that wait in a topic with 4 partitions, through a Failover subscription. The time runs from the first message to the
// last acknowledgement. In the cases single and batch the handler sends the same prepared statement as the floor, so their ratios measure only the
// code around the handler. In the case single-raw it sends the statement as users of bun do. single-model has the floor model-hand, and batch-each
// the floor each-hand, which do the same work by hand.
//
// http sends requests to a service on a loopback socket. The clients run in the same program, so all rates and CPU times contain the time of the
// clients.
//
// console requests the pages of package console one after the other. The tables are filled within the server, with -rows rows and a day of history,
// so the overview draws all its plots. The figure is the time to the last byte. The first request of each page does not count.
//
// After each run the stored or sent events are counted and compared. If a run has lost, doubled or reordered an event, the program reports that and
// ends with exit code 1. The command peers prints the numbers of doubled and reordered events instead, because not every library promises an order.
//
// # Servers
//
// If DATABASE_URL and PULSAR_URL are set, bench uses these servers. Otherwise it starts servers and stops them when the command ends. The admin
// address of Pulsar is PULSAR_ADMIN_URL; if it is not set, port 8080 of Pulsar's host.
package main
