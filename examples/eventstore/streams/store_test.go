package streams_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"golang.org/x/sync/errgroup"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// A sink that fails takes the rows of the other sink with it, whichever of the two is first.
func TestFailureAfterEitherSinkLeavesNeitherRow(t *testing.T) {
	errDisk := errors.New("the disk is full")
	s := newService(t)
	_, err := s.ExecContext(t.Context(), "CREATE TABLE once (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
	require.NoError(t, err)

	for name, sinks := range map[string][2]uow.Sink{
		"outbox first": {s.outbox, s.store},
		"store first":  {s.store, s.outbox},
	} {
		first, second := sinks[0], sinks[1]
		// The second one has written, and fails then.
		half := uow.Sink(flushed{second, errDisk})
		for failure, c := range map[string]struct {
			sinks []uow.Sink
			err   error
		}{
			"in front of the second": {[]uow.Sink{first, sinkFunc(func(context.Context, bun.IDB) error { return errDisk }), second}, errDisk},
			"in the second":          {[]uow.Sink{first, half}, errDisk},
			"after both":             {[]uow.Sink{first, second, sinkFunc(func(context.Context, bun.IDB) error { return errDisk })}, errDisk},
			"by the caller":          {[]uow.Sink{first, second, sinkFunc(callerGivesUp)}, context.Canceled},
			"at COMMIT": {[]uow.Sink{first, second, sinkFunc(func(ctx context.Context, tx bun.IDB) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO once VALUES (1), (1)") // deferred: COMMIT finds out
				return err
			})}, nil},
		} {
			t.Run(name+", "+failure, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				ctx = context.WithValue(ctx, cancelKey{}, cancel)
				stored, announced := s.rows(t)
				err := s.units(s.DB.DB, nil, c.sinks...).Do(ctx, add("c-1", 3))
				require.Error(t, err)
				if c.err != nil {
					require.ErrorIs(t, err, c.err)
				}
				nowStored, nowAnnounced := s.rows(t)
				require.Equal(t, []int{stored, announced}, []int{nowStored, nowAnnounced})
			})
		}
		t.Run(name+", no failure", func(t *testing.T) {
			stored, announced := s.rows(t)
			require.NoError(t, s.units(s.DB.DB, nil, first, second).Do(context.Background(), add("c-"+name, 3)))
			nowStored, nowAnnounced := s.rows(t)
			require.Equal(t, []int{stored + 3, announced + 3}, []int{nowStored, nowAnnounced})
		})
	}
}

// An error of a statement that nobody returned cannot pass for success, be it in the function or in the last sink.
func TestSwallowedErrorCannotCommit(t *testing.T) {
	s := newService(t)
	swallow := func(ctx context.Context, db bun.IDB) error {
		_, err := db.ExecContext(ctx, "INSERT INTO nowhere VALUES (1)")
		require.Error(t, err)
		return nil
	}
	const aborted = "current transaction is aborted"
	for name, c := range map[string]struct {
		sinks []uow.Sink
		says  string
	}{
		"in the function":              {[]uow.Sink{s.outbox, s.store}, aborted},
		"in the function, other order": {[]uow.Sink{s.store, s.outbox}, aborted},
		"between the sinks":            {[]uow.Sink{s.outbox, sinkFunc(swallow), s.store}, aborted},
		"in the last sink":             {[]uow.Sink{s.outbox, s.store, sinkFunc(swallow)}, "before COMMIT the transaction was found failed"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.units(s.DB.DB, nil, c.sinks...).Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
				if len(c.sinks) < 3 {
					_ = swallow(ctx, u.DB())
				}
				return add("c-1", 1)(ctx, u)
			})
			require.ErrorContains(t, err, c.says)
			stored, announced := s.rows(t)
			require.Zero(t, stored+announced)
		})
	}
}

// Two units that have loaded the same version both succeed, because one of them is run again. The order of the sinks does
// not matter: in the outbox one unit waits for the other at the ordering key, in the store at the primary key.
func TestTwoWritersOfOneStream(t *testing.T) {
	s := newService(t, event.WithVersion(2))
	for id, sinks := range map[string][]uow.Sink{"outbox-first": {s.outbox, s.store}, "store-first": {s.store, s.outbox}} {
		units := s.units(s.DB.DB, nil, sinks...)
		var loaded sync.WaitGroup
		loaded.Add(2)
		var tries [2]int
		var group errgroup.Group
		for writer := range tries {
			group.Go(func() error {
				return units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
					c, err := s.load(ctx, u.DB(), id)
					if tries[writer]++; tries[writer] == 1 {
						loaded.Done()
						loaded.Wait()
					}
					c.Record(added{writer})
					c.Record(added{writer})
					u.Track(c)
					return err
				})
			})
		}
		require.NoError(t, group.Wait())
		require.ElementsMatch(t, []int{1, 2}, tries[:])
		c, err := s.load(t.Context(), s.DB, id)
		require.NoError(t, err)
		require.Equal(t, int64(4), c.version)
		require.Equal(t, c.all[0], c.all[1], "a commit's events stay together")
		require.Equal(t, c.all[2], c.all[3])
		require.NotEqual(t, c.all[1], c.all[2])
	}
}

func TestManyWritersOfOneStream(t *testing.T) {
	s := newService(t, event.WithVersion(2))
	units := s.units(s.DB.DB, &uow.Config{Retry: uow.RetryConfig{MaxAttempts: 1000, MaxElapsed: -1}}, s.outbox, s.store)
	const writers, each = 8, 5
	var group errgroup.Group
	for writer := range writers {
		group.Go(func() error {
			for range each {
				if err := units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
					c, err := s.load(ctx, u.DB(), "c-1")
					c.Record(added{writer})
					u.Track(c)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	c, err := s.load(t.Context(), s.DB, "c-1") // which demands versions without a gap
	require.NoError(t, err)
	require.Equal(t, int64(writers*each), c.version)
	stored, announced := s.rows(t)
	require.Equal(t, []int{writers * each, writers * each}, []int{stored, announced})
}

func TestConflictWithoutRetry(t *testing.T) {
	s := newService(t)
	units := s.units(s.DB.DB, nil, s.store)
	require.NoError(t, units.Do(context.Background(), add("c-1", 1)))
	err := units.Do(context.Background(), add("c-1", 1), uow.WithoutRetry()) // loaded nothing
	require.ErrorIs(t, err, uow.ErrConflict)
	require.ErrorContains(t, err, "(default, counter, c-1, 1) already exists")
}

// An event without a version belongs to no stream.
func TestEventsWithoutAVersionAreLeftToTheOutbox(t *testing.T) {
	s := newService(t)
	err := s.units(s.DB.DB, nil, s.outbox, s.store).Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("mail", map[string]string{"to": "ann"})
	})
	require.NoError(t, err)
	stored, announced := s.rows(t)
	require.Equal(t, []int{0, 1}, []int{stored, announced})
}

// add records n events of a counter that has none.
func add(id string, n int) func(context.Context, *uow.Unit) error {
	return func(_ context.Context, u *uow.Unit) error {
		c := &counter{id: id}
		for i := range n {
			c.Record(added{i})
		}
		u.Track(c)
		return nil
	}
}

// flushed is a sink that fails when it has written.
type flushed struct {
	uow.Sink

	err error
}

func (f flushed) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	if err := f.Sink.Flush(ctx, tx, evs); err != nil {
		return fmt.Errorf("too early: %w", err)
	}
	return f.err
}

type cancelKey struct{}

// callerGivesUp cancels the context of Do between flush and COMMIT.
func callerGivesUp(ctx context.Context, _ bun.IDB) error {
	ctx.Value(cancelKey{}).(context.CancelFunc)()
	return nil
}

// A producer's key makes the second event a no-op in both sinks. It would meet the first one's version here.
func TestRepeatedEventReachesNoStream(t *testing.T) {
	s := newService(t)
	units := s.units(s.DB.DB, nil, s.outbox, s.store)
	for range 2 {
		require.NoError(t, units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
			return u.Add("counter", added{1}, event.WithAggregate("counter", "c-1", 1), event.WithDedupKey("import 1"))
		}))
		stored, announced := s.rows(t)
		require.Equal(t, []int{1, 1}, []int{stored, announced})
	}
}
