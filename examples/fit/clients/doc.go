// Package clients sends the middleware what real HTTP clients send when they repeat a request: recordings of such clients, and stripe-go itself.
// README.md says how the recordings were made.
package clients
