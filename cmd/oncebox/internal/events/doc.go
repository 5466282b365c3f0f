// Package events has the commands about events of the outbox: the life of one event, delayed events, tenants and lanes.
//
// Read first: show.go:NewShow, then delayed.go.
package events
