package streams

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// In a cluster a stream needs three replicas. A single server can have no more than one.
func TestReplicasInACluster(t *testing.T) {
	t.Parallel()
	for replicas, findings := range map[int]int{1: 1, 2: 1, 3: 0} {
		x := &examination{topic: "order", stream: "oncebox-order"}
		info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: replicas}}
		x.storage(info)
		require.Empty(t, x.found, "a single server")
		info.Cluster = &jetstream.ClusterInfo{Name: "east"}
		x.storage(info)
		require.Len(t, x.found, findings)
		if findings > 0 {
			require.Contains(t, x.found[0].Mend, "nats stream edit oncebox-order --replicas 3")
		}
	}
}
