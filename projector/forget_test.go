package projector

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/measure"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

// Whatever became of a write, the blocks are not known any more: its answer may have been lost after COMMIT.
func TestLostAnswerPutsTheBlocksInDoubt(t *testing.T) {
	lost := errors.New("connection reset")
	for _, err := range []error{lanedb.ErrFenced, lost} {
		l := progress.NewLane(lanedb.Lease{})
		l.Blocks.Load(lanedb.LaneBlocks{Change: 7})
		got := (&settler{telemetry: measure.New(noop.NewMeterProvider())}).forget(t.Context(), l, err)
		require.False(t, l.Blocks.AreKnown())
		require.Equal(t, errors.Is(err, lost), got != nil)
	}
}
