package httpjson

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/oncebox/oncebox/httpmw"
)

// Errors are the errors that a service knows, by the status that answers them. They decide how an error is answered:
//
//   - an [httpmw.Problem] is sent as it is
//   - an error of the list, found with errors.Is, is sent with its status, and with the text of the listed error as the title. What is wrapped around it
//     stays within the service. If an error is found under two statuses, the lower one counts. The title of sql.ErrNoRows is that of the status
//   - every other error is answered with 503 and Retryable, because it is mostly a database or a service that does not answer
//
// An answer from 500 on is logged as an ERROR with its error, unless the client has gone. A client may send the same request again after 429 and from 500
// on: the problem is Retryable.
type Errors map[int][]error

// Refuse answers a request with an error.
func (e Errors) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := e.problem(err)
	if gone := r.Context().Err() != nil && errors.Is(err, context.Canceled); p.Status >= http.StatusInternalServerError && !gone {
		slog.ErrorContext(r.Context(), "oncebox: a request failed", "method", r.Method, "path", r.URL.Path, "status", p.Status, "error", err)
	}
	httpmw.WriteProblem(w, r, p)
}

func (e Errors) problem(err error) httpmw.Problem {
	if p, own := errors.AsType[httpmw.Problem](err); own {
		p.Status = cmp.Or(p.Status, http.StatusInternalServerError)
		return p
	}
	for _, status := range slices.Sorted(maps.Keys(e)) {
		for _, known := range e[status] {
			if errors.Is(err, known) {
				again := status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
				return httpmw.Problem{Status: status, Title: title(status, known), Retryable: again}
			}
		}
	}
	return httpmw.Problem{Status: http.StatusServiceUnavailable, Title: "The request failed", Detail: "Send it again.", Retryable: true}
}

func title(status int, known error) string {
	if known == sql.ErrNoRows { //nolint:errorlint // an error of the list, which nothing wraps
		return http.StatusText(status)
	}
	return known.Error()
}
