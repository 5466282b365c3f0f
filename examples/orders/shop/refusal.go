package shop

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/uow"
)

// refuse turns an error into an answer. It never answers 409, which the middleware uses for a key in progress.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		slog.ErrorContext(r.Context(), "orders: a request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}
	httpmw.WriteProblem(w, r, p)
}

func problemOf(err error) httpmw.Problem {
	var input *inputError
	var statement *pgconn.PgError
	switch malformed, is := errors.AsType[httpmw.Problem](err); {
	case is:
		malformed.Type = "/problems/bad-input"
		return malformed
	case errors.As(err, &input):
		return httpmw.Problem{Type: "/problems/bad-input", Title: "The request is malformed", Status: http.StatusBadRequest, Detail: input.reason}
	case errors.Is(err, ErrNotFound):
		return httpmw.Problem{Type: "/problems/order-not-found", Title: "There is no such order", Status: http.StatusNotFound}
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrTooLarge):
		return httpmw.Problem{Type: "/problems/refused", Title: "The order does not allow this",
			Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.Is(err, uow.ErrConflict):
		return httpmw.Problem{Type: "/problems/busy", Title: "Too many requests change this order",
			Status: http.StatusServiceUnavailable, Detail: "Try again with the same key.", Retryable: true}
	case errors.As(err, &statement) && !outage(statement):
		return httpmw.Problem{Type: "/problems/internal", Title: "The service made a mistake", Status: http.StatusInternalServerError}
	default:
		return httpmw.Problem{Type: "/problems/unavailable", Title: "The service cannot reach its database",
			Status: http.StatusServiceUnavailable, Detail: "Try again with the same key.", Retryable: true}
	}
}

// readOnly is the error code of a write to a standby, or to a server that its operators have set to
// read-only because its disk is nearly full.
const readOnly = "25006"

// outage reports whether the server refused because it shuts down, starts, is full or read-only, or has lost the
// connection or its disk. Any other refusal is a bug of this program, which another try would not mend.
func outage(err *pgconn.PgError) bool {
	switch err.Code[:2] {
	case "08", "53", "57", "58", "40":
		return true
	default:
		return err.Code == readOnly
	}
}
