// Package consumers has the commands about consumers: which run, what is parked for them, and the rebuilds of their read models.
//
// Read first: consumers.go:New, then parked_act.go.
package consumers
