package projector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/progress"
)

func TestOnlyLanesInQuestionAreFetched(t *testing.T) {
	t.Parallel()
	r := &relay{}
	w := &worker{cfg: &Config{SleepBusy: time.Hour}, hears: &r.hears, owned: newOwned(time.Second)}
	r.workers = []*worker{w}
	var group []*progress.Lane
	for _, n := range []int16{3, 7, 64 + 9} {
		w.owned.add(lanedb.Lease{Lane: n}, time.Time{})
		l := w.owned.lanes[n].lane
		l.More, group = false, append(group, l)
	}
	asked := func() (numbers []int16) {
		for _, l := range w.inQuestion(group) {
			numbers = append(numbers, l.Lease.Lane)
		}
		return numbers
	}
	woken := func() bool {
		defer func() { w.owned.wake = make(chan struct{}, 1) }()
		return len(w.owned.wake) == 1
	}
	all := []int16{3, 7, 73}

	require.Equal(t, all, asked(), "a relay that does not hear of commits")
	w.looked = time.Time{}
	r.hears.Store(true)
	require.Equal(t, all, asked(), "the first time")
	require.Empty(t, asked())

	r.hear(1 << 9)
	require.True(t, woken())
	r.hear(1<<3 | 1<<20)
	require.True(t, woken())
	require.Equal(t, []int16{3, 73}, asked())
	require.Empty(t, asked(), "each is told once")
	r.hear(1 << 20)
	require.False(t, woken(), "the lanes of others")
	require.Empty(t, asked())

	group[1].More = true
	require.Equal(t, []int16{7}, asked())
	require.Equal(t, []int16{7}, asked(), "until it is known that nothing is left")
	group[1].More = false

	r.wake()
	require.True(t, woken())
	require.Equal(t, all, asked())
	w.looked = w.looked.Add(-time.Hour)
	require.Equal(t, all, asked(), "writers that say nothing")
	require.Empty(t, asked())
}
