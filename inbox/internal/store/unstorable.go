package store

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgerr"
)

// unstorableError means that PostgreSQL refuses the content of a message, and would refuse it every time.
type unstorableError struct{ err error }

func (e *unstorableError) Error() string { return e.err.Error() }
func (e *unstorableError) Unwrap() error { return e.err }

// IsUnstorable reports whether PostgreSQL refused a message for its content, so that storing it again would fail again.
func IsUnstorable(err error) bool {
	_, ok := errors.AsType[*unstorableError](err)
	return ok
}

// refusesContent reports whether the error of a statement is about its arguments: data exceptions (22), violated constraints (23), limits
// of a row or an index (54), errors that triggers raise, with any code, and values that pgx cannot encode (an error without a type).
func refusesContent(err error) bool {
	if err == nil {
		return false
	}
	switch code := pgerr.Code(err); {
	case code == "":
		return strings.Contains(err.Error(), "failed to encode args")
	case len(code) < 2:
		return false
	default:
		return !isAboutDatabase(code[:2])
	}
}

// isAboutDatabase reports whether a class of errors is about the database and not about the stored data (PostgreSQL, Appendix A): a lost
// connection, a statement that cannot be run, a read-only or broken session, a login, a missing schema, table or right, a deadlock, too few
// resources, an object in use, a requested end, the disk, and defects of the server. These pass, or somebody mends them. So no message is
// given up because of a full disk.
func isAboutDatabase(class string) bool {
	return slices.Contains([]string{"08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "XX"}, class)
}

// Storable returns nil, which is stored as NULL, for the zero time and for a time that RFC 3339 cannot express.
func Storable(t time.Time) *time.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 0 || year > 9999 {
		return nil
	}
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}

// isStorable reports whether the table keeps a time unchanged.
func isStorable(t time.Time) bool {
	return t.Location() == time.UTC && t.Nanosecond()%int(time.Microsecond) == 0 && t.Year() >= 0 && t.Year() <= 9999
}
