package quietlog

import (
	"context"
	"errors"
	"net/url"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// Services that a process has only once, so that all its parts fail when the service is down.
const (
	Database = "the database"
	Broker   = "the broker"
)

type awayKey struct{}

// Away returns a context for log records about a service that is down for the whole process, or is back.
// All of them are one group, also records at level INFO. An error with a method Away has the same effect,
// and so has an outage of the database.
func Away(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, awayKey{}, what)
}

// awayIn returns the service that the context marks as down, "" for none.
func awayIn(ctx context.Context) string {
	what, _ := ctx.Value(awayKey{}).(string)
	return what
}

// isLate reports whether an error is a timeout that does not name the server. Timeouts of an HTTP client name it.
func isLate(err error) bool {
	// The error of net/http names the address that was late, so it is its own reason and not the database's.
	_, foreign := errors.AsType[*url.Error](err)
	return !foreign && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// awayBy returns the service that is down according to the error, "" for other errors.
// The error itself knows best: the broker's errors have the method. Only then is it compared with PostgreSQL's codes
// and with lost connections.
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
