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

// Off is a Limit that permits no wait at all.
const Off time.Duration = -1

const (
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second

	// firstWord is the time between the first two log lines about the wait. It doubles with each further
	// line, up to lastWord.
	firstWord = 10 * time.Second
	lastWord  = 10 * time.Minute
)

// Wait sets how long a process waits for its database, and where it logs that.
type Wait struct {
	// Limit is the longest wait. 0: as long as the context lasts. [Off]: no wait.
	Limit time.Duration
	// Log gets a warning when the wait begins, more warnings from time to time, and a line when the database answers.
	Log *slog.Logger
}

// Until calls fn again while its error says that the database is away or takes no writes yet, and returns
// the first other result. fn must be safe to repeat. If ctx ends or the limit is reached, the returned
// error contains the last error of the database.
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

// ended returns the error of a wait that ctx has ended. It contains the latest error of the database, because the error
// of ctx would not explain the wait.
func ended(ctx context.Context, began time.Time, last, err error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w; the database was waited for for %s, last: %w", context.Cause(ctx), since(began), last)
}

func since(began time.Time) time.Duration { return time.Since(began).Round(time.Millisecond) }
