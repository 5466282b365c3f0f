package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

const secret = "planted"

// The secret is in all that a client sends, but its tenant: key, principal, path, query, other headers, body; and in the errors
// and panics that handlers make of the body. Neither logs at their most talkative, nor spans, metrics or tables have it.
func TestSecretsGoNowhere(t *testing.T) {
	t.Parallel()
	lease := &httpmw.LeaseConfig{Recover: func(_ context.Context, r *http.Request, _ idempotency.Unknown) (idempotency.Outcome, error) {
		body, _ := io.ReadAll(r.Body)
		return idempotency.Outcome{}, errors.New(string(body))
	}}
	for mode, lease := range map[string]*httpmw.LeaseConfig{"atomic": nil, "lease": lease} {
		t.Run(mode, func(t *testing.T) {
			s := newService(t)
			spans := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			s.cfg.Lease, s.cfg.Telemetry.Logger, s.cfg.Telemetry.TracerProvider = lease, logger, tracer
			s.keys = idempotency.NewStore(&idempotency.Config{Schema: s.db.Schema, Telemetry: telemetry.Config{Logger: logger, TracerProvider: tracer}})
			s.units = uow.New(s.db.DB, &uow.Config{Source: "test", Telemetry: telemetry.Config{Logger: logger, TracerProvider: tracer}}, s.sink)
			outcomes := map[string]http.HandlerFunc{
				"ok": s.pay,
				"refused": func(w http.ResponseWriter, _ *http.Request) {
					http.Error(w, "no", http.StatusUnprocessableEntity)
				},
				"failed": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
				"statement": func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					err := s.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
						_, _ = u.DB().ExecContext(ctx, "SELECT ?::int", string(body)) // the server's error repeats it
						return nil
					})
					if err == nil {
						s.pay(w, r)
					}
				},
				"error": func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					err := s.units.Do(r.Context(), func(context.Context, *uow.Unit) error {
						return errors.New(string(body))
					})
					http.Error(w, fmt.Sprint(err != nil), http.StatusInternalServerError)
				},
				"panic": func(_ http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					panic(string(body))
				},
				"step": func(w http.ResponseWriter, r *http.Request) {
					_, _ = step.Call(r.Context(), "pay", func(ctx context.Context, key string) (string, error) {
						body, _ := io.ReadAll(r.Body)
						return "", errors.New(string(body))
					})
					w.WriteHeader(http.StatusBadGateway)
				},
				"unknown": func(w http.ResponseWriter, r *http.Request) { // Recover is called for the retry
					_, _ = idempotency.StepOnce(r.Context(), "pay", func(context.Context) (string, error) {
						body, _ := io.ReadAll(r.Body)
						return "", errors.New(string(body))
					})
					w.WriteHeader(http.StatusBadGateway)
				},
				"cut": func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Length", secret)
					s.pay(w, r)
				},
			}
			s.start(func(w http.ResponseWriter, r *http.Request) { outcomes[r.Header.Get("X-Do")](w, r) })
			for do := range outcomes {
				for range 2 {
					for _, body := range []string{`{"card": "planted-body"}`, `{"card": "planted-other"}`} {
						_, _ = send(s.request("planted-key-"+do, body, header("X-Do", do), header("X-Principal", "planted-user"), header("X-Tenant", "acme"),
							header("Authorization", "Bearer planted-token"), header("Cookie", "planted-cookie"), at("/planted-path"),
							func(r *http.Request) { r.URL.RawQuery = "q=planted-query" }))
					}
				}
			}
			for _, refused := range []reply{
				s.post(`planted "key`, "planted"),
				s.post("planted-key", "planted", header("X-Principal", strings.Repeat(secret, 100))),
				s.post("planted-key", "planted", header("X-Tenant", strings.Repeat(secret, 100))),
			} {
				require.Equal(t, http.StatusBadRequest, refused.status)
				require.NotContains(t, refused.body, secret)
			}

			require.NotEmpty(t, s.log.String())
			require.NotContains(t, s.log.String(), secret)
			require.Equal(t, lease != nil, strings.Contains(s.log.String(), "LeaseConfig.Recover returned an error"))
			require.NotContains(t, fmt.Sprint(s.counter("oncebox.idempotency.requests")), secret)
			ended := spans.Ended()
			require.NotEmpty(t, ended)
			for _, span := range ended {
				require.NotContains(t, fmt.Sprint(span.Name(), span.Attributes(), span.Events(), span.Status()), secret)
			}
			for _, table := range []string{"idempotency_keys", "idempotency_step"} {
				// Bytes are there in hexadecimal.
				require.Zero(t, s.count(fmt.Sprintf(`SELECT count(*) FROM %s t WHERE (to_jsonb(t) - 'request')::text ~ '%s|%x'`, table, secret, secret)))
			}
			// Whoever has to find out what became of a step is shown the path, and it is there for no longer.
			require.Zero(t, s.count(`SELECT count(*) FROM idempotency_keys k WHERE request IS NOT NULL AND (request <> 'POST /planted-path'
				OR NOT EXISTS (SELECT FROM idempotency_step s WHERE s.key_hash = k.key_hash AND s.result IS NULL))`))
			require.NotZero(t, s.stored())
		})
	}
}
