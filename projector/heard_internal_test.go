package projector

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lanedb"
	"github.com/oncebox/oncebox/projector/internal/leases"
)

func TestOnlyLanesInQuestionAreFetched(t *testing.T) {
	t.Parallel()
	var hears atomic.Bool
	r := &relay{}
	w := &worker{cfg: &Config{SleepBusy: time.Hour}, hears: &hears, owned: leases.NewOwned(time.Second)}
	r.workers = []*worker{w}
	for _, n := range []int16{3, 7, 64 + 9} {
		w.owned.Add(lanedb.Lease{Lane: n}, time.Now().Add(time.Hour))
	}
	group := w.owned.Ready()
	for _, l := range group {
		l.More = false
	}
	asked := func() (numbers []int16) {
		for _, l := range w.inQuestion(group) {
			numbers = append(numbers, l.Lease.Lane)
		}
		return numbers
	}
	woken := func() bool {
		select {
		case <-w.owned.Wake:
			return true
		default:
			return false
		}
	}
	all := []int16{3, 7, 73}

	require.Equal(t, all, asked(), "a relay that does not hear of commits")
	w.looked = time.Time{}
	hears.Store(true)
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
