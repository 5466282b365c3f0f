package pgerr

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// IsOutdated reports whether a statement failed because it was prepared too long ago: its result columns have changed since, by ALTER TABLE for
// example, the server has forgotten it, or an object that it uses was replaced. It was not executed, and would not fail if it were prepared now.
//
// Messages are translated, names of the server's functions are not, and neither are messages of internal errors.
func IsOutdated(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch answer.Code {
	case InvalidStatementName:
		return true
	case featureNotSupported:
		return answer.Routine == "RevalidateCachedQuery" // cached plan must not change result type
	case ProtocolViolation:
		return answer.Routine == "PortalSetResultFormat" // described when it had fewer columns
	case internalError:
		return strings.HasPrefix(answer.Message, "cache lookup failed for ") || strings.HasPrefix(answer.Message, "could not open relation with OID ")
	default:
		return false
	}
}
