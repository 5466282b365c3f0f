package inbox

import (
	"errors"
	"strings"
	"time"

	"github.com/oncebox/oncebox/internal/pgsql"
)

// unstorableError says that PostgreSQL refuses a message for what is in it, and would do so every time.
type unstorableError struct{ err error }

func (e *unstorableError) Error() string { return e.err.Error() }
func (e *unstorableError) Unwrap() error { return e.err }

func isUnstorable(err error) bool {
	_, ok := errors.AsType[*unstorableError](err)
	return ok
}

// refusesContent tells whether the error of a statement is about its arguments. Those are: data exceptions (22), violated
// constraints (23), limits of a row or an index (54), and what triggers raise (P0), see PostgreSQL's error codes, Appendix A; and
// what pgx cannot encode, for which it has no type. All others are about the database, and pass: nothing is lost for a full disk.
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
		return code[:2] == "22" || code[:2] == "23" || code[:2] == "54" || code[:2] == "P0"
	}
}

// storable returns nil for a time that RFC 3339 cannot write.
func storable(t time.Time) *time.Time {
	if year := t.UTC().Year(); t.IsZero() || year < 0 || year > 9999 {
		return nil
	}
	return &t
}
