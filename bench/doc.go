// Command bench measures oncebox against code written by hand that does the same work and promises nothing:
//
//	go run -C bench . commit
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
// start.
//
// What a run stored or sent is counted and compared afterwards. A run that lost, doubled or reordered something says so
// and ends the program with exit code 1, whatever its speed.
//
// # Servers
//
// With DATABASE_URL set, that server is used; else one is started for the time of the command.
package main
