package oncebox

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// deniedInterval is how often a right that the role lacks is told of.
const deniedInterval = time.Hour

// deniedLog tells once of each right that the role of the database lacks, with the GRANT to run. All parts of a process fail by it, again and
// again, and their lines would be the same mistake.
type deniedLog struct {
	slog.Handler

	told *told
}

// told is shared by the loggers that are made of one.
type told struct {
	mu sync.Mutex
	at map[string]time.Time // by what the server said
}

func newDeniedLog(h slog.Handler) deniedLog { return deniedLog{h, &told{at: map[string]time.Time{}}} }

// Unwrap returns the handler behind.
func (d deniedLog) Unwrap() slog.Handler { return d.Handler }

// Handle logs a record, unless it is of a right that was told of already.
func (d deniedLog) Handle(ctx context.Context, r slog.Record) error {
	var missing error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok && pgsql.Code(err) == pgsql.CodeInsufficientPrivilege {
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
	if explained := pgsql.Explain(missing).Error(); !strings.Contains(missing.Error(), "GRANT") {
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

// WithAttrs returns a handler that tells of the same rights once with this one.
func (d deniedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return deniedLog{d.Handler.WithAttrs(attrs), d.told}
}

// WithGroup returns a handler that tells of the same rights once with this one.
func (d deniedLog) WithGroup(name string) slog.Handler {
	return deniedLog{d.Handler.WithGroup(name), d.told}
}
