package uow_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/retry"
	"github.com/oncebox/oncebox/uow"
)

// quick retries without a pause worth the name.
func quick() *uow.Config {
	return &uow.Config{Retry: uow.RetryConfig{Policy: retry.Policy{Delay: time.Nanosecond, MaxDelay: time.Nanosecond}}}
}

// accounts makes rows that transactions can fight for.
func (s *service) accounts(t *testing.T) {
	t.Helper()
	_, err := s.DB.Exec(`CREATE TABLE accounts (id text PRIMARY KEY, balance int NOT NULL);
		INSERT INTO accounts VALUES ('a', 0), ('b', 0)`)
	require.NoError(t, err)
}

func (s *service) balances(t *testing.T) []string {
	t.Helper()
	return lines(t, s, "SELECT id || ' ' || balance FROM accounts ORDER BY id")
}

func add(ctx context.Context, u *uow.Unit, id string) error {
	_, err := u.DB().NewRaw("UPDATE accounts SET balance = balance + 1 WHERE id = ?", id).Exec(ctx)
	return err
}

// A real 40001: another transaction changed the row after this transaction's snapshot was taken.
func TestSerializationFailureIsRunAgain(t *testing.T) {
	for _, where := range []string{"outermost", "inner"} {
		t.Run(where, func(t *testing.T) {
			s := newService(t, quick())
			s.accounts(t)
			tries := 0
			change := func(ctx context.Context, u *uow.Unit) error {
				tries++
				require.NotEmpty(t, lines(t, u.DB(), "SELECT id FROM accounts")) // the snapshot
				if tries < 3 {
					_, err := s.DB.Exec("UPDATE accounts SET balance = balance + 10 WHERE id = 'a'")
					require.NoError(t, err)
				}
				u.Track(newAccount("a", fmt.Sprint("try ", tries))) // a fresh one each time
				u.AfterCommit(func(context.Context) { require.Equal(t, 3, tries) })
				require.NoError(t, note(ctx, u, fmt.Sprint("try ", tries)))
				return add(ctx, u, "a")
			}
			err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				if where == "inner" {
					return s.units.Do(ctx, change)
				}
				return change(ctx, u)
			}, uow.WithIsolation(sql.LevelRepeatableRead))
			require.NoError(t, err)
			require.Equal(t, 3, tries)
			require.Equal(t, []string{"a 21", "b 0"}, s.balances(t))
			require.Equal(t, []string{"try 3"}, s.notes(t))
			require.Equal(t, []string{"account a v1 try 3"}, s.sunk(t))
			require.Len(t, s.sink.committed, 1)
		})
	}
}

// Write skew: two SERIALIZABLE transactions each read what the other one writes. One of them is refused, by a statement
// or by COMMIT.
func TestWriteSkewIsRunAgain(t *testing.T) {
	s := newService(t, &uow.Config{Retry: uow.RetryConfig{MaxAttempts: 50}})
	s.accounts(t)
	var meet sync.WaitGroup
	meet.Add(2)
	move := func(from, to string) error {
		tries := 0
		return s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			tries++
			var sum int
			if err := u.DB().NewRaw("SELECT sum(balance) FROM accounts WHERE id = ?", from).Scan(ctx, &sum); err != nil {
				return err
			}
			if tries == 1 {
				meet.Done()
				meet.Wait()
			}
			u.Track(newAccount(to, fmt.Sprint("saw ", sum)))
			return add(ctx, u, to)
		}, uow.WithIsolation(sql.LevelSerializable))
	}
	errs := make(chan error, 2)
	go func() { errs <- move("a", "b") }()
	go func() { errs <- move("b", "a") }()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.Equal(t, []string{"a 1", "b 1"}, s.balances(t))
	sunk := s.sunk(t)
	require.Len(t, sunk, 2)
	require.Contains(t, sunk[0], "saw 0", "as if one had run after the other")
	require.Contains(t, sunk[1], "saw 1")
}

// A real 40P01. Who is run again may lock its first row before the other one has woken up, and then they meet once more.
func TestDeadlockIsRunAgain(t *testing.T) {
	cfg := quick()
	cfg.Retry.MaxAttempts = 50
	s := newService(t, cfg)
	s.accounts(t)
	var meet sync.WaitGroup
	meet.Add(2)
	change := func(first, second string) error {
		tries := 0
		return s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			tries++
			_, err := u.DB().ExecContext(ctx, "SET LOCAL deadlock_timeout = '10 ms'")
			require.NoError(t, err)
			u.Track(newAccount(first, "one"))
			if err := add(ctx, u, first); err != nil {
				return err
			}
			if tries == 1 {
				meet.Done()
				meet.Wait()
			}
			return s.units.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return add(ctx, u, second) })
		})
	}
	errs := make(chan error, 2)
	go func() { errs <- change("a", "b") }()
	go func() { errs <- change("b", "a") }()
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.Equal(t, []string{"a 2", "b 2"}, s.balances(t))
	require.Len(t, s.sunk(t), 2)
}

func TestConflictIsRunAgain(t *testing.T) {
	s := newService(t, quick())
	tries := 0
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		u.Track(newAccount("a", "one"))
		require.NoError(t, note(ctx, u, "x"))
		if tries < 3 {
			return fmt.Errorf("save: %w", &uow.ConflictError{Type: "account", ID: "a", Expected: 1, Found: 2})
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 3, tries)
	require.Equal(t, []string{"x"}, s.notes(t))
	require.Equal(t, []string{"account a v1 one"}, s.sunk(t))
}

func TestAttempts(t *testing.T) {
	s := newService(t, nil)
	conflict := &uow.ConflictError{Type: "account", ID: "a", Expected: 1, Found: 2}
	for name, c := range map[string]struct {
		max   int
		opts  []uow.Option
		err   error
		tries int
	}{
		"default":         {0, nil, conflict, 5},
		"three":           {3, nil, conflict, 3},
		"off":             {-1, nil, conflict, 1},
		"one":             {1, nil, conflict, 1},
		"off by option":   {0, []uow.Option{uow.WithoutRetry()}, conflict, 1},
		"exists already":  {0, nil, &uow.ConflictError{Type: "account", ID: "a", Found: 2}, 2},
		"other errors":    {0, nil, errRefused, 1},
		"unknown outcome": {0, nil, &uow.CommitUnknownError{XID: "1", Err: errRefused}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := quick()
			cfg.Retry.MaxAttempts = c.max
			tries := 0
			err := s.manager(cfg, s.DB.DB, s.sink).Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
				tries++
				require.NoError(t, note(ctx, u, "x"))
				return c.err
			}, c.opts...)
			require.Equal(t, c.err, err)
			require.Equal(t, c.tries, tries)
			s.requireNothing(t)
		})
	}
}

// An instance from outside the function holds the events of the try that failed.
func TestSameInstanceInTheNextTry(t *testing.T) {
	s := newService(t, quick())
	a, tries := newAccount("a", "one"), 0
	err := s.units.Do(t.Context(), func(_ context.Context, u *uow.Unit) error {
		tries++
		u.Track(a)
		if tries == 1 {
			return &uow.ConflictError{Type: "account", ID: "a", Expected: 1, Found: 2}
		}
		return nil
	})
	require.ErrorIs(t, err, uow.ErrStale)
	require.ErrorContains(t, err, "expected version 1, found 2", "and the reason for the second try")
	require.Equal(t, 2, tries)
	s.requireNothing(t)
}

// The same, where COMMIT was refused.
func TestSameInstanceAfterARefusedCommit(t *testing.T) {
	s := newService(t, quick())
	_, err := s.DB.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
			$f$ BEGIN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END $f$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (NEW.text = 'refuse') EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)
	a, tries := newAccount("a", "one"), 0
	err = s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		u.Track(a)
		return note(ctx, u, "refuse")
	})
	require.ErrorIs(t, err, uow.ErrStale)
	require.Equal(t, pgerr.Serialization, pgerr.Code(err))
	require.Equal(t, 2, tries)
	s.requireNothing(t)

	tries = 0
	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		u.Track(newAccount("b", "fresh"))
		if tries < 3 {
			return note(ctx, u, "refuse")
		}
		return note(ctx, u, "fine")
	}), "refused by COMMIT twice, and run again")
	require.Equal(t, []string{"fine"}, s.notes(t))
	require.Equal(t, []string{"account b v1 fresh"}, s.sunk(t))
}

// An inner unit is not run again on its own: the transaction around it has to be a new one.
func TestInnerUnitIsRunOnce(t *testing.T) {
	s := newService(t, quick())
	tries, inner := 0, 0
	err := s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		tries++
		require.ErrorIs(t, s.units.Do(ctx, func(context.Context, *uow.Unit) error {
			inner++
			return uow.ErrConflict
		}), uow.ErrConflict)
		require.ErrorIs(t, u.Retryable(), uow.ErrConflict, "code that hides it can ask for it")
		return errRefused
	})
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, 1, tries)
	require.Equal(t, 1, inner)

	require.NoError(t, s.units.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		s.fail(ctx, func(context.Context, *uow.Unit) {})
		require.NoError(t, u.Retryable(), "not every error calls for another run")
		return nil
	}))
}

func TestCancelledBetweenTries(t *testing.T) {
	s := newService(t, &uow.Config{Retry: uow.RetryConfig{Policy: retry.Policy{Delay: time.Hour, MaxDelay: time.Hour}}})
	ctx, cancel := context.WithCancelCause(t.Context())
	err := s.units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
		cancel(errRefused)
		return uow.ErrConflict
	})
	require.ErrorIs(t, err, uow.ErrConflict)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errRefused, "the cause as well")
	s.requireNothing(t)
}
