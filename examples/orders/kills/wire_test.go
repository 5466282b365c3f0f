package kills

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFactsOf(t *testing.T) {
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	attributes := map[string]string{
		"specversion": "1.0", "id": "e1", "type": "order.item_added", "tenantid": "acme", "subject": "o1", "aggregateversion": "2",
		"time": "2026-11-21T09:00:00Z",
	}
	message := func(name, value string) Message {
		m := Message{Partition: 3, Key: "o1", Attributes: maps.Clone(attributes), Payload: []byte(`{"added_cents":5}`)}
		m.Attributes[name] = value
		return m
	}
	early, keyless := message("time", "2026-11-21T08:59:59.999999Z"), message("partitionkey", "o1")
	keyless.Key = ""
	facts, err := factsOf([]Message{early, message("id", "e1"), keyless}, began)
	require.NoError(t, err)
	want := fact{orderKey: orderKey{"acme", "o1"}, id: "e1", kind: "order.item_added", version: 2, cents: 5, partition: 3}
	require.Equal(t, []fact{want, want}, facts, "all but the one of an earlier trial")

	for name, value := range map[string]string{"specversion": "", "id": "", "subject": "o2", "aggregateversion": "", "time": ""} {
		_, err := factsOf([]Message{message(name, value)}, began)
		require.ErrorContains(t, err, "message 0 on the wire", name)
	}
}
