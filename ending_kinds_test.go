package oncebox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/internal/apptest"
	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/uow"
)

// ender is a service whose functions end their transactions.
type ender struct {
	*testing.T
	*oncebox.App

	db   *pgtest.DB
	mux  map[string]http.Handler
	keys int

	metrics *metric.ManualReader

	// function is what the functions of the units do.
	function func(ctx context.Context) error
}

func newEnder(t *testing.T, db *pgtest.DB, open func(*testing.T, *pgtest.DB) *bun.DB, pooled bool) *ender {
	t.Helper()
	_, err := db.Exec("CREATE TABLE IF NOT EXISTS notes (text text)")
	require.NoError(t, err)
	cfg := apptest.Config()
	cfg.Inbox.Retry.Tries, cfg.Inbox.Retry.Delay = 1, time.Hour // a parked message stays at its first error
	cfg.Pooler = pooled
	metrics := metric.NewManualReader()
	cfg.Telemetry.MeterProvider = metric.NewMeterProvider(metric.WithReader(metrics))
	app, err := oncebox.New(open(t, db), nil, cfg)
	require.NoError(t, err)
	event.Register[OrderPlaced](app.Registry)
	event.Register[ending](app.Registry)
	e := &ender{T: t, App: app, db: db, mux: map[string]http.Handler{}, metrics: metrics}
	uow.On(app.UoW, func(ctx context.Context, _ *uow.Unit, _ ending) error { return e.call(ctx) })
	scope := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("acme"), nil }
	for name, cfg := range map[string]httpmw.IdempotencyConfig{
		"key": {}, "token": {TokenHeader: "Token"}, "leased": {Lease: &httpmw.LeaseConfig{}},
	} {
		handler := http.HandlerFunc(e.serve)
		if cfg.Lease != nil {
			handler = e.serveLeased
		}
		e.mux[name] = httpmw.Idempotency(app.UoW, app.Idempotency, scope, &cfg)(handler)
	}
	e.mux["unit"] = httpmw.UnitOfWork(app.UoW)(http.HandlerFunc(e.serve))
	return e
}

func (e *ender) call(ctx context.Context) error { return e.function(ctx) }

// serve answers as a handler that has not noticed anything, or that refuses.
func (e *ender) serve(w http.ResponseWriter, r *http.Request) {
	switch err := e.call(r.Context()); {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case r.Header.Get("Refused") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// serveLeased works in a unit with a step.
func (e *ender) serveLeased(w http.ResponseWriter, r *http.Request) {
	err := e.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
		_, err := idempotency.StepTx(ctx, u.DB(), "step", func(ctx context.Context) (bool, error) { return true, e.call(ctx) })
		return err
	})
	if errors.Is(err, uow.ErrTransactionEnded) {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// request fails as the client sees it.
func (e *ender) request(middleware string, header ...string) error {
	e.keys++
	r := httptest.NewRequestWithContext(e.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", fmt.Sprint("key-", e.keys))
	for _, name := range header {
		r.Header.Set(name, "yes")
	}
	w := httptest.NewRecorder()
	e.mux[middleware].ServeHTTP(w, r)
	if w.Code == http.StatusInternalServerError {
		return fmt.Errorf("%w: %s", uow.ErrTransactionEnded, w.Body)
	}
	if w.Code >= http.StatusBadRequest {
		return fmt.Errorf("%d: %s", w.Code, w.Body)
	}
	return nil
}

func (e *ender) message() *messaging.Message {
	e.keys++
	id := fmt.Sprint("message-", e.keys)
	return messaging.NewMessage(event.Envelope{
		ID: id, Type: "order.placed", Source: "shop", TenantID: "t1", Topic: "order", AggregateType: "order", AggregateID: id, AggregateVersion: 1,
	}, 1, nil)
}

func (e *ender) handler() messaging.Handler {
	return messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error { return e.call(ctx) })
}

// refused makes a success of the handler's own refusal.
func refused(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "422") {
		return nil
	}
	return err
}

// given is the error of a message that is given to a consumer, which parks what has failed.
func (e *ender) given(h messaging.Handler, m *messaging.Message) error {
	if err := h.Handle(e.Context(), m); err != nil {
		return err
	}
	return e.parkedError(m)
}

func (e *ender) givenTwo(h messaging.BatchHandler) error {
	msgs := []*messaging.Message{e.message(), e.message()}
	if err := h.HandleBatch(e.Context(), msgs); err != nil {
		return err
	}
	return errors.Join(e.parkedError(msgs[0]), e.parkedError(msgs[1]))
}

// parkedError is why a message is parked, nil if it is not.
func (e *ender) parkedError(m *messaging.Message) error {
	var text string
	err := e.db.NewRaw("SELECT error_message FROM inbox_parked WHERE message_id = ?", m.ID).Scan(e.Context(), &text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	require.NoError(e, err)
	if strings.Contains(text, uow.ErrTransactionEnded.Error()) {
		return fmt.Errorf("%w: %s", uow.ErrTransactionEnded, text)
	}
	return errors.New(text)
}

// kinds are the kinds of units. Each returns what became of its unit.
var kinds = map[string]func(e *ender) error{
	"unit": func(e *ender) error {
		return e.UoW.Do(e.Context(), func(ctx context.Context, _ *uow.Unit) error { return e.call(ctx) })
	},
	"unit with a token": func(e *ender) error {
		return e.UoW.Do(e.Context(), func(ctx context.Context, u *uow.Unit) error {
			if err := e.call(ctx); err != nil {
				return err
			}
			_, err := u.Token(ctx)
			return err
		})
	},
	"begun unit": func(e *ender) error {
		tx, err := e.UoW.Begin(e.Context())
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := e.call(tx.Context()); err != nil {
			return err
		}
		return tx.Commit()
	},
	"function of On": func(e *ender) error {
		return e.UoW.Do(e.Context(), func(_ context.Context, u *uow.Unit) error {
			e.keys++
			a := &Order{ID: fmt.Sprint("on-", e.keys)}
			a.Record(ending{})
			u.Track(a)
			return nil
		})
	},
	"idempotency.Do": func(e *ender) error {
		e.keys++
		scope := idempotency.Scope{Tenant: "t1", Principal: "p", Method: "job", Path: "/job", Key: fmt.Sprint("key-", e.keys)}
		return e.UoW.Do(e.Context(), func(ctx context.Context, u *uow.Unit) error {
			_, err := idempotency.Do(ctx, e.Idempotency, u.DB(), scope, "do", func(ctx context.Context) (string, error) { return "done", e.call(ctx) })
			return err
		})
	},
	"httpmw.Idempotency":         func(e *ender) error { return e.request("key") },
	"httpmw.Idempotency, 422":    func(e *ender) error { return refused(e.request("key", "Refused")) },
	"httpmw.Idempotency, token":  func(e *ender) error { return e.request("token") },
	"httpmw.UnitOfWork":          func(e *ender) error { return e.request("unit") },
	"httpmw.UnitOfWork, 422":     func(e *ender) error { return refused(e.request("unit", "Refused")) },
	"a step of a leased request": func(e *ender) error { return e.request("leased") },
	"consumer":                   func(e *ender) error { return e.given(e.Inbox.Wrap("one", e.handler()), e.message()) },
	"consumer of batches": func(e *ender) error {
		h := e.Inbox.WrapBatch("batches", func(ctx context.Context, _ []*messaging.Message) error { return e.call(ctx) })
		return e.givenTwo(h)
	},
	"consumer of one by one in a batch": func(e *ender) error {
		h := e.Inbox.Wrap("several", e.handler()).(messaging.BatchHandler)
		return e.givenTwo(h)
	},
	"step of a leased consumer": func(e *ender) error {
		h := messaging.HandlerFunc(func(ctx context.Context, _ *messaging.Message) error {
			return inbox.StepInUnit(ctx, "step", func(ctx context.Context, _ *uow.Unit) error { return e.call(ctx) })
		})
		return e.given(e.Inbox.WrapLeased("leased", h), e.message())
	},
	"read-model": func(e *ender) error {
		return e.given(readmodel.New(e.Inbox, "read-model", e.handler()), e.message())
	},
	"parked message": func(e *ender) error {
		h := e.Inbox.Wrap("parked", e.handler(), inbox.StoreFirst())
		m := e.message()
		if err := h.Handle(e.Context(), m); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(e.Context())
		done := make(chan error, 1)
		go func() { done <- e.Inbox.RunParked(ctx) }()
		await.True(e, func() bool {
			var waits bool
			err := e.db.NewRaw("SELECT EXISTS (SELECT FROM inbox_parked WHERE error_message = '')").Scan(e.Context(), &waits)
			return err == nil && !waits
		}, "the parked message was handled")
		cancel()
		require.NoError(e, <-done)
		return e.parkedError(m)
	},
}

// ending is an event whose handler ends the transaction.
type ending struct{}

func (ending) EventType() string { return "order.ending" }
