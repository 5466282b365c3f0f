package store

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// unstorableError says that PostgreSQL refuses a message for what is in it, and would do so every time.
type unstorableError struct{ err error }

func (e *unstorableError) Error() string { return e.err.Error() }
func (e *unstorableError) Unwrap() error { return e.err }

func IsUnstorable(err error) bool {
	_, ok := errors.AsType[*unstorableError](err)
	return ok
}

// refusesContent tells whether the error of a statement is about its arguments: data exceptions (22), violated constraints (23), limits
// of a row or an index (54), what triggers raise, with whatever code, and what pgx cannot encode, for which it has no type.
func refusesContent(err error) bool {
	if err == nil {
		return false
	}
	switch code := pgsql.Code(err); {
	case code == "":
		return strings.Contains(err.Error(), "failed to encode args")
	case len(code) < 2:
		return false
	default:
		return !isAboutDatabase(code[:2])
	}
}

// isAboutDatabase tells whether a class of errors says nothing about what was to be stored (PostgreSQL, Appendix A): a lost connection, a
// statement that cannot be run, a read-only or a broken session, a login, a missing schema or table or right, a victim of a deadlock, too
// few resources, an object in use, an end that somebody has asked for, the disk, and defects of the server. They pass, or somebody mends
// them: no message is given up for a full disk.
func isAboutDatabase(class string) bool {
	return slices.Contains([]string{"08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "XX"}, class)
}

// storable returns nil for a time that RFC 3339 cannot write.
func storable(t time.Time) *time.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 0 || year > 9999 {
		return nil
	}
	t = t.UTC().Truncate(time.Microsecond)
	return &t
}

// isStorable says that the table keeps a time as it is.
func isStorable(t time.Time) bool {
	return t.Location() == time.UTC && t.Nanosecond()%int(time.Microsecond) == 0 && t.Year() >= 0 && t.Year() <= 9999
}
