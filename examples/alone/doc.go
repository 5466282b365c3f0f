// Package alone uses one part of oncebox at a time, in a program that has nothing else of it: the outbox, the HTTP middleware, the
// consumer. docs/one-part-alone.md explains each function.
//
// Each function takes a pool, such as config.OpenDB opens, makes the tables that it needs, and runs all that has to run.
package alone
