package shop

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/oncebox/oncebox/uow"
)

// problem is a refusal as of RFC 9457.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

// refuse turns an error into an answer. It never answers 409, which the middleware uses for a key in progress.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError {
		a.log.ErrorContext(r.Context(), "orders: a request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings and numbers only
	}
	w.Header().Set("Content-Type", "application/problem+json")
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

func problemOf(err error) problem {
	var input *inputError
	var statement *pgconn.PgError
	switch {
	case errors.As(err, &input):
		return problem{"/problems/bad-input", "The request is malformed", http.StatusBadRequest, input.reason}
	case errors.Is(err, ErrNotFound):
		return problem{"/problems/order-not-found", "There is no such order", http.StatusNotFound, ""}
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrTooLarge):
		return problem{"/problems/refused", "The order does not allow this", http.StatusUnprocessableEntity, err.Error()}
	case errors.Is(err, uow.ErrConflict):
		return problem{"/problems/busy", "Too many requests change this order", http.StatusServiceUnavailable, "Try again with the same key."}
	case errors.As(err, &statement) && !outage(statement):
		return problem{"/problems/internal", "The service made a mistake", http.StatusInternalServerError, ""}
	default:
		return problem{"/problems/unavailable", "The service cannot reach its database", http.StatusServiceUnavailable, "Try again with the same key."}
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
