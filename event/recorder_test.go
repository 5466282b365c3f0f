package event_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

type placed struct {
	OrderID string `json:"order_id"`
	Total   int64  `json:"total"`
}

func (placed) EventType() string { return "order.placed" }

type cancelled struct{ Reason string }

func (*cancelled) EventType() string { return "order.cancelled" }

func TestRecorderKeepsOrderUntilCleared(t *testing.T) {
	var r event.Recorder
	require.Empty(t, r.RecordedEvents())

	before := time.Now().Truncate(time.Microsecond)
	r.Record(placed{OrderID: "1"})
	r.Record(&cancelled{})
	r.Record(placed{OrderID: "2"})

	got := r.RecordedEvents()
	require.Len(t, got, 3)
	require.Equal(t, placed{OrderID: "1"}, got[0].Event)
	require.Equal(t, &cancelled{}, got[1].Event)
	require.Equal(t, placed{OrderID: "2"}, got[2].Event)
	require.Equal(t, got, r.RecordedEvents(), "looking does not clear")
	for i, rec := range got {
		require.Equal(t, time.UTC, rec.At.Location())
		require.Zero(t, rec.At.Nanosecond()%1000, "microseconds: what PostgreSQL can store")
		require.False(t, rec.At.Before(before))
		require.False(t, i > 0 && rec.At.Before(got[i-1].At))
	}

	r.ClearEvents()
	require.Empty(t, r.RecordedEvents())
	require.Len(t, got, 3, "the slice is the caller's own")
	r.Record(placed{OrderID: "3"})
	require.Equal(t, placed{OrderID: "1"}, got[0].Event)
}

func TestRecordedEventsAreACopy(t *testing.T) {
	var r event.Recorder
	r.Record(placed{OrderID: "1"})
	r.RecordedEvents()[0].Event = placed{OrderID: "changed"}
	_ = append(r.RecordedEvents(), event.Recorded{Event: placed{OrderID: "appended"}})
	require.Len(t, r.RecordedEvents(), 1)
	require.Equal(t, placed{OrderID: "1"}, r.RecordedEvents()[0].Event)
}
