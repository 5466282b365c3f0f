package adapters_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/adapters"
	"github.com/oncebox/oncebox/messaging"
)

var errAway, errLasts = errors.New("connection refused"), errors.New("wrong password")

// broker is away for the first attempts.
type broker struct {
	away     int
	err      error
	attempts int
	log      strings.Builder
	open     context.Context
	close    context.CancelFunc
}

func (b *broker) start(required bool) *adapters.Start {
	b.open, b.close = context.WithCancel(context.Background())
	return adapters.NewStart(adapters.Greeting{
		Kind: "Kafka", URL: "host:9092", Setting: "Config.URL (ONCEBOX_KAFKA_URL)", Required: required, Timeout: 30 * time.Second, Open: b.open,
		Log:   slog.New(slog.NewTextHandler(&b.log, nil)),
		Lasts: func(err error) bool { return errors.Is(err, errLasts) },
		Greet: func(context.Context) error {
			if b.attempts++; b.attempts > b.away {
				return nil
			}
			return b.err
		},
	})
}

func TestStartGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker{away: 50, err: errAway}
		s := b.start(false)
		require.NoError(t, s.Begin(t.Context()))
		require.True(t, s.IsUnder())
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Wait(soon, "publish")
		require.ErrorIs(t, err, messaging.ErrBrokerDown)
		require.ErrorIs(t, err, errAway, "the reason")
		require.NoError(t, s.Wait(t.Context(), "publish"))
		require.False(t, s.IsUnder())
		require.Equal(t, 51, b.attempts)
		b.close()
		require.True(t, s.End(time.Second)) // and with it the writing of the log
		require.Equal(t, 1, strings.Count(b.log.String(), "the broker cannot be reached"), b.log.String())
		require.Positive(t, strings.Count(b.log.String(), "still cannot be reached"), b.log.String())
		require.Less(t, strings.Count(b.log.String(), "still cannot be reached"), 5, b.log.String())
		require.Contains(t, b.log.String(), "is open")
	})
}

func TestStartEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker{away: 1 << 30, err: errAway}
		s := b.start(false)
		require.NoError(t, s.Begin(t.Context()))
		require.False(t, s.End(time.Second))
		b.close()
		require.True(t, s.End(time.Second))
		require.ErrorIs(t, s.Wait(t.Context(), "publish"), messaging.ErrBrokerDown)
	})
}

func TestRequiredStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker{away: 5, err: errAway}
		require.NoError(t, b.start(true).Begin(t.Context()), "a moment's trouble")
		b = broker{away: 1 << 30, err: errAway}
		err := b.start(true).Begin(t.Context())
		require.ErrorIs(t, err, messaging.ErrBrokerDown)
		require.ErrorContains(t, err, "ONCEBOX_KAFKA_URL")
	})
}

// The error names the last answer, and not that the time was over while the broker was asked once more; and the time that was really waited.
func TestRequiredStartSaysWhatWasTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := broker{away: 1 << 30, err: errAway}
		s := b.start(true)
		answer := s.Greet
		s.Greet = func(ctx context.Context) error {
			if b.attempts < 3 {
				return answer(ctx)
			}
			<-time.After(time.Minute) // a client that cannot be interrupted
			return ctx.Err()
		}
		err := s.Begin(t.Context())
		require.ErrorIs(t, err, errAway)
		require.ErrorContains(t, err, "no answer for 1m0.")
	})
}

func TestStartFailsAtOnceWhereWaitingMendsNothing(t *testing.T) {
	for _, required := range []bool{false, true} {
		b := broker{away: 1, err: errLasts}
		require.ErrorIs(t, b.start(required).Begin(t.Context()), errLasts)
		require.Equal(t, 1, b.attempts)
	}
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c adapters.Calls
		leave, err := c.Enter("publish")
		require.NoError(t, err)
		require.True(t, c.Close())
		require.False(t, c.Close())
		require.False(t, c.Wait(time.Second))
		leave()
		require.True(t, c.Wait(time.Second))
		_, err = c.Enter("publish")
		require.ErrorIs(t, err, messaging.ErrBrokerDown)
	})
}

func TestDrainEndsCallsThatTakeTooLong(t *testing.T) {
	for name, away := range map[string]int{"connected": 0, "not connected": 1 << 30} {
		synctest.Test(t, func(t *testing.T) {
			b := broker{away: away, err: errAway}
			s := b.start(false)
			require.NoError(t, s.Begin(t.Context()))
			var c adapters.Calls
			leave, err := c.Enter("publish")
			require.NoError(t, err)
			go func() {
				<-b.open.Done()
				leave()
			}()
			began := time.Now()
			require.True(t, s.Drain(&c, b.close, time.Minute))
			require.False(t, s.Drain(&c, b.close, time.Minute))
			require.Equal(t, away == 0, time.Since(began) == time.Minute, name)
			b.close()
			require.True(t, s.End(time.Second))
		})
	}
}

func TestInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		away := func() error {
			if calls++; calls < 5 {
				return messaging.ErrBrokerDown
			}
			return errLasts
		}
		require.ErrorIs(t, adapters.Insist(t.Context(), away), errLasts)
		require.Equal(t, 5, calls)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, adapters.Insist(ctx, func() error { return messaging.ErrBrokerDown }), messaging.ErrBrokerDown)
		require.Error(t, ctx.Err())
	})
}
