package idempotency_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/operator"
)

// unknown leaves a step of the key behind whose outcome is unknown.
func (d *desk) unknown(name string) {
	d.t.Helper()
	require.PanicsWithValue(d.t, "killed", func() {
		_ = claim(d.t, d.store, d.db.DB, d.key).Run(d.t.Context(), func(ctx context.Context) error {
			_, err := idempotency.StepOnce(ctx, name, func(context.Context) (string, error) { panic("killed") })
			return err
		})
	})
	endLeases(d.t, d.db)
}

func (d *desk) state() (state string) {
	d.t.Helper()
	require.NoError(d.t, d.db.QueryRowContext(d.t.Context(), "SELECT state FROM idempotency_keys").Scan(&state))
	return state
}

// recovering claims a key to find out about its steps.
func (d *desk) recovering() *idempotency.Claim {
	d.t.Helper()
	return claim(d.t, d.store, d.db.DB, d.key, idempotency.WithRecovery())
}

func TestStepThatWasBegunMakesTheKeyUnknown(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	for range 2 {
		c, resp, err := d.store.Claim(t.Context(), d.db.DB, d.key, one)
		require.ErrorIs(t, err, idempotency.ErrStepUnknown)
		require.Nil(t, c)
		require.Nil(t, resp)
		require.Equal(t, "unknown", d.state())
	}
	_, _, err := d.store.Claim(t.Context(), d.db.DB, d.key, other)
	require.ErrorIs(t, err, idempotency.ErrMismatch)
	require.Equal(t, 1, count(t, d.db, "SELECT count(*) FROM idempotency_keys WHERE expires_at = 'infinity'"), "it is not forgotten")
	require.Empty(t, d.calls)
}

// A call that got no answer may have arrived.
func TestErrorOfAStepOnceIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := claim(t, d.store, d.db.DB, d.key)
	err := c.Run(t.Context(), func(ctx context.Context) error {
		_, err := d.once(ctx, "pay", errNotNow)
		require.ErrorIs(t, err, errNotNow)
		require.ErrorIs(t, err, idempotency.ErrStepUnknown)
		_, again := d.once(ctx, "pay", nil)
		require.ErrorIs(t, again, idempotency.ErrStepUnknown)
		return nil
	})
	require.NoError(t, err)
	require.ErrorIs(t, c.Complete(t.Context(), d.db.DB, idempotency.Response{Status: 200}), idempotency.ErrStepUnknown)
	require.NoError(t, c.Release(t.Context()))
	require.Equal(t, "unknown", d.state())
	require.Equal(t, []string{"pay"}, d.calls)
}

func TestOwnerFindsOut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		outcome idempotency.Outcome
		calls   []string
		fails   error
	}{
		"it was done":      {outcome: idempotency.StepDone("did pay")},
		"it was not":       {outcome: idempotency.StepNotDone(), calls: []string{"pay"}},
		"nobody knows yet": {fails: idempotency.ErrStepUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.unknown("pay")
			c := d.recovering()
			_, _, err := d.store.Claim(t.Context(), d.db.DB, d.key, one, idempotency.WithRecovery())
			require.ErrorIs(t, err, idempotency.ErrInProgress, "one at a time")
			require.Len(t, c.Unknown(), 1)
			u := c.Unknown()[0]
			require.Equal(t, []any{"acme", "pay", 1}, []any{u.Tenant, u.Step, u.Epoch})
			require.Len(t, u.Key, 64)
			require.WithinDuration(t, time.Now(), u.BegunAt, time.Minute)
			require.ErrorIs(t, c.Run(t.Context(), nil), idempotency.ErrStepUnknown, "nothing runs before it is resolved")

			require.NoError(t, c.Resolve(t.Context(), u, tc.outcome))
			run := func(ctx context.Context) error {
				got, err := d.once(ctx, "pay", nil)
				require.Equal(t, "did pay", got)
				return err
			}
			require.ErrorIs(t, c.Run(t.Context(), run), tc.fails)
			require.Equal(t, tc.calls, d.calls)
			require.NoError(t, c.Release(t.Context()))
			if tc.fails != nil {
				require.Equal(t, "unknown", d.state())
				return
			}
			require.Equal(t, "claimed", d.state())
			require.Zero(t, count(t, d.db, "SELECT count(*) FROM idempotency_keys WHERE expires_at > clock_timestamp() + interval '1 hour'"))
			require.NoError(t, d.run(run))
			require.Equal(t, tc.calls, d.calls)
		})
	}
}

// The outcome of one attempt at a step says nothing about a later attempt.
func TestOutcomeThatComesTooLate(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	slow := d.recovering()
	u := slow.Unknown()[0]
	endLeases(t, d.db)
	quick := d.recovering()
	require.NoError(t, quick.Resolve(t.Context(), u, idempotency.StepNotDone()))
	require.NoError(t, quick.Release(t.Context()))
	d.unknown("pay") // begun again

	require.ErrorIs(t, slow.Resolve(t.Context(), u, idempotency.StepNotDone()), idempotency.ErrLeaseLost)
	resolved, err := d.store.Resolve(t.Context(), d.db.DB, u, idempotency.StepNotDone())
	require.NoError(t, err)
	require.False(t, resolved)
	_, _, err = d.store.Claim(t.Context(), d.db.DB, d.key, one)
	require.ErrorIs(t, err, idempotency.ErrStepUnknown)
}

func TestOperatorResolves(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.unknown("pay")
	list := func(tenant string) []idempotency.Unknown {
		list, err := d.store.Unknown(t.Context(), d.db.DB, tenant, 10)
		require.NoError(t, err)
		return list
	}
	require.Len(t, list(""), 1, "also if no request has come since")
	require.Len(t, list("acme"), 1)
	require.Empty(t, list("other"))
	u := list("")[0]
	_, err := d.store.Resolve(t.Context(), d.db.DB, u, idempotency.Outcome{})
	require.ErrorContains(t, err, "use StepDone or StepNotDone")
	_, err = d.store.Resolve(t.Context(), d.db.DB, u, idempotency.StepDone(func() {}))
	require.ErrorContains(t, err, "encode")
	for _, want := range []bool{true, false} {
		resolved, err := d.store.Resolve(t.Context(), d.db.DB, u, idempotency.StepDone("did pay"))
		require.NoError(t, err)
		require.Equal(t, want, resolved)
	}
	require.Empty(t, list(""))
	require.NoError(t, d.run(func(ctx context.Context) error {
		got, err := d.once(ctx, "pay", nil)
		require.Equal(t, "did pay", got)
		return err
	}))
	require.Empty(t, d.calls)
}

func TestOperatorLeavesARunningStepAlone(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	require.NoError(t, d.run(func(ctx context.Context) error {
		_, err := idempotency.StepOnce(ctx, "pay", func(context.Context) (string, error) {
			list, err := d.store.Unknown(t.Context(), d.db.DB, "", 10)
			require.NoError(t, err)
			require.Empty(t, list)
			var hash string
			require.NoError(t, d.db.QueryRowContext(t.Context(), "SELECT encode(key_hash, 'hex') FROM idempotency_step").Scan(&hash))
			resolved, err := d.store.Resolve(t.Context(), d.db.DB, idempotency.Unknown{Key: hash, Step: "pay", Epoch: 1}, idempotency.StepNotDone())
			require.NoError(t, err)
			require.False(t, resolved)
			return "", nil
		})
		return err
	}))
}

func TestKeyStaysUnknownUntilAllIsResolved(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := claim(t, d.store, d.db.DB, d.key)
	_ = c.Run(t.Context(), func(ctx context.Context) error {
		_, a := d.once(ctx, "a", errNotNow)
		_, b := d.once(ctx, "b", errNotNow)
		return errors.Join(a, b)
	})
	require.NoError(t, c.Release(t.Context()))
	list, err := d.store.Unknown(t.Context(), d.db.DB, "", 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	for i, want := range []string{"unknown", "claimed"} {
		resolved, err := d.store.Resolve(t.Context(), d.db.DB, list[i], idempotency.StepNotDone())
		require.NoError(t, err)
		require.True(t, resolved)
		require.Equal(t, want, d.state())
	}
}

// The request that has done the step knows its outcome best, however late it is.
func TestLateResultEndsTheDoubt(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	late := claim(t, d.store, d.db.DB, d.key, idempotency.WithLease(time.Hour))
	err := late.Run(t.Context(), func(ctx context.Context) error {
		_, err := idempotency.StepOnce(ctx, "pay", func(context.Context) (string, error) {
			endLeases(t, d.db)
			_, _, err := d.store.Claim(t.Context(), d.db.DB, d.key, one)
			require.ErrorIs(t, err, idempotency.ErrStepUnknown)
			return "did pay", nil
		})
		return err
	})
	require.NoError(t, err)
	require.NoError(t, d.run(func(ctx context.Context) error {
		got, err := d.once(ctx, "pay", nil)
		require.Equal(t, "did pay", got)
		return err
	}))
	require.Empty(t, d.calls)
	require.ErrorIs(t, late.Complete(t.Context(), d.db.DB, idempotency.Response{Status: 500}), idempotency.ErrLeaseLost)
}

// The actor and the reason are stored together with the outcome.
func TestAuditOfWhatOperatorsResolve(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	const audit = "SELECT count(*) FROM oncebox_audit a WHERE a.key_hash = (SELECT key_hash FROM idempotency_keys) AND tenant_id = 'acme' AND step = 'pay'"
	resolve := func(db bun.IDB, outcome idempotency.Outcome, by ...operator.By) bool {
		list, err := d.store.Unknown(t.Context(), d.db.DB, "", 10)
		require.NoError(t, err)
		require.Len(t, list, 1)
		resolved, err := d.store.Resolve(t.Context(), db, list[0], outcome, by...)
		require.NoError(t, err)
		return resolved
	}
	d.unknown("pay")
	ann := operator.By{Actor: "ann", Reason: "it is in the bank's list"}
	require.ErrorIs(t, transact(t, d.db.DB, func(tx bun.IDB) error {
		require.True(t, resolve(tx, idempotency.StepNotDone(), ann))
		return errNotNow
	}), errNotNow)
	require.Zero(t, count(t, d.db, audit))
	require.True(t, resolve(d.db.DB, idempotency.StepNotDone()))
	require.Equal(t, 1, count(t, d.db, audit+" AND actor = session_user AND action = 'not_done' AND reason = '' AND epoch = 1"))

	d.unknown("pay")
	list, err := d.store.Unknown(t.Context(), d.db.DB, "", 10)
	require.NoError(t, err)
	for _, want := range []bool{true, false} {
		resolved, err := d.store.Resolve(t.Context(), d.db.DB, list[0], idempotency.StepDone("did pay"), ann)
		require.NoError(t, err)
		require.Equal(t, want, resolved)
	}
	require.Equal(t, 1, count(t, d.db, audit+" AND actor = 'ann' AND action = 'done' AND reason = 'it is in the bank''s list' AND epoch = 2"))
	require.Equal(t, 2, count(t, d.db, audit))
}
