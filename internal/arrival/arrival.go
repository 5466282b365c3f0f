// Package arrival lets a starting process wait for a database that is away.
package arrival

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/pgerr"
	"github.com/oncebox/oncebox/internal/quietlog"
	"github.com/oncebox/oncebox/retry"
)

// Off is the limit without any wait.
const Off time.Duration = -1

const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second

	// firstWord is the time between the first and the second log line about the wait. Each further one comes after twice the time, up to lastWord.
	firstWord = 10 * time.Second
	lastWord  = 10 * time.Minute
)

// Wait configures how a process waits.
type Wait struct {
	// Limit is the longest wait. 0: as long as the context lasts. [Off]: no wait.
	Limit time.Duration
	// Log gets a warning at once, another one from time to time, and a line when the database has come.
	Log *slog.Logger
}

// Until calls fn again as long as its error says that the database is away or takes no writes yet, and returns the first other result. fn must be
// safe to repeat. When ctx ends, or the limit is reached, the error has the last cause.
func (w Wait) Until(ctx context.Context, fn func() error) error {
	began := time.Now()
	said, words := began, 0
	var last error
	for attempt := 1; ; attempt++ {
		err := fn()
		switch {
		case ctx.Err() != nil && err != nil:
			return ended(ctx, began, last, err)
		case w.Limit == Off || !pgerr.IsAway(err) && !pgerr.TakesNoWrites(err):
			if err == nil && attempt > 1 {
				w.Log.InfoContext(quietlog.Away(ctx, quietlog.Database), "oncebox: the database has come", "waited", since(began))
			}
			return err
		}
		last = err
		left := w.Limit - time.Since(began)
		if w.Limit > 0 && left <= 0 {
			return fmt.Errorf("%w; it was waited for for %s: Config.DatabaseWait (ONCEBOX_DATABASE_WAIT) sets for how long", err, since(began))
		}
		switch {
		case words == 0:
			w.Log.WarnContext(ctx, "oncebox: the database is away and is waited for; start it, or correct ONCEBOX_DATABASE_URL", "error", err)
			said, words = time.Now(), 1
		case time.Since(said) >= backoff.Exponential(words, firstWord, lastWord):
			w.Log.WarnContext(ctx, "oncebox: the database is still waited for", "waited", since(began), "error", err)
			said, words = time.Now(), words+1
		}
		pause := retry.Policy{Delay: firstPause, MaxDelay: longestPause}.Pause(attempt)
		if w.Limit > 0 {
			pause = min(pause, left)
		}
		if backoff.Wait(ctx, pause) != nil {
			return ended(ctx, began, last, last)
		}
	}
}

// ended returns the error of a wait that ctx has ended. It names the latest error of the database if there is one, because the error of ctx says
// nothing about the database.
func ended(ctx context.Context, began time.Time, last, err error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w; the database was waited for for %s, last: %w", context.Cause(ctx), since(began), last)
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }
