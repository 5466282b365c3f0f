// Package streams makes and checks the streams of topics and the consumers of subscriptions.
//
// Read first: keeper.go:Keeper, then names.go:Names.
package streams
