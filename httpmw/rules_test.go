package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/uow"
)

// paid is an event that a rule looks at.
type paid struct{}

func (paid) EventType() string { return "account.paid" }

type payer struct{ event.Recorder }

func (*payer) AggregateType() string   { return "payer" }
func (*payer) AggregateID() string     { return "1" }
func (*payer) AggregateVersion() int64 { return 0 }

// What a rule says comes back to the handler, as it does without a middleware: the answer is the handler's.
func TestRuleRefusesWhileTheHandlerCanAnswer(t *testing.T) {
	t.Parallel()
	errLimit := errors.New("over the limit")
	for name, c := range map[string]struct {
		mount func(*service, http.Handler) http.Handler
		runs  int64 // of two requests
	}{
		"Idempotency": {func(s *service, h http.Handler) http.Handler { return s.middleware(h) }, 1},
		"UnitOfWork":  {func(s *service, h http.Handler) http.Handler { return httpmw.UnitOfWork(s.units)(h) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			uow.On(s.units, func(context.Context, *uow.Unit, paid) error { return errLimit })
			s.serve(c.mount(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := s.units.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
					p := &payer{}
					p.Record(paid{})
					u.Track(p)
					_, err := u.DB().ExecContext(ctx, "INSERT INTO payments DEFAULT VALUES")
					return err
				})
				if !errors.Is(err, errLimit) {
					w.WriteHeader(http.StatusCreated)
					return
				}
				http.Error(w, "over the limit", http.StatusUnprocessableEntity)
			})))
			for range 2 {
				got := s.post("k", "{}")
				require.Equal(t, http.StatusUnprocessableEntity, got.status, got.body)
			}
			require.Equal(t, c.runs, s.runs.Load())
			require.Zero(t, s.payments())
		})
	}
}
