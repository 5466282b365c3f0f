package wire_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/wire"
)

// Programs without oncebox know the attributes from a page.
func TestPageNamesTheAttributes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/brokers.md")
	require.NoError(t, err)
	for _, name := range []string{
		wire.SpecVersion, wire.ID, wire.Type, wire.Source, wire.Subject, wire.Time, wire.DataSchema, wire.TenantID, wire.AggregateType, wire.AggregateVersion,
		wire.Sequence, wire.SchemaVersion, wire.CorrelationID, wire.CausationID, wire.OrderingKey, event.TraceParent, event.TraceState,
		"ce-" + wire.PartitionKey, "cloudEvents_" + wire.PartitionKey, wire.MetaPrefix + "user",
	} {
		require.Contains(t, string(page), "`"+name+"`")
	}
}
