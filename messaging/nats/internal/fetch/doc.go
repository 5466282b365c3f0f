// Package fetch is the receiving side: it fetches the messages of a subscription, partition by partition, in order.
//
// Read first: partition.go:partition, then flow.go:flow.run, members.go:members and receiver.go:Receiver.
package fetch
