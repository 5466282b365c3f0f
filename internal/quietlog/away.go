package quietlog

import (
	"context"
	"errors"
	"net/url"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// What a process has one of, and by which all of its parts fail alike.
const (
	Database = "the database"
	Broker   = "the broker"
)

type awayKey struct{}

// Away returns a context whose records are about something that is away for the whole process, or is back: they are one group, also at the level INFO.
// An error says the same by a method Away, or by being one of the database's.
func Away(ctx context.Context, what string) context.Context {
	return context.WithValue(ctx, awayKey{}, what)
}

func awayIn(ctx context.Context) string {
	what, _ := ctx.Value(awayKey{}).(string)
	return what
}

// isLate reports whether an error says that time was over, and not whose. An HTTP client's says whose.
func isLate(err error) bool {
	_, foreign := errors.AsType[*url.Error](err)
	return !foreign && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

// awayBy returns what an error says is away, "" for other errors.
func awayBy(err error) string {
	if says, ok := errors.AsType[interface {
		error
		Away() string
	}](err); ok {
		return says.Away()
	}
	if pgsql.IsOutage(err) {
		return Database
	}
	return ""
}
