package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/uow"
)

// Not oncetest.Main: this one fails if goroutines are left, also goroutines of a service that died.
func TestMain(m *testing.M) { pgtest.Main(m) }

type Placed struct{ ID string }

func (Placed) EventType() string { return "order.placed" }

type Invoiced struct{ ID string }

func (Invoiced) EventType() string { return "invoice.sent" }

// shop writes an invoice for each order, and an event about it.
type shop struct {
	*oncetest.Kit

	pool *bun.DB             // the service's
	fail func(try int) error // what the handler returns for its nth call
	n    int
}

// newShop is the service as production would build it.
func newShop(t testing.TB, fail func(try int) error) *shop {
	t.Helper()
	s := &shop{fail: fail}
	s.Kit = oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[Placed](app.Registry)
		event.Register[Invoiced](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, e Placed) error {
			s.n++
			if _, err := app.UoW.DB(ctx).NewRaw("INSERT INTO invoices VALUES (?)", e.ID).Exec(ctx); err != nil {
				return err
			}
			u := uow.MustFromContext(ctx)
			return errors.Join(u.Add("invoice", Invoiced(e)), s.fail(s.n))
		})
		app.Consume("order", "billing", router)
		s.pool = setup.DB
		_, err = setup.DB.Exec("CREATE TABLE IF NOT EXISTS invoices (id text)")
		return app, err
	})
	return s
}

func never(int) error { return nil }

func (s *shop) place(t testing.TB, id string, opts ...event.AddOption) {
	t.Helper()
	require.NoError(t, s.App.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
		return u.Add("order", Placed{id}, opts...)
	}))
}

func (s *shop) invoices(t testing.TB) (n int) {
	t.Helper()
	require.NoError(t, s.DB.NewRaw("SELECT count(*) FROM invoices").Scan(t.Context(), &n))
	return n
}

func TestDrain(t *testing.T) {
	t.Parallel()
	s := newShop(t, never)
	s.Drain() // with nothing to do it returns
	s.place(t, "a")
	s.place(t, "b")
	require.Equal(t, "a", oncetest.RequireEvent[Placed](s.Kit).ID)
	oncetest.RequireNoEvent[Invoiced](s.Kit)
	s.Drain()
	require.Equal(t, 2, s.invoices(t))
	oncetest.RequireEvents[Invoiced](s.Kit, 2)
	require.Equal(t, "b", oncetest.RequireEvent(s.Kit, func(e Invoiced) bool { return e.ID == "b" }).ID)
	var left int
	require.NoError(t, s.DB.NewRaw("SELECT count(*) FROM outbox_unsent").Scan(t.Context(), &left))
	require.Zero(t, left, "what the handler emitted was published, too")
}

// A service that deletes what it has published keeps it in a test, or RequireNoEvent would see none.
func TestPublishedEventsStay(t *testing.T) {
	t.Parallel()
	k := oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		setup.Config.Outbox.Retention = outbox.NoRetention
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err == nil {
			event.Register[Placed](app.Registry)
		}
		return app, err
	})
	require.NoError(t, k.App.UoW.Do(t.Context(), func(_ context.Context, u *uow.Unit) error { return u.Add("order", Placed{"a"}) }))
	k.Drain()
	require.Equal(t, "a", oncetest.RequireEvent[Placed](k).ID)
}

// A message of Redeliver does reach the handler, once the inbox has forgotten that it was handled.
func TestRedeliverReachesTheHandler(t *testing.T) {
	t.Parallel()
	s := newShop(t, never)
	s.place(t, "a")
	s.Drain()
	_, err := s.DB.Exec("DELETE FROM inbox")
	require.NoError(t, err)
	s.Redeliver()
	s.Drain()
	require.Equal(t, 2, s.invoices(t))
}

func TestFailedMessageIsTriedAgainAfterAdvance(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(try int) error {
		if try == 1 {
			return errors.New("no ink")
		}
		return nil
	})
	s.place(t, "a")
	failures := s.DrainFailing()
	require.Len(t, failures, 1)
	require.Equal(t, "billing", failures[0].Consumer)
	require.Contains(t, failures[0].Error, "no ink")
	require.False(t, failures[0].Dead)
	s.Drain()
	require.Zero(t, s.invoices(t), "its pause is not over")
	s.Advance(time.Hour)
	s.Drain()
	require.Equal(t, 1, s.invoices(t))
}

func TestDeadLetterIsAFailure(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(int) error { return messaging.Permanent(errors.New("never")) })
	s.place(t, "a")
	failures := s.DrainFailing()
	require.Len(t, failures, 1)
	require.True(t, failures[0].Dead)
	require.Empty(t, s.DrainFailing(), "it was told")
}

func TestAdvanceMakesADelayedEventDue(t *testing.T) {
	t.Parallel()
	s := newShop(t, never)
	s.place(t, "a", event.WithNotBefore(time.Now().Add(24*time.Hour)))
	s.Advance(23 * time.Hour)
	s.Drain()
	require.Zero(t, s.invoices(t))
	s.Advance(2 * time.Hour)
	s.Drain()
	require.Equal(t, 1, s.invoices(t))
}

func TestFailNextPublish(t *testing.T) {
	t.Parallel()
	s := newShop(t, never)
	s.place(t, "a")
	s.FailNextPublish(messaging.ErrBrokerDown, errors.New("too large"))
	failures := s.DrainFailing()
	require.Len(t, failures, 1)
	require.Empty(t, failures[0].Consumer)
	require.Contains(t, failures[0].Error, "too large")
	require.Zero(t, s.invoices(t))
	s.Advance(time.Hour)
	s.Drain()
	require.Equal(t, 1, s.invoices(t))
}

// failing is a test that may fail without failing the test which uses it.
type failing struct {
	testing.TB

	said string
}

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestMessages(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(s *shop)
		says []string
	}{
		"drain": {
			func(s *shop) { s.Drain() },
			[]string{
				"Drain: 1 failed:\n  consumer billing: order.placed ", "attempt 1, tried again after a pause: ", "no ink",
				"call DrainFailing", "Advance(1h0m0s)",
			},
		},
		"no such event": {
			func(s *shop) { oncetest.RequireEvent[Invoiced](s.Kit) },
			[]string{"RequireEvent[oncetest_test.Invoiced]: there is none; 1 events were recorded:\n  order.placed ", "(topic order, NEW): ", `"a"`},
		},
		"another number": {
			func(s *shop) { oncetest.RequireEvents[Placed](s.Kit, 2) },
			[]string{"RequireEvents[oncetest_test.Placed]: there are 1, not 2; 1 events were recorded:\n  order.placed "},
		},
		"none accepted": {
			func(s *shop) { oncetest.RequireEvent(s.Kit, func(e Placed) bool { return e.ID == "b" }) },
			[]string{"there is none that the function accepts; 1 events"},
		},
		"an event": {
			func(s *shop) { oncetest.RequireNoEvent[Placed](s.Kit) },
			[]string{"RequireNoEvent[oncetest_test.Placed]: there are 1:\n  order.placed "},
		},
		"redelivered too early": {
			func(s *shop) { s.Redeliver() },
			[]string{"nothing was published to the topic of a consumer: call Drain before"},
		},
		"redelivered unknown": {
			func(s *shop) { s.Redeliver("x") },
			[]string{`no consumer has a topic with the events ["x"]`},
		},
		"back in time": {
			func(s *shop) { s.Advance(-time.Second) },
			[]string{"Advance(-1s): time goes forward only"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{TB: t}
			s := newShop(f, func(int) error { return errors.New("no ink") })
			s.place(t, "a")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.do(s)
			}()
			<-ended
			for _, text := range c.says {
				require.Contains(t, f.said, text)
			}
			require.NotContains(t, f.said, "%!")
		})
	}
}

// ONCEBOX_DATABASE_URL goes before DATABASE_URL, as it does for config.FromEnv.
func TestServerOfTheEnvironment(t *testing.T) {
	t.Parallel()
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDrain$")
	test.Env = append(os.Environ(), "ONCEBOX_DATABASE_URL="+pgtest.URL(t), "DATABASE_URL=postgres://nobody@127.0.0.1:1/none")
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "PostgreSQL: ONCEBOX_DATABASE_URL, ")
}

// A service that takes the pool for the unit is wrong only when the unit is rolled back. The kit reports it at once.
func TestThePoolIsRefusedWithinAUnit(t *testing.T) {
	t.Parallel()
	s := newShop(t, never)
	err := s.App.UoW.Do(t.Context(), func(ctx context.Context, _ *uow.Unit) error {
		_, err := s.pool.ExecContext(ctx, "INSERT INTO invoices VALUES ('a')")
		return err
	})
	require.ErrorIs(t, err, uow.ErrPool)
	require.Zero(t, s.invoices(t))
}
