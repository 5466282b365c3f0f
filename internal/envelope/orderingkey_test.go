package envelope_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/envelope"
	"github.com/oncebox/oncebox/internal/nightly"
)

func TestExplicitKeyIsReadBack(t *testing.T) {
	for key, want := range map[string]string{
		"": "", "t": "", "t|k": "k", "|k": "k", "t|": "", "t|order|1": "", `t\|a|k`: "k", `t|k\|1`: "k|1", `t|k\\`: `k\`, `t|k\\|1`: "", `t|\\\|`: `\|`,
	} {
		require.Equal(t, want, envelope.ExplicitKey(key), key)
	}
	part := rapid.StringOfN(rapid.RuneFrom([]rune(`ab|\ü`)), 0, 5, -1)
	nightly.Check(t, 100, 10_000, func(t *rapid.T) {
		e := event.Envelope{TenantID: part.Draw(t, "tenant"), AggregateType: part.Draw(t, "type"), AggregateID: part.Draw(t, "id")}
		require.Empty(t, envelope.ExplicitKey(e.OrderingKey()))
		e.Delivery.OrderingKey = "k" + part.Draw(t, "key")
		require.Equal(t, e.Delivery.OrderingKey, envelope.ExplicitKey(e.OrderingKey()))
	})
}

// Neighbours share a key only if each would have it alone.
func TestStoredKeysAreThoseOfEachEvent(t *testing.T) {
	var evs []event.Envelope
	for _, tenant := range []string{"a", "b"} {
		for _, kind := range []string{"", "order", "invoice"} {
			for _, aggregate := range []string{"", "1", "2"} {
				for _, key := range []string{"", "k", "own"} {
					for _, id := range []string{"own", "other"} {
						e := event.Envelope{ID: id, TenantID: tenant, AggregateType: kind, AggregateID: aggregate}
						e.Delivery.OrderingKey = key
						evs = append(evs, e, e)
					}
				}
			}
		}
	}
	n := 0
	for i, key := range envelope.StoredKeys(evs) {
		require.Equal(t, n, i)
		require.Equal(t, envelope.StoredKey(&evs[i]), key, "%+v", evs[i])
		n++
	}
	require.Len(t, evs, n)
}
