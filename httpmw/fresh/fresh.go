// Package fresh shows a client its own changes in a read model, which is filled a moment after they were committed.
//
//	once := httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Caller, &httpmw.IdempotencyConfig{TokenHeader: "X-Read-Token"})
//	mux.Handle("POST /shows/{id}/reservations", once(reserve))
//	mux.Handle("GET /shows/{id}", fresh.Reads(app.Inbox, "seats", "X-Read-Token", nil)(show))
//
// # Guarantees
//
// A request that has the token of an earlier answer waits until the read model has the events of that answer, for [Config].Limit at most. Then it is
// answered from the read model as it is. A request without a token does not wait.
//
// # Errors
//
// The package sends no errors of its own. If the limit has passed, or the consumer has given up an event (inbox.ErrGivenUp), the log has a WARN, and
// the client gets an older state. A header that is no token is ignored.
//
// Read first: fresh.go:Reads.
package fresh

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/uow"
)

// Config configures [Reads].
type Config struct {
	// Limit is the longest time that a request waits. Default: 2s.
	Limit time.Duration
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil Config is the zero value.
func (c *Config) WithDefaults() Config {
	out := configs.Copy(c)
	out.Limit = cmp.Or(out.Limit, 2*time.Second)
	return out
}

// Reads returns a middleware for requests that read what a consumer has written. header is the name of the header that has the token, the same as
// httpmw.IdempotencyConfig.TokenHeader of the requests that write. Mount it outside of units of work, see inbox.Inbox.Await.
func Reads(box *inbox.Inbox, consumer, header string, cfg *Config) func(http.Handler) http.Handler {
	c := cfg.WithDefaults()
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if token := uow.Token(r.Header.Get(header)); token != "" {
				ctx, cancel := context.WithTimeout(r.Context(), c.Limit)
				err := box.Await(ctx, consumer, token)
				cancel()
				if err != nil && !errors.Is(err, event.ErrInvalid) && r.Context().Err() == nil {
					slog.WarnContext(r.Context(), "oncebox: a read model does not have the changes of a client in time; the client gets an older state",
						"consumer", consumer, "method", r.Method, "path", r.URL.Path, "error", err)
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}
