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
		open, epoch := map[int64]bool{}, int32(0)
		epochs := map[int64]int32{a.next: -1} // of the message before an offset
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "receive") {
				offset := a.next + rapid.Int64Range(0, 3).Draw(t, "gap")
				epoch += rapid.Int32Range(0, 1).Draw(t, "leaders")
				a.receive(offset, epoch)
				open[offset], epochs[offset+1] = true, epoch
			} else {
				offset := rapid.SampledFrom(a.order).Draw(t, "settled").offset
				require.Equal(t, open[offset], a.settle(offset))
				delete(open, offset)
			}
			want := a.next
			for offset := range open {
				want = min(want, offset)
			}
			mark := a.watermark()
			require.Equal(t, want, mark.offset)
			before := want
			for _, known := epochs[before]; !known; _, known = epochs[before] { // a gap has no messages
				before--
			}
			require.Equal(t, epochs[before], mark.epoch)
		}
	})
}

func TestMessageThatStaysOpenKeepsNoOthersInMemory(t *testing.T) {
	t.Parallel()
	a := newAccount()
	a.receive(0, 1)
	for offset := int64(1); offset < 100_000; offset++ {
		a.receive(offset, 2)
		a.settle(offset)
	}
	require.Less(t, len(a.order), 2000)
	require.Equal(t, place{0, -1}, a.watermark())
	a.settle(0)
	require.Equal(t, place{100_000, 2}, a.watermark())
}
