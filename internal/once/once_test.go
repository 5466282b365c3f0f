package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/once"
)

// Readers of one page share an answer, or an error. Without a page each call reads.
func TestReadersOfAPageShareTheirAnswers(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	read := func(context.Context) (int64, error) { return reads.Add(1), nil }
	key := once.Key{Of: t, What: "number"}
	for want := range 2 {
		n, err := once.Do(t.Context(), key, read)
		require.NoError(t, err)
		require.EqualValues(t, want+1, n)
	}
	page := once.With(t.Context())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			n, err := once.Do(page, key, read)
			if n != 3 || err != nil {
				t.Error(n, err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 3, reads.Load())
	n, err := once.Do(page, once.Key{What: "outer"}, func(ctx context.Context) (int64, error) { return once.Do(ctx, key, read) })
	require.NoError(t, err)
	require.EqualValues(t, 3, n, "a reading shares what it reads in its turn")
	n, err = once.Do(page, once.Key{Of: t, What: "another"}, read)
	require.NoError(t, err)
	require.EqualValues(t, 4, n)

	away := errors.New("away")
	for range 2 {
		_, err := once.Do(page, once.Key{What: "failing"}, func(context.Context) (int64, error) { return reads.Add(1), away })
		require.ErrorIs(t, err, away)
	}
	require.EqualValues(t, 5, reads.Load())
}

// A reader whose own context ends does not end the reading for the others, and does not wait for it.
func TestAReaderMayLeave(t *testing.T) {
	t.Parallel()
	page := once.With(t.Context())
	leaving, leave := context.WithCancel(page)
	key, reading, goOn := once.Key{What: "slow"}, make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := once.Do(leaving, key, func(ctx context.Context) (int, error) {
			close(reading)
			<-goOn
			return 1, ctx.Err()
		})
		ended <- err
	}()
	<-reading
	leave()
	require.ErrorIs(t, <-ended, context.Canceled)
	close(goOn)
	n, err := once.Do(page, key, func(context.Context) (int, error) { return 2, nil })
	require.NoError(t, err)
	require.Equal(t, 1, n)
}
