package messaging_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/telemetry"
)

// noting is middleware that notes when a message passes it, and in what order.
func noting(to *[]string, name string) messaging.Middleware {
	return func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			*to = append(*to, name)
			defer func() { *to = append(*to, "/"+name) }()
			return next.Handle(ctx, m)
		})
	}
}

func TestFirstMiddlewareIsTheOutermost(t *testing.T) {
	var passed []string
	handler := messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
		passed = append(passed, "handler")
		return errNotNow
	})
	chain := messaging.Chain(handler, noting(&passed, "a"), noting(&passed, "b"))
	require.ErrorIs(t, chain.Handle(t.Context(), msg("k", 1)), errNotNow)
	require.Equal(t, []string{"a", "b", "handler", "/b", "/a"}, passed)

	passed = nil
	r := messaging.NewRouter(newRegistry())
	r.Use(noting(&passed, "a"))
	messaging.Handle(r, func(context.Context, orderPlaced) error {
		passed = append(passed, "handler")
		return nil
	})
	r.Use(noting(&passed, "b"), noting(&passed, "c"))
	require.NoError(t, r.Handle(t.Context(), typed("order.placed", `{}`)))
	require.Equal(t, []string{"a", "b", "c", "handler", "/c", "/b", "/a"}, passed)
}

// Middleware does not get a message that cannot be read. It gets a message whose type has no handler.
func TestMiddlewareOfARouterSeesAllThatCanBeRead(t *testing.T) {
	var passed []string
	r := messaging.NewRouter(newRegistry())
	r.Use(noting(&passed, "a"))
	require.NoError(t, r.Handle(t.Context(), typed("order.shipped", `{}`)))
	require.Equal(t, []string{"a", "/a"}, passed)

	unreadable := typed("order.placed", `{}`)
	unreadable.Metadata = map[string]string{messaging.UnreadableKey: "encrypted"}
	require.ErrorIs(t, r.Handle(t.Context(), unreadable), messaging.ErrUnreadable)
	require.Len(t, passed, 2)
}

func TestMaxAgeSkipsWhatIsOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		h := messaging.MaxAge(time.Hour)(messaging.HandlerFunc(func(context.Context, *messaging.Message) error {
			handled++
			return errNotNow
		}))
		for name, c := range map[string]struct {
			at    time.Time
			skips bool
		}{
			"no time": {time.Time{}, false}, "as old": {time.Now().Add(-time.Hour), false}, "older": {time.Now().Add(-time.Hour - 1), true},
			"new": {time.Now(), false}, "from a clock that is ahead": {time.Now().Add(time.Hour), false},
		} {
			handled = 0
			m := msg("k", 1)
			m.OccurredAt = c.at
			err := h.Handle(t.Context(), m)
			require.Equal(t, c.skips, err == nil, name)
			require.Equal(t, c.skips, handled == 0, name)
		}
	})
	for _, d := range []time.Duration{0, -time.Second} {
		require.PanicsWithValue(t, "messaging: MaxAge("+d.String()+"): give an age of more than 0", func() { messaging.MaxAge(d) })
	}
}

// A skipped message is settled, and counted as such: by whatever it is skipped, alone or in a batch.
func TestSkippedMessageIsCountedAsSkipped(t *testing.T) {
	router := messaging.NewRouter(newRegistry())
	for name, h := range map[string]messaging.Handler{
		"middleware": messaging.Chain(messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return nil }), messaging.MaxAge(time.Hour)),
		"handler":    messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error { return messaging.Skip(ctx) }),
		"router":     router,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reader := metric.NewManualReader()
				m := msg("k", 1)
				m.OccurredAt = time.Now().Add(-2 * time.Hour)
				r := newFakeReceiver(m)
				_, stop := start(t, r, h, &messaging.ConsumerConfig{
					Name:      "billing",
					Telemetry: telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)), Logger: slog.New(slog.DiscardHandler)},
				})
				synctest.Wait()
				require.NoError(t, stop())
				got := measured(t, reader)
				require.Equal(t, int64(1), got["oncebox.consumer.handled skipped"])
				require.Zero(t, got["oncebox.consumer.handled ok"])
				require.Len(t, r.ackedIDs(), 1)
			})
		})
	}
}

func TestLoggingLogsWhatBecomesOfAMessage(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	fails := func(context.Context, *messaging.Message) error { return errNotNow }
	nothing := func(context.Context, *messaging.Message) error { return nil }
	skips := func(ctx context.Context, _ *messaging.Message) error { return messaging.Skip(ctx) }
	for want, h := range map[string]messaging.HandlerFunc{
		`level=INFO msg="oncebox: message handled" topic=thing type=thing.happened id=k1 tenant=t1 try=1`: nothing,
		`level=INFO msg="oncebox: message settled without calling its handler"`:                           skips,
		`level=WARN msg="oncebox: handling a message failed"`:                                             fails,
	} {
		out.Reset()
		err := messaging.Logging(log)(h).Handle(t.Context(), msg("k", 1))
		require.Contains(t, out.String(), want)
		require.Equal(t, err != nil, bytes.Contains(out.Bytes(), []byte("error=")), out.String())
		require.Contains(t, out.String(), "took=")
	}
}

// A message that was skipped within Logging counts as skipped outside of it too.
func TestLoggingPassesOnWhatIsSkipped(t *testing.T) {
	var known bool
	outer := func(next messaging.Handler) messaging.Handler {
		return messaging.HandlerFunc(func(ctx context.Context, m *messaging.Message) error {
			err := next.Handle(ctx, m)
			known = messaging.Skipped(ctx)
			return err
		})
	}
	h := messaging.Chain(messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error { return messaging.Skip(ctx) }),
		outer, messaging.Logging(slog.New(slog.DiscardHandler)))
	require.NoError(t, messaging.Instrument(h, nil).Handle(t.Context(), msg("k", 1)))
	require.True(t, known)
	require.False(t, messaging.Skipped(t.Context()))
}

func TestRecoverDecidesWhatAPanicBecomes(t *testing.T) {
	panics := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { panic("boom") })
	var seen []any
	decide := func(err error) messaging.Middleware {
		return messaging.Recover(func(_ context.Context, m *messaging.Message, p *messaging.PanicError) error {
			require.NotEmpty(t, p.Stack)
			seen = append(seen, p.Value, m.ID)
			return err
		})
	}
	cause := errors.New("reported")
	require.Equal(t, cause, messaging.Chain(panics, decide(cause)).Handle(t.Context(), msg("k", 1)))
	require.Equal(t, []any{"boom", msg("k", 1).ID}, seen)

	var p *messaging.PanicError
	require.ErrorAs(t, messaging.Chain(panics, decide(nil)).Handle(t.Context(), msg("k", 1)), &p, "a panic is no success")

	seen = nil
	fails := messaging.HandlerFunc(func(context.Context, *messaging.Message) error { return errNotNow })
	require.ErrorIs(t, messaging.Chain(fails, decide(nil)).Handle(t.Context(), msg("k", 1)), errNotNow)
	require.Empty(t, seen)
}
