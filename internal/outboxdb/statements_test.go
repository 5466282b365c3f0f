package outboxdb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/outboxdb"
	"github.com/oncebox/oncebox/internal/outboxtest"
)

func TestStatementsOfRows(t *testing.T) {
	statements := map[string]string{"list failing events": outboxdb.FailingRows}
	one := event.Envelope{AggregateType: "order", AggregateID: "1"}
	for name, evs := range map[string][]event.Envelope{"one": {one}, "two of one aggregate": {one, one}, "two": {one, {}}, "many": make([]event.Envelope, 17)} {
		for _, known := range []bool{true, false} {
			text, _, err := outboxdb.Insertion(&outboxdb.Layout{Lanes: 64}, evs, known)
			require.NoError(t, err)
			statements[fmt.Sprintf("insert %s, tenants known %t", name, known)] = text
		}
	}
	outboxtest.Statements(t, statements)
}

// Most events of a unit are of one aggregate. They share its ordering key, and parameters are pointers to rows.
func TestFurtherEventCostsNoObject(t *testing.T) {
	l := &outboxdb.Layout{Lanes: 64}
	objects := func(n int) float64 {
		evs := make([]event.Envelope, n)
		for i := range evs {
			evs[i] = event.Envelope{
				TenantID: "shop", AggregateType: "order", AggregateID: "1", ID: fmt.Sprint("id ", i), Type: "order.paid",
				AggregateVersion: int64(1000 + i), SchemaVersion: 1, OccurredAt: time.Unix(0, 0), Payload: []byte("{}"),
			}
		}
		return testing.AllocsPerRun(100, func() {
			_, _, err := outboxdb.Insertion(l, evs, true)
			require.NoError(t, err)
		})
	}
	require.InDelta(t, 0, objects(16)-objects(8), 2, "and what the lists of parameters grow by")
}
