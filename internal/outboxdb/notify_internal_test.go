package outboxdb

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sends records when a notifier sent, from the start of the test.
type sends struct {
	start time.Time
	takes time.Duration
	err   error

	mu    sync.Mutex
	at    []time.Duration
	lanes []LaneSet
}

func (s *sends) send(_ context.Context, lanes LaneSet) error {
	s.mu.Lock()
	s.lanes = append(s.lanes, lanes)
	s.at = append(s.at, time.Since(s.start))
	s.mu.Unlock()
	<-time.After(s.takes)
	return s.err
}

func (s *sends) times() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

func TestTheFirstCommitIsAnnouncedAtOnceAndTheOthersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sends{start: time.Now()}
		n := &notifier{send: s.send, log: slog.New(slog.DiscardHandler)}
		for i := range 1000 {
			n.tell(LaneOf(int16(i % 7)))
		}
		synctest.Wait()
		require.Equal(t, []time.Duration{0}, s.times(), "one at once, and nobody waited for it")
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, notifyGap}, s.times(), "one for all that came after the first was begun, and no more")

		n.tell(LaneOf(9))
		synctest.Wait()
		require.Equal(t, []time.Duration{0, notifyGap, time.Second}, s.times(), "after a pause it is at once again")
		require.Equal(t, []LaneSet{1, 1<<7 - 1, 1 << 9}, s.lanes)
		<-time.After(time.Second) // a goroutine that stayed would be a deadlock
	})
}

func TestCommitsWithoutEndAreAnnouncedOncePerGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sends{start: time.Now()}
		n := &notifier{send: s.send, log: slog.New(slog.DiscardHandler)}
		for range 1000 {
			n.tell(AllLanes)
			<-time.After(100 * time.Microsecond)
		}
		<-time.After(time.Second)
		synctest.Wait()
		require.Len(t, s.times(), int(100*time.Millisecond/notifyGap)+1)
	})
}

// Rows that are committed while a NOTIFY is on its way may be invisible to the relays that it wakes.
func TestACommitDuringANotifyIsAnnouncedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sends{start: time.Now(), takes: 50 * time.Millisecond}
		n := &notifier{send: s.send, log: slog.New(slog.DiscardHandler)}
		n.tell(AllLanes)
		<-time.After(30 * time.Millisecond)
		n.tell(AllLanes)
		<-time.After(time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{0, 50 * time.Millisecond}, s.times())
	})
}

func TestPollOnlyAnnouncesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for pollOnly, want := range map[bool]int{false: 1, true: 0} {
			s := &sends{start: time.Now()}
			store := New(nil, slog.Default(), &Settings{PollOnly: pollOnly})
			store.notifier.send = s.send
			store.Wake(AllLanes)
			<-time.After(time.Second)
			synctest.Wait()
			require.Len(t, s.times(), want)
		}
	})
}

func TestFailuresInARowAreLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := &sends{start: time.Now(), err: errors.New("no connection")}
		n := &notifier{send: s.send, log: slog.New(slog.NewTextHandler(&log, nil))}
		for failures := 1; failures <= 10; failures++ {
			n.tell(AllLanes)
			<-time.After(time.Second)
			synctest.Wait()
			want := 0
			if failures >= notifyComplaint {
				want = 1
			}
			require.Equal(t, want, strings.Count(log.String(), "no connection"), "after %d failures", failures)
		}
	})
}

func BenchmarkTell(b *testing.B) {
	n := &notifier{send: func(context.Context, LaneSet) error { return nil }, log: slog.New(slog.DiscardHandler)}
	for b.Loop() {
		n.tell(AllLanes)
	}
}
