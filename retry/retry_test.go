package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/retry"
)

func TestPausesDoubleUpToTheLongest(t *testing.T) {
	p := retry.Policy{Delay: time.Second, MaxDelay: 5 * time.Second}
	for n, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 4: 5 * time.Second, 1000: 5 * time.Second,
	} {
		require.Equal(t, want, p.Longest(n), n)
		seen := map[time.Duration]bool{}
		for range 100 {
			pause := p.Pause(n)
			require.LessOrEqual(t, pause, want)
			require.GreaterOrEqual(t, pause, want/2)
			seen[pause] = true
		}
		require.Greater(t, len(seen), 50, "the pauses are spread")
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		p := retry.Policy{Delay: time.Hour, MaxDelay: time.Hour}
		require.NoError(t, p.Wait(t.Context(), 1))
		require.GreaterOrEqual(t, time.Since(began), 30*time.Minute)
		stop := errors.New("stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(stop) })
		require.Equal(t, stop, p.Wait(ctx, 1))
	})
}

func TestWhatIsNotSaidIsTakenFromTheOther(t *testing.T) {
	other := retry.Policy{Delay: time.Second, MaxDelay: time.Minute}
	require.Equal(t, other, retry.Policy{}.Or(other))
	require.Equal(t, retry.Policy{Delay: 2, MaxDelay: time.Minute}, retry.Policy{Delay: 2}.Or(other))
	require.Equal(t, retry.Policy{Delay: time.Second, MaxDelay: 3}, retry.Policy{MaxDelay: 3}.Or(other))
}

func TestValidateNamesTheField(t *testing.T) {
	require.NoError(t, retry.Policy{}.Validate("uow: Config.Retry"))
	err := retry.Policy{Delay: -1, MaxDelay: -2}.Validate("uow: Config.Retry")
	require.EqualError(t, err, "uow: Config.Retry.Delay is -1ns: give a duration\nuow: Config.Retry.MaxDelay is -2ns: give a duration")
}
