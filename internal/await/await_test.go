package await_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/watched"
)

// printed returns what fn writes to standard error.
func printed(t *testing.T, fn func()) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "stderr")
	require.NoError(t, err)
	defer file.Close()
	old := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = old }()
	fn()
	_, err = file.Seek(0, io.SeekStart)
	require.NoError(t, err)
	text, err := io.ReadAll(file)
	require.NoError(t, err)
	return string(text)
}

func TestWhatIsThereIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		await.True(t, func() bool { return true }, "nothing")
		ch := make(chan int, 1)
		ch <- 7
		require.Equal(t, 7, await.Receive(t, ch, "a number"))
		require.Zero(t, time.Since(begun))
	})
}

func TestLongWaitSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		text := printed(t, func() {
			await.True(t, func() bool { return time.Since(begun) > 130*time.Second }, "event %d", 5)
		})
		require.Equal(t, 2, strings.Count(text, "\n"), text)
		require.Contains(t, text, t.Name()+" has waited 1m0s for: event 5\n")
		require.Contains(t, text, t.Name()+" has waited 2m0s for: event 5\n")

		begun = time.Now()
		text = printed(t, func() {
			await.Nil(t, func() error {
				if time.Since(begun) > 70*time.Second {
					return nil
				}
				return io.ErrNoProgress
			}, "event %d", 6)
		})
		require.Equal(t, t.Name()+" has waited 1m0s for: event 6: "+io.ErrNoProgress.Error()+"\n", text)

		ch := make(chan struct{})
		time.AfterFunc(61*time.Second, func() { close(ch) })
		text = printed(t, func() { await.Receive(t, ch, "the end") })
		require.Equal(t, t.Name()+" has waited 1m0s for: the end\n", text)

		text = printed(t, func() {
			ctx, done := await.Context(t.Context(), t, "an answer")
			time.Sleep(61 * time.Second)
			done()
			synctest.Wait()
			require.ErrorIs(t, ctx.Err(), context.Canceled)
		})
		require.Equal(t, t.Name()+" has waited 1m0s for: an answer\n", text)
	})
}

func TestWaitInVainFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for what, wait := range map[string]func(w *watched.T){
			"a sign":   func(w *watched.T) { await.True(w, func() bool { return false }, "a sign") },
			"a letter": func(w *watched.T) { await.Receive(w, make(chan int), "a letter") },
			"a success: attempt 2 failed": func(w *watched.T) {
				attempts := 0
				await.Nil(w, func() error {
					attempts = min(attempts+1, 2)
					return fmt.Errorf("attempt %d failed", attempts)
				}, "a success")
			},
		} {
			var said string
			printed(t, func() { said = watched.Run(t.Context(), wait) })
			require.Equal(t, "waited 10m0s in vain for: "+what, said)
		}
	})
}
