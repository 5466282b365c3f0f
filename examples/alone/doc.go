// Package alone uses one part of oncebox at a time, in a program that uses no other part: the outbox, the HTTP middleware, or the consumer.
// docs/one-part-alone.md explains each function.
//
// Each function takes a pool, for example from config.OpenDB, makes the tables that it needs, and runs the loops that the part needs.
package alone
