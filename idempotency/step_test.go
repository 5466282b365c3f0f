package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/step"
)

var errNotNow = errors.New("not now")

// desk is one key of a store, and what was done outside for it.
type desk struct {
	t     *testing.T
	db    *pgtest.DB
	store *idempotency.Store
	key   idempotency.Key
	calls []string
	keys  []string
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	db := pgtest.Migrated(t, pgtest.Idempotency)
	store := newStore(t, db, time.Hour)
	return &desk{t: t, db: db, store: store, key: keyOf(t, store, "k")}
}

// run claims the key, runs fn and releases.
func (d *desk) run(fn func(ctx context.Context) error) error {
	d.t.Helper()
	c := claim(d.t, d.store, d.db.DB, d.key)
	err := c.Run(d.t.Context(), fn)
	require.NoError(d.t, c.Release(d.t.Context()))
	return err
}

func (d *desk) step(ctx context.Context, name string, fail error) (string, error) {
	return step.Call(ctx, name, func(_ context.Context, key string) (string, error) {
		d.calls, d.keys = append(d.calls, name), append(d.keys, key)
		return "did " + name, fail
	})
}

func (d *desk) once(ctx context.Context, name string, fail error) (string, error) {
	return idempotency.StepOnce(ctx, name, func(context.Context) (string, error) {
		d.calls = append(d.calls, name)
		return "did " + name, fail
	})
}

func TestNextRunSkipsTheStepsThatAreDone(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(d *desk, ctx context.Context, name string, fail error) (string, error){
		"Step": (*desk).step, "StepOnce": (*desk).once,
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			fail := errors.Join(errNotNow, idempotency.ErrNotDone)
			run := func() error {
				return d.run(func(ctx context.Context) error {
					got, err := call(d, ctx, "charge", nil)
					require.NoError(t, err)
					require.Equal(t, "did charge", got)
					_, err = call(d, ctx, "mail", fail)
					return err
				})
			}
			require.ErrorIs(t, run(), errNotNow)
			fail = nil
			require.NoError(t, run())
			require.NoError(t, run())
			require.Equal(t, []string{"charge", "mail", "mail"}, d.calls, "only the one that failed was made twice")
			require.Zero(t, count(t, d.db, "SELECT count(*) FROM idempotency_keys WHERE expires_at = 'infinity'"))
		})
	}
}

type receipt struct {
	Number int64  `json:"number"`
	Text   string `json:"text"`
}

func TestResultsComeBackAsTheyWere(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	want := &receipt{1<<62 + 1, "a\x00\u2028<ü"}
	for range 2 {
		require.NoError(t, d.run(func(ctx context.Context) error {
			got, err := step.Call(ctx, "receipt", func(context.Context, string) (*receipt, error) { return want, nil })
			require.NoError(t, err)
			require.Equal(t, want, got)
			none, err := step.Call(ctx, "none", func(context.Context, string) (*receipt, error) { return nil, nil })
			require.Nil(t, none)
			return err
		}))
	}
	err := d.run(func(ctx context.Context) error {
		_, err := step.Call(ctx, "receipt", func(context.Context, string) (int, error) { return 0, nil })
		return err
	})
	require.ErrorContains(t, err, `Call "receipt": decode the result of an earlier run`)
}

func TestKeysForTheOtherSide(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for range 2 {
		require.ErrorIs(t, d.run(func(ctx context.Context) error {
			_, _ = d.step(ctx, "a", errNotNow)
			_, err := d.step(ctx, "b", errNotNow)
			return err
		}), errNotNow)
	}
	d.key = keyOf(t, d.store, "another")
	require.NoError(t, d.run(func(ctx context.Context) error {
		_, err := d.step(ctx, "a", nil)
		return err
	}))
	require.Len(t, d.keys, 5)
	require.Equal(t, d.keys[:2], d.keys[2:4], "the same in every run")
	require.Regexp(t, "^[0-9a-f]{32}$", d.keys[0])
	require.NotEqual(t, d.keys[0], d.keys[1])
	require.NotEqual(t, d.keys[0], d.keys[4])
	require.Equal(t, "da4f3e5edea9d504998bfba93c375f46", d.keys[0], "the other side knows it from the calls before")
}

// A process is suspended until another one has taken its request over, and then goes on.
func TestLateProcessStoresNothing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	exec(t, d.db, "CREATE TABLE effects (what text)")
	late := claim(t, d.store, d.db.DB, d.key, idempotency.WithLease(time.Hour))
	err := late.Run(t.Context(), func(ctx context.Context) error {
		_, err := d.step(ctx, "first", nil)
		require.NoError(t, err)
		endLeases(t, d.db)
		require.NoError(t, d.run(func(ctx context.Context) error {
			_, err := d.step(ctx, "first", nil)
			return err
		}))
		require.ErrorIs(t, transact(t, d.db.DB, func(tx bun.IDB) error {
			_, err := idempotency.StepTx(ctx, tx, "local", func(ctx context.Context) (int, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('x')")
				return 0, err
			})
			return err
		}), idempotency.ErrLeaseLost)
		require.ErrorIs(t, context.Cause(ctx), idempotency.ErrLeaseLost)
		for _, call := range []func(context.Context, string, error) (string, error){d.step, d.once} {
			_, err = call(ctx, "later", nil)
			require.ErrorIs(t, err, idempotency.ErrLeaseLost)
		}
		return nil
	})
	require.ErrorIs(t, err, idempotency.ErrLeaseLost)
	require.Equal(t, []string{"first"}, d.calls)
	require.Zero(t, count(t, d.db, "SELECT count(*) FROM effects"))
	require.Equal(t, 1, count(t, d.db, "SELECT count(*) FROM idempotency_step"))
}

// The fence of each statement, without the context that would have stopped the caller before.
func TestResultOfALateStepIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	late := claim(t, d.store, d.db.DB, d.key, idempotency.WithLease(time.Hour))
	_ = late.Run(t.Context(), func(ctx context.Context) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (string, error) {
			endLeases(t, d.db)
			claim(t, d.store, d.db.DB, d.key)
			return "late", nil
		})
		require.ErrorIs(t, err, idempotency.ErrLeaseLost)
		return err
	})
	require.Zero(t, count(t, d.db, "SELECT count(*) FROM idempotency_step"))
}

func TestLateStepOnceIsNotBegun(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	late := claim(t, d.store, d.db.DB, d.key, idempotency.WithLease(time.Hour))
	require.ErrorIs(t, late.Run(t.Context(), func(ctx context.Context) error {
		endLeases(t, d.db)
		claim(t, d.store, d.db.DB, d.key)
		_, err := d.once(ctx, "pay", nil)
		return err
	}), idempotency.ErrLeaseLost)
	require.Empty(t, d.calls)
	require.Zero(t, count(t, d.db, "SELECT count(*) FROM idempotency_step"))
}

func TestStepTxHappensOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	exec(t, d.db, "CREATE TABLE effects (what text)")
	book := func(ctx context.Context, fail error) (got int, err error) {
		err = d.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			got, err = idempotency.StepTx(ctx, tx, "book", func(ctx context.Context) (int, error) {
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('x')")
				return 7, err
			})
			return errors.Join(err, fail)
		})
		return got, err
	}
	require.ErrorIs(t, d.run(func(ctx context.Context) error {
		_, err := book(ctx, errNotNow)
		return err
	}), errNotNow)
	require.Zero(t, count(t, d.db, "SELECT count(*) FROM effects"), "it was rolled back")
	for range 2 {
		require.NoError(t, d.run(func(ctx context.Context) error {
			for range 2 {
				got, err := book(ctx, nil)
				require.NoError(t, err)
				require.Equal(t, 7, got)
			}
			return nil
		}))
	}
	require.Equal(t, 1, count(t, d.db, "SELECT count(*) FROM effects"))
	require.ErrorContains(t, d.run(func(ctx context.Context) error {
		_, err := idempotency.StepTx(ctx, d.db.DB, "pool", func(context.Context) (int, error) { return 0, nil })
		return err
	}), "needs a transaction")
}

func TestResultIsStoredAlsoIfTheCallerIsToldToEnd(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := claim(t, d.store, d.db.DB, d.key)
	ctx, cancel := context.WithCancel(t.Context())
	_ = c.Run(ctx, func(ctx context.Context) error {
		_, err := step.Call(ctx, "call", func(context.Context, string) (string, error) {
			cancel()
			return "done", nil
		})
		require.NoError(t, err)
		_, err = d.step(ctx, "next", nil)
		require.ErrorIs(t, err, context.Canceled)
		return err
	})
	require.Equal(t, 1, count(t, d.db, "SELECT count(*) FROM idempotency_step"))
	require.Empty(t, d.calls)
}

func TestMisuseOfSteps(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, err := d.step(t.Context(), "a", nil)
	require.ErrorContains(t, err, "outside of a handler under a lease")
	require.NoError(t, d.run(func(ctx context.Context) error {
		for _, name := range []string{"", "\x00", "\xff", string(make([]byte, 256))} {
			_, err := d.step(ctx, name, nil)
			require.ErrorContains(t, err, "the name has to have")
		}
		_, err := d.step(ctx, "a", nil)
		require.NoError(t, err)
		_, err = d.step(ctx, "a", nil)
		require.ErrorContains(t, err, "used before")
		_, err = step.Call(ctx, "func", func(context.Context, string) (func(), error) { return nil, nil })
		require.ErrorContains(t, err, "encode its result")
		return nil
	}))
}

func TestStepsAtTheSameTime(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run(func(ctx context.Context) error {
		var group sync.WaitGroup
		for _, name := range []string{"a", "b", "c", "d"} {
			group.Go(func() {
				_, err := step.Call(ctx, name, func(context.Context, string) (int, error) { return 1, nil })
				if err != nil {
					t.Error(err)
				}
				_, err = idempotency.StepOnce(ctx, name+"!", func(context.Context) (int, error) { return 1, nil })
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		return nil
	}))
	require.Equal(t, 8, count(t, d.db, "SELECT count(*) FROM idempotency_step WHERE result IS NOT NULL"))
	require.Zero(t, count(t, d.db, "SELECT count(*) FROM idempotency_keys WHERE expires_at = 'infinity'"))
}

func TestCallsOfAStepHaveKeysOfTheirOwn(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var seen [2][]string
	for i := range seen {
		require.ErrorIs(t, d.run(func(ctx context.Context) error {
			note := func(ctx context.Context) { seen[i] = append(seen[i], callKey(t, ctx, "POST", "/charges")) }
			note(ctx)
			_, err := step.Call(ctx, "a", func(ctx context.Context, _ string) (int, error) {
				note(ctx)
				return 0, errNotNow
			})
			_, _ = idempotency.StepOnce(ctx, "b", func(ctx context.Context) (int, error) {
				note(ctx)
				return 0, idempotency.ErrNotDone
			})
			return err
		}), errNotNow)
	}
	require.Equal(t, seen[0], seen[1], "the same in every run")
	require.Len(t, map[string]bool{seen[0][0]: true, seen[0][1]: true, seen[0][2]: true}, 3)
}

// It waits for its own transaction, and nobody else can see that.
func TestStepOnceWithinTheTransactionOfAStepTx(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run(func(ctx context.Context) error {
		require.NoError(t, transact(t, d.db.DB, func(tx bun.IDB) error {
			_, err := idempotency.StepTx(ctx, tx, "book", func(context.Context) (int, error) { return 1, nil })
			require.NoError(t, err)
			_, err = d.once(ctx, "pay", nil)
			require.ErrorContains(t, err, "after its COMMIT")
			return nil
		}))
		require.Empty(t, d.calls)
		got, err := d.once(ctx, "pay", nil)
		require.Equal(t, "did pay", got)
		return err
	}))
	require.Equal(t, []string{"pay"}, d.calls)
}
