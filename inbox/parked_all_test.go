package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
)

// All that failed is tried at once, or what a filter selects of it: each with an entry in the audit, and each key once.
func TestManyAreTriedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	fail := func(consumer string, err error, msgs ...*messaging.Message) {
		h := w.box.Wrap(consumer, messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return messaging.RetryAfter(time.Hour, err) }))
		for _, m := range msgs {
			require.NoError(t, h.Handle(t.Context(), m))
		}
	}
	for n := range 7 {
		order := fmt.Sprint("o", n)
		fail("mailer", fmt.Errorf("smtp: connection %d refused", n), ordered(newID(t), order), ordered(newID(t), order))
	}
	fail("mailer", errors.New("no such address"), ordered(newID(t), "p"))
	fail("billing", errors.New("smtp: connection refused"), ordered(newID(t), "o1"))
	waiting := func() int {
		return len(column[string](t, w.db.DB, "SELECT consumer FROM inbox_key WHERE state = 'WAITING'"))
	}
	count := func(f parked.Filter, want int64) {
		t.Helper()
		n, err := w.operator().Parked().Count(t.Context(), f)
		require.NoError(t, err)
		require.Equal(t, want, n, "%+v", f)
	}
	count(parked.Filter{}, 16)
	count(parked.Filter{Consumer: "mailer", FirstOnly: true}, 8)
	count(parked.Filter{Consumer: "mailer", Error: "smtp: connection ", FirstOnly: true}, 7)
	count(parked.Filter{Topic: "none"}, 0)
	list, err := w.operator().Parked().List(t.Context(), parked.Filter{Consumer: "mailer", Error: "such"}, nil, 0)
	require.NoError(t, err)
	require.Len(t, list, 1)

	_, err = w.operator().Parked().RetryAll(t.Context(), parked.Filter{}, operator.By{}, nil)
	require.ErrorContains(t, err, "By.Actor is empty")
	n, err := w.operator().Parked().RetryAll(t.Context(), parked.Filter{Consumer: "mailer"}, ann, &operator.Bulk{DryRun: true})
	require.NoError(t, err)
	require.EqualValues(t, 8, n)
	require.Zero(t, waiting())
	require.Zero(t, w.count("oncebox_audit"))

	var steps []int64
	bulk := &operator.Bulk{BatchSize: 3, Progress: func(done int64) { steps = append(steps, done) }}
	n, err = w.operator().Parked().RetryAll(t.Context(), parked.Filter{Consumer: "mailer", Error: "smtp"}, ann, bulk)
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	require.Equal(t, []int64{3, 6, 7}, steps)
	require.Equal(t, 7, waiting())
	require.Equal(t, 7, w.count("oncebox_audit"))
	n, err = w.operator().Parked().RetryAll(t.Context(), parked.Filter{}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, n, "the others are due already")
}

// Keys that a process has taken are left to it.
func TestWhatIsBeingTriedIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.failed("a", "o1")
	w.failed("b", "o2")
	w.exec("UPDATE inbox_key SET owner = gen_random_uuid() WHERE ordering_key = (SELECT min(ordering_key) FROM inbox_key)")
	n, err := w.operator().Parked().RetryAll(t.Context(), parked.Filter{}, ann, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}
