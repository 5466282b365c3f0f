package lease_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/lease"
)

const ttl = 30 * time.Second

var (
	errLost   = errors.New("another one has it")
	errBroken = errors.New("broken")
)

// database answers renewals.
type database struct {
	began  time.Time
	asked  []time.Duration // when
	answer func(ctx context.Context, nth int) (bool, error)
	log    bytes.Buffer
}

func (d *database) lease() *lease.Lease {
	d.began = time.Now()
	return lease.New(&lease.Terms{
		TTL: ttl, Lost: errLost, What: "a thing", Attrs: []any{"key", 7}, Log: slog.New(slog.NewTextHandler(&d.log, nil)),
		Renew: func(ctx context.Context) (bool, error) {
			d.asked = append(d.asked, time.Since(d.began))
			return d.answer(ctx, len(d.asked))
		},
	}, d.began)
}

func ours(context.Context, int) (bool, error)   { return true, nil }
func broken(context.Context, int) (bool, error) { return false, errBroken }

func hangs(ctx context.Context, _ int) (bool, error) {
	<-ctx.Done()
	return false, context.Cause(ctx)
}

// first answers n renewals so, and those after them otherwise.
func first(n int, so, then func(context.Context, int) (bool, error)) func(context.Context, int) (bool, error) {
	return func(ctx context.Context, nth int) (bool, error) {
		if nth <= n {
			return so(ctx, nth)
		}
		return then(ctx, nth)
	}
}

// untilLost is work that ends when its context ends.
func untilLost(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func lasting(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestLeaseIsRenewedEveryThirdOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: ours}
		lost, err := d.lease().Hold(t.Context(), lasting(35*time.Second))
		require.NoError(t, err)
		require.False(t, lost)
		require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}, d.asked)
		require.Empty(t, d.log.String())
	})
}

func TestRenewalThatHangsIsGivenUpInTimeForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: first(1, hangs, ours)}
		lost, err := d.lease().Hold(t.Context(), lasting(40*time.Second))
		require.NoError(t, err)
		require.False(t, lost)
		require.Equal(t, []time.Duration{10 * time.Second, 23 * time.Second, 33 * time.Second}, d.asked)
		require.Contains(t, d.log.String(), "the lease of a thing could not be renewed")
		require.Contains(t, d.log.String(), "key=7")
	})
}

func TestRenewalThatFailsIsTriedAgainUntilTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: first(1, ours, broken)} // the lease ends 30 s after the renewal at 10 s
		lost, err := d.lease().Hold(t.Context(), untilLost)
		require.ErrorIs(t, err, errLost)
		require.True(t, lost)
		require.Equal(t, 40*time.Second, time.Since(d.began))
		require.Equal(t, []time.Duration{10, 20, 23, 26, 29, 32, 35, 38}, inSeconds(d.asked))
	})
}

func inSeconds(list []time.Duration) (seconds []time.Duration) {
	for _, d := range list {
		seconds = append(seconds, d/time.Second)
	}
	return seconds
}

func TestLeaseThatAnotherOneHasIsLostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: func(context.Context, int) (bool, error) { return false, nil }}
		lost, err := d.lease().Hold(t.Context(), untilLost)
		require.ErrorIs(t, err, errLost)
		require.True(t, lost)
		require.Equal(t, 10*time.Second, time.Since(d.began))
		require.Len(t, d.asked, 1)
	})
}

// A server that answers late has renewed the lease when it was asked, as far as this process may believe.
func TestLeaseCountsFromWhenItWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(context.Context, int) (bool, error) {
			time.Sleep(9 * time.Second)
			return true, nil
		}
		d := &database{answer: first(1, slow, broken)}
		_, err := d.lease().Hold(t.Context(), untilLost)
		require.ErrorIs(t, err, errLost)
		require.Equal(t, 40*time.Second, time.Since(d.began))
	})
}

func TestWorkThatHasEndedDoesNotWaitForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: hangs}
		lost, err := d.lease().Hold(t.Context(), lasting(11*time.Second))
		require.NoError(t, err)
		require.False(t, lost)
		require.Equal(t, 11*time.Second+lease.Grace, time.Since(d.began))
		require.Empty(t, d.log.String(), "a renewal that nobody needs has not failed")
	})
}

// To give up a statement is to close its connection, so a statement that is answered soon is not given up.
func TestRenewalUnderWayIsNotBrokenOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken error
		d := &database{answer: func(ctx context.Context, _ int) (bool, error) {
			time.Sleep(lease.Grace / 2)
			broken = ctx.Err()
			return true, nil
		}}
		_, err := d.lease().Hold(t.Context(), lasting(10*time.Second+lease.Grace/4))
		require.NoError(t, err)
		require.NoError(t, broken)
		require.Len(t, d.asked, 1)
	})
}

func TestWorkFindsOutItselfThatTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: ours}
		l := d.lease()
		l.Lose() // there is no work
		lost, err := l.Hold(t.Context(), func(ctx context.Context) error {
			l.Lose()
			return untilLost(ctx)
		})
		require.ErrorIs(t, err, errLost)
		require.True(t, lost)
		lost, err = l.Hold(t.Context(), lasting(0))
		require.NoError(t, err)
		require.False(t, lost, "this one knows nothing of that")
	})
}

func TestWornLeaseIsRenewedBeforehand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: first(1, broken, ours)}
		l := d.lease()
		time.Sleep(ttl/3 - time.Nanosecond)
		require.False(t, l.Worn())
		time.Sleep(time.Nanosecond)
		require.True(t, l.Worn())
		_, err := l.Renew(t.Context())
		require.ErrorIs(t, err, errBroken)
		require.True(t, l.Worn())
		renewed, err := l.Renew(t.Context())
		require.NoError(t, err)
		require.True(t, renewed)
		require.False(t, l.Worn())
	})
}

// A process that stops cancels the work, which may need a while to end. Until then no other process may begin.
func TestLeaseIsRenewedUntilCancelledWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		d := &database{answer: ours}
		lost, err := d.lease().Hold(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(30 * time.Second)
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, lost)
		require.Equal(t, []time.Duration{10, 20, 30}, inSeconds(d.asked))
		time.Sleep(time.Hour)
		require.Len(t, d.asked, 3, "it ends with the work")
	})
}

// The work is cancelled, and another process takes it over if it never ends.
func TestLeaseOfCancelledWorkThatNeverEndsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		d := &database{answer: ours}
		lost, err := d.lease().Hold(ctx, stubborn)
		require.NoError(t, err)
		require.True(t, lost)
		require.Equal(t, []time.Duration{10, 20, 30}, inSeconds(d.asked), "the context was done at 5, and a lease has 30")
		require.Equal(t, 1, d.losses())
	})
}

// stubborn is work that does not end when its context ends.
func stubborn(context.Context) error {
	time.Sleep(10 * ttl)
	return nil
}

// losses is how often it was logged that the lease was lost.
func (d *database) losses() int {
	synctest.Wait() // for the timers that write to the log
	return strings.Count(d.log.String(), "was lost, the work under it is cancelled")
}

func TestLostLeaseIsNotRenewed(t *testing.T) {
	another := func(context.Context, int) (bool, error) { return false, nil }
	for name, answer := range map[string]func(context.Context, int) (bool, error){
		"another one has it": first(1, ours, another), "it has ended": first(1, ours, broken),
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &database{answer: answer}
			lost, err := d.lease().Hold(t.Context(), stubborn)
			require.NoError(t, err)
			require.True(t, lost)
			require.LessOrEqual(t, d.asked[len(d.asked)-1], 10*time.Second+ttl, name)
			require.Equal(t, 1, d.losses(), name)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: ours}
		l := d.lease()
		lost, err := l.Hold(t.Context(), func(ctx context.Context) error {
			l.Lose()
			return stubborn(ctx)
		})
		require.NoError(t, err)
		require.True(t, lost)
		require.Empty(t, d.asked)
	})
}

func TestPanicGoesOnAndRenewalsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &database{answer: ours}
		require.PanicsWithValue(t, "so", func() {
			_, _ = d.lease().Hold(t.Context(), func(context.Context) error { panic("so") })
		})
		time.Sleep(time.Hour)
		require.Empty(t, d.asked)
	})
}

func TestRepeatGoesOnUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		d := &database{answer: first(1, hangs, ours)}
		d.lease()
		var failures []error
		lease.Repeat(ctx, d.began, ttl, func(ctx context.Context) error {
			d.asked = append(d.asked, time.Since(d.began))
			_, err := d.answer(ctx, len(d.asked))
			return err
		}, func(err error) { failures = append(failures, err) })
		require.Equal(t, []time.Duration{10, 23, 33, 43, 53}, inSeconds(d.asked))
		require.Equal(t, []error{context.DeadlineExceeded}, failures)
	})
}
