package streams

import (
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// Waiting returns how many messages of a consumer are not settled.
func Waiting(info *jetstream.ConsumerInfo) int64 {
	return int64(info.NumPending) + int64(info.NumAckPending) //nolint:gosec // a stream has fewer
}

// Settled returns a number that changes when a message is settled: the acknowledged deliveries since the last reset.
func Settled(info *jetstream.ConsumerInfo) int64 {
	return int64(info.Delivered.Consumer) - int64(info.NumAckPending) + int64(info.AckFloor.Stream) //nolint:gosec // as above
}

// IsRead reports whether a process fetches the messages of a consumer.
func IsRead(info *jetstream.ConsumerInfo) bool { return IsPinned(info) || info.NumWaiting > 0 }

// IsPinned reports whether the server has chosen a process for a consumer.
func IsPinned(info *jetstream.ConsumerInfo) bool {
	return slices.ContainsFunc(info.PriorityGroups, func(g jetstream.PriorityGroupState) bool { return g.PinnedClientID != "" })
}
