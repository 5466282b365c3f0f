package quietlog

import (
	"context"
	"errors"
	"net/url"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Services of which a process has only one, and whose outage makes all of its parts fail alike.
const (
	Database = "the database"
	Broker   = "the broker"
)

type awayKey struct{}

// Away returns a context whose records are about a service that is away for the whole process, or is back: they are one group, also at the level
// INFO. An error with a method Away means the same, and so does an outage of the database.
func Away(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, awayKey{}, what)
}

func awayIn(ctx context.Context) string {
	what, _ := ctx.Value(awayKey{}).(string)
	return what
}

// isLate reports whether an error is a timeout that does not name the server. The error of an HTTP client names it.
func isLate(err error) bool {
	_, foreign := errors.AsType[*url.Error](err)
	return !foreign && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// awayBy returns which service is away according to an error, "" for other errors.
func awayBy(err error) string {
	if says, ok := errors.AsType[interface {
		error
		Away() string
	}](err); ok {
		return says.Away()
	}
	if pgerr.IsOutage(err) {
		return Database
	}
	return ""
}
