package oncebox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// deniedInterval is the time between two log lines about the same missing right.
const deniedInterval = time.Hour

// deniedLog logs each right that the database role lacks only once per deniedInterval, with the GRANT to run. All parts of a process fail
// for this reason, again and again, and their lines would all be about one mistake.
type deniedLog struct {
	slog.Handler

	told *told
}

// told is the record of logged rights. All loggers that are derived from one share it.
type told struct {
	mu sync.Mutex
	at map[string]time.Time // time of the last line about a right, by the server's message
}

func newDeniedLog(h slog.Handler) deniedLog { return deniedLog{h, &told{at: map[string]time.Time{}}} }

// Unwrap returns the wrapped handler.
func (d deniedLog) Unwrap() slog.Handler { return d.Handler }

// Handle logs a record, unless it is about a right that was logged already.
func (d deniedLog) Handle(ctx context.Context, r slog.Record) error {
	var missing error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && pgerr.Code(err) == pgerr.InsufficientPrivilege {
			missing = err
		}
		return missing == nil
	})
	if missing == nil {
		return d.Handler.Handle(ctx, r)
	}
	if !d.told.first(missing, r.Time) {
		return nil
	}
	if explained := pgerr.Explain(missing).Error(); !strings.Contains(missing.Error(), "GRANT") {
		r.AddAttrs(slog.String("mend", explained))
	}
	return d.Handler.Handle(ctx, r)
}

func (t *told) first(missing error, now time.Time) bool {
	cause := missing.Error()
	if answer, ok := errors.AsType[*pgconn.PgError](missing); ok {
		cause = answer.Message
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, before := t.at[cause]; before && now.Sub(at) < deniedInterval {
		return false
	}
	t.at[cause] = now
	return true
}

// WithAttrs returns a handler that shares the logged rights with this one.
func (d deniedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return deniedLog{d.Handler.WithAttrs(attrs), d.told}
}

// WithGroup returns a handler that shares the logged rights with this one.
func (d deniedLog) WithGroup(name string) slog.Handler {
	return deniedLog{d.Handler.WithGroup(name), d.told}
}
