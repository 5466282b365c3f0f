// Command bench measures oncebox against code written by hand that does the same work and promises nothing:
//
//	go run -C bench . commit
//	go run -C bench . relay
//	go run -C bench . relay-flat
//	go run -C bench . scaling
//	go run -C bench . fairness
//	go run -C bench . outage -down 2m
//	go run -C bench . latency
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
// What a run stored or sent is counted and compared afterwards. A run that lost, doubled or reordered something says so
// and ends the program with exit code 1, whatever its speed.
//
// # Servers
//
// With DATABASE_URL and PULSAR_URL set, those servers are used; else servers are started for the time of the command. The
// admin address of Pulsar is PULSAR_ADMIN_URL, else port 8080 of its host.
package main
