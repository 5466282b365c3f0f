// Package findings makes the lines of the first page that say what an operator should look at.
//
// # Guarantees
//
// One cause is one line, with what follows from it below: a broker that is away, a flood, a version that runs beside a newer one. A line says what becomes
// of it by itself. The time since when something fails is the beginning of the present fault, or it is left out.
//
// It reads nothing: all comes from [Facts]. Errors and reasons stay texts: the templates escape them.
//
// Read first: facts.go:Facts.List.
package findings
