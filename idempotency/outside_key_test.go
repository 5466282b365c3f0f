package idempotency_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/step"
)

func callKey(t *testing.T, ctx context.Context, name ...string) string { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	key, err := idempotency.CallKey(ctx, idempotency.FromContext(ctx), name...)
	require.NoError(t, err)
	require.Regexp(t, "^[0-9a-f]{32}$", key)
	return key
}

func TestCallKeys(t *testing.T) {
	run := func(base string) []string {
		ctx := idempotency.NewContext(t.Context(), base)
		require.Equal(t, base, idempotency.FromContext(ctx))
		return []string{
			callKey(t, ctx, "POST", "a"), callKey(t, ctx, "POST", "a"), callKey(t, ctx, "POST", "b"), callKey(t, ctx, "POSTa"), callKey(t, ctx),
		}
	}
	first := run("one")
	require.Equal(t, first, run("one"), "the same in every run")
	distinct := map[string]bool{}
	for _, key := range append(first, run("other")...) {
		distinct[key] = true
	}
	require.Len(t, distinct, 2*len(first))
}

// A step that was done is not run again, and the calls outside of it keep their keys.
func TestCallKeysOfSteps(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	inTransaction := func(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) (result string, err error) {
		err = transact(t, d.db.DB, func(tx bun.IDB) error {
			result, err = idempotency.StepTx(ctx, tx, name, fn)
			return err
		})
		return result, err
	}
	steps := map[string]func(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) (string, error){
		"a": func(ctx context.Context, name string, fn func(ctx context.Context) (string, error)) (string, error) {
			return step.Call(ctx, name, func(ctx context.Context, _ string) (string, error) { return fn(ctx) })
		},
		"b": idempotency.StepOnce[string],
		"c": inTransaction,
	}
	var before []string
	for round := range 2 {
		keys := map[string]bool{}
		require.NoError(t, d.run(func(ctx context.Context) error {
			for name, step := range steps {
				inner, err := step(ctx, name, func(ctx context.Context) (string, error) {
					require.Zero(t, round)
					return callKey(t, ctx, "charge"), nil
				})
				require.NoError(t, err)
				keys[inner] = true
			}
			outer := []string{callKey(t, ctx, "charge"), callKey(t, ctx, "charge")}
			keys[outer[0]], keys[outer[1]] = true, true
			if round == 0 {
				before = outer
			}
			require.Equal(t, before, outer)
			return nil
		}))
		require.Len(t, keys, 5)
	}
}

func TestCallKeyNeedsARunAndABase(t *testing.T) {
	_, err := idempotency.CallKey(t.Context(), "base", "call")
	require.ErrorContains(t, err, "NewContext")
	_, err = idempotency.CallKey(idempotency.NewContext(t.Context(), ""), "", "call")
	require.ErrorContains(t, err, "base is empty")
	require.Empty(t, idempotency.FromContext(t.Context()))
}

func TestCallsAtTheSameTimeHaveKeysOfTheirOwn(t *testing.T) {
	ctx := idempotency.NewContext(t.Context(), "base")
	const n = 50
	keys := make(chan string, n)
	var group sync.WaitGroup
	for range n {
		group.Go(func() {
			key, err := idempotency.CallKey(ctx, "base", "call")
			if err == nil {
				keys <- key
			}
		})
	}
	group.Wait()
	close(keys)
	distinct := map[string]bool{}
	for key := range keys {
		distinct[key] = true
	}
	require.Len(t, distinct, n)
}

// Others have stored them. They never change.
func TestOutsideKeysStayTheSameOverReleases(t *testing.T) {
	key, err := idempotency.NewStore(nil).Key(idempotency.Scope{Tenant: "acme", Principal: "u1", Method: "POST", Path: "/payments", Key: "k"})
	require.NoError(t, err)
	require.Equal(t, "8dc02c5c2843918f0f64deefede0a8a7", key.Outside())
	require.NotContains(t, key.Outside(), key.String(), "what is logged does not tell it")
	require.Equal(t, "4c2e176139bb0a944afe8a5a823ee800", key.OutsideOf(idempotency.NewFingerprint("t", []byte("1"))))
	require.NotEqual(t, key.OutsideOf(idempotency.NewFingerprint("t", []byte("2"))), key.OutsideOf(idempotency.NewFingerprint("t", []byte("1"))))
	ctx := idempotency.NewContext(t.Context(), key.Outside())
	require.Equal(t, "afd23de3ceee026fb45170424dc6a83d", callKey(t, ctx, "POST", "https://bank.example/charges"))
	require.Equal(t, "7e94cc3ce3ec3e1e76fe8dfba637967e", callKey(t, ctx, "POST", "https://bank.example/charges"))
}
