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
