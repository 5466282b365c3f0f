// Package clients tries what real clients send when they try again: recordings of theirs, and stripe-go itself. README.md says how the recordings were made.
package clients
