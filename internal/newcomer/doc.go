// Package newcomer follows the README in tests as a newcomer does: it copies the program of the five steps into an empty folder, as a module of
// its own, gives it another broker, runs it, and sends the requests of the README. Only -replace is always there, because this version of oncebox may be
// on no server yet.
//
// Read first: program.go:Program.
package newcomer
