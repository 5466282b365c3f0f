// Package topics makes topics and subscriptions of Kafka, and reads their state. [Keeper] asks the broker, [Prefix] knows the names, and [Owner] is
// the service that a subscription belongs to.
//
// Read first: topics.go:Keeper.Ensure, then subscriptions.go:Keeper.Place.
package topics
