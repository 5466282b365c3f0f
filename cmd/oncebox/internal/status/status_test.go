package status

import (
	"bytes"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/ops"
)

func TestSparklinesAreAsHighAsTheLargest(t *testing.T) {
	t.Parallel()
	require.Equal(t, "▁▄█", sparkline([]float64{0, 5, 10}))
	require.Equal(t, "▁▁", sparkline([]float64{0, 0}))
	require.Equal(t, "█", sparkline([]float64{3}))
	var c course
	for n := range courseWidth + 10 {
		c.add(&Item{Outbox: OutboxItem{Backlog: int64(n)}})
	}
	require.Len(t, c.backlog, courseWidth)
	require.InDelta(t, courseWidth+9, c.backlog[courseWidth-1], 0)
	require.Equal(t, "about "+strconv.Itoa(10_001), count(10_001))
}

// A transaction that is open for too long is said where one looks first, with what to type.
func TestLongTransactionIsInTheStatus(t *testing.T) {
	t.Parallel()
	for age, said := range map[time.Duration]bool{ops.LongTransaction + time.Minute: true, ops.LongTransaction - time.Minute: false} {
		var out bytes.Buffer
		require.NoError(t, (&Item{Outbox: OutboxItem{SnapshotAgeSeconds: age.Seconds()}}).print(&out))
		require.Contains(t, out.String(), "oldest transaction")
		require.Equal(t, said, bytes.Contains(out.Bytes(), []byte("the outbox becomes slower; what it is, and what ends it: oncebox doctor")), out.String())
	}
}
