// Command bench measures oncebox against code written by hand that does the same work and promises nothing:
//
//	go run -C bench . commit
//	go run -C bench . relay
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
//
// Each command prints a table and ends with one line of figures, NAME key=value key=value.
//
// # Rules
//
// A ratio is oncebox's rate over the rate of its floor, the code by hand. It is taken within one round, in which both ran
// right after each other, and the figure is the median over the rounds, printed with its range. Rates alone say little on
// a machine that does other things as well.
//
// A floor uses the best settings found for it; the table names them. Each run has a schema of its own, empty at the
// start, and a topic of its own. CPU time per event, of this program and of the servers, is printed as well: it depends
// less on what else runs.
//
// relay-flat and scaling run each projector in a process of its own, so that its memory is its own and that it can be
// killed. relay-flat with its defaults needs 40 GB of free disk, for the rows and for what Pulsar keeps until it cleans
// up, and most of an hour.
//
// relay-flat fills its tables within the server, by INSERT ... SELECT from rows that the store itself has written: the same
// rows in the same pages as by COPY, in lanes that the store has chosen, without their way through the client. Before it
// measures, it looks at the plans of all statements that a batch takes, at the full tables. A plan with a sequential scan
// or a sort of a table that grows ends it with exit code 1.
//
// consume handles messages that wait in a topic with 4 partitions, through a Failover subscription; the clock runs from the
// first message to the last acknowledgement. The handler of single and batch sends the statement of the floor, prepared, so
// that their ratios show the cost of the layers around it; single-raw and single-model send it as users of bun do.
//
// http asks a service on a loopback socket, with clients in the same program: what they use is in all rates and CPU times alike.
//
// console asks for the pages of package console one after the other, over tables that are filled within the server; -rows says with how
// many rows. The figure is the time to the last byte, and the first request of each page is not counted.
//
// What a run stored or sent is counted and compared afterwards. A run that lost, doubled or reordered something says so
// and ends the program with exit code 1, whatever its speed.
//
// # Servers
//
// With DATABASE_URL and PULSAR_URL set, those servers are used; else servers are started for the time of the command. The
// admin address of Pulsar is PULSAR_ADMIN_URL, else port 8080 of its host.
package main
