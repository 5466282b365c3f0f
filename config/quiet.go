package config

import (
	"log/slog"
	"time"

	"github.com/oncebox/oncebox/internal/quietlog"
)

// Quiet returns a logger that writes at most one line per interval about a failure that happens again and again. The first line of a failure is
// written at once; then the latest one each interval, with the number of failures and the time of the first; and a line at INFO when the failure
// has not been seen for a while. Failures with the same cause are counted together: those of a consumer, of a route, or, if the database or the
// broker is away, of the whole process. docs/logs.md has the details.
//
// Every package wraps its Logger like this, with an interval of a minute. Pass it a logger of Quiet to set another interval, or to count failures
// of several packages together without oncebox.App. Quiet returns a logger that it made itself unchanged.
//
// l nil: slog.Default(). interval 0: 1m; -1: every failure is logged.
func Quiet(l *slog.Logger, interval time.Duration) *slog.Logger {
	return quietlog.New(l, interval)
}
