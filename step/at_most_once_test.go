package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/steps"
	"github.com/oncebox/oncebox/step"
)

var errAway = errors.New("the server is away")

// results are those of earlier runs, and of the steps of this run.
type results map[string][]byte

func (r results) Step(ctx context.Context, name string, result any, call func(ctx context.Context, key string) error) error {
	if stored, done := r[name]; done {
		return json.Unmarshal(stored, result)
	}
	if err := call(ctx, "key"); err != nil {
		return err
	}
	encoded, err := json.Marshal(result)
	r[name] = encoded
	return err
}

// mail is one run of a handler.
func (r results) mail(t *testing.T, prepare func() error, send func() (string, error)) (string, error) {
	t.Helper()
	return step.AtMostOnce(steps.WithRunner(t.Context(), r), "mail", "unclear", func(ctx context.Context) (func() (string, error), error) {
		require.NoError(t, ctx.Err())
		return send, prepare()
	})
}

func TestAtMostOnce(t *testing.T) {
	ready := func() error { return nil }
	never := func() error { panic("it is not prepared again") }
	for name, c := range map[string]struct {
		send    func() (string, error)
		sends   bool // an outcome comes back, and the process does not die
		outcome string
	}{
		"sent":                   {func() (string, error) { return "sent", nil }, true, "sent"},
		"no answer":              {func() (string, error) { return "half", errAway }, true, "unclear"},
		"the process dies in it": {func() (string, error) { panic("killed") }, false, "unclear"},
	} {
		t.Run(name, func(t *testing.T) {
			r, sends := results{}, 0
			send := func() (string, error) { sends++; return c.send() }
			_, err := r.mail(t, func() error { return errAway }, send)
			require.ErrorIs(t, err, errAway)
			require.Zero(t, sends)
			require.Empty(t, r, "it is tried again")
			if !c.sends {
				require.Panics(t, func() { _, _ = r.mail(t, ready, send) })
			}
			for range 2 {
				prepare := ready
				if sends > 0 {
					prepare = never
				}
				outcome, err := r.mail(t, prepare, send)
				require.NoError(t, err)
				require.Equal(t, c.outcome, outcome)
			}
			require.Equal(t, 1, sends)
		})
	}
}

// The process dies after the beginning was stored, and before the call.
func TestAtMostOnceAfterItsBeginning(t *testing.T) {
	r := results{"mail:begin": []byte("true")}
	outcome, err := r.mail(t, nil, func() (string, error) { panic("it is not sent") })
	require.NoError(t, err)
	require.Equal(t, "unclear", outcome)
}

func TestMistakesWithAtMostOnce(t *testing.T) {
	r := results{}
	_, err := r.mail(t, func() error { return nil }, nil)
	require.ErrorContains(t, err, `step: AtMostOnce "mail": prepare returned neither a function nor an error`)
	require.Empty(t, r)
	_, err = step.AtMostOnce(t.Context(), "mail", "", func(context.Context) (func() (string, error), error) { return nil, nil })
	require.ErrorContains(t, err, `step: AtMostOnce "mail" was called outside of a handler under a lease`)
	for _, name := range []string{"", strings.Repeat("n", 250)} {
		_, err = step.AtMostOnce(steps.WithRunner(t.Context(), r), name, "", func(context.Context) (func() (string, error), error) {
			return func() (string, error) { panic("it is not sent") }, nil
		})
		require.ErrorContains(t, err, "the name has to have 1 to 249 bytes")
		require.Empty(t, r, "no beginning is stored")
	}
	var ended context.Context
	_, err = step.AtMostOnce(steps.WithRunner(t.Context(), r), strings.Repeat("n", 249), 0, func(ctx context.Context) (func() (int, error), error) {
		ended = ctx //nolint:fatcontext // the test looks whether it has ended
		return func() (int, error) { return 1, ctx.Err() }, nil
	})
	require.NoError(t, err)
	require.Error(t, ended.Err(), "what was opened with it is closed")
}
