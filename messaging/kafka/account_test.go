package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
)

// The watermark is the first offset that is not settled, whatever the order in which messages are settled, and its memory is bounded by what is open.
func TestWatermarkIsTheFirstUnsettledMessage(t *testing.T) {
	nightly.Check(t, 100, 2000, func(t *rapid.T) {
		a := newAccount()
		a.next = rapid.Int64Range(0, 5).Draw(t, "committed")
		open := map[int64]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "receive") {
				offset := a.next + rapid.Int64Range(0, 3).Draw(t, "gap")
				a.receive(offset)
				open[offset] = true
			} else {
				offset := rapid.SampledFrom(a.order).Draw(t, "settled")
				require.Equal(t, open[offset], a.settle(offset))
				delete(open, offset)
			}
			want := a.next
			for offset := range open {
				want = min(want, offset)
			}
			require.Equal(t, want, a.watermark())
		}
	})
}

func TestMessageThatStaysOpenKeepsNoOthersInMemory(t *testing.T) {
	t.Parallel()
	a := newAccount()
	a.receive(0)
	for offset := int64(1); offset < 100_000; offset++ {
		a.receive(offset)
		a.settle(offset)
	}
	require.Less(t, len(a.order), 2000)
	require.Zero(t, a.watermark())
	a.settle(0)
	require.EqualValues(t, 100_000, a.watermark())
}
