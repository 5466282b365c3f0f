package oncetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/serve"
	"github.com/oncebox/oncebox/step"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// counter is a service that counts: a request stores an order, and a consumer an invoice for it.
type counter struct {
	*oncetest.Kit

	routes          func() http.Handler
	starts, handled int
}

// store stores an invoice.
type store func(ctx context.Context, u *uow.Unit, pool *bun.DB, id string) error

func byUnit(ctx context.Context, u *uow.Unit, _ *bun.DB, id string) error {
	_, err := u.DB().NewRaw("INSERT INTO invoices VALUES (?)", id).Exec(ctx)
	return err
}

func newCounter(t testing.TB, lease *httpmw.LeaseConfig, store store) *counter {
	t.Helper()
	c := &counter{}
	c.Kit, c.routes = oncetest.NewService(t, func(setup oncetest.Setup) (http.Handler, *oncebox.App, error) {
		c.starts++
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, nil, err
		}
		event.Register[Placed](app.Registry)
		event.Register[Invoiced](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, e Placed) error {
			c.handled++
			u := uow.MustFromContext(ctx)
			return errors.Join(store(ctx, u, setup.DB, e.ID), u.Add("invoice", Invoiced(e)))
		})
		app.Consume("order", "billing", router)
		anyone := func(*http.Request) (idempotency.Scope, error) { return idempotency.Anonymous("shop"), nil }
		once := httpmw.Idempotency(app.UoW, app.Idempotency, anyone, &httpmw.IdempotencyConfig{
			Required: true, Lease: lease, Telemetry: telemetry.Config{Logger: setup.Config.Telemetry.Logger},
		})
		routes := once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
				_, err := u.DB().NewRaw("INSERT INTO orders VALUES ('o-1')").Exec(ctx)
				return errors.Join(err, u.Add("order", Placed{"o-1"}))
			})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusCreated)
		}))
		_, err = setup.DB.Exec("CREATE TABLE IF NOT EXISTS orders (id text); CREATE TABLE IF NOT EXISTS invoices (id text)")
		return routes, app, err
	})
	return c
}

// post sends the request of a client. All requests have the same key, as the retries of one request have.
func (c *counter) post(t testing.TB) int {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
	r.Header.Set("Idempotency-Key", "key-1")
	w := httptest.NewRecorder()
	c.routes().ServeHTTP(w, r)
	t.Log(w.Code, w.Body)
	return w.Code
}

func (c *counter) count(t testing.TB, table string) (n int) {
	t.Helper()
	require.NoError(t, c.DB.NewRaw("SELECT count(*) FROM ?", bun.Ident(table)).Scan(t.Context(), &n))
	return n
}

// requireOnce demands that nothing was lost and nothing done twice.
func (c *counter) requireOnce(t testing.TB) {
	t.Helper()
	require.Equal(t, 1, c.count(t, "orders"))
	require.Equal(t, 1, c.count(t, "invoices"))
	oncetest.RequireEvents[Placed](c.Kit, 1)
	oncetest.RequireEvents[Invoiced](c.Kit, 1)
}

func TestCrashOfARequest(t *testing.T) {
	t.Parallel()
	for point, stored := range map[oncetest.Point]int{oncetest.BeforeCommit: 0, oncetest.AfterCommit: 1} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, nil, byUnit)
			c.CrashAt(point)
			require.Equal(t, http.StatusServiceUnavailable, c.post(t))
			require.Equal(t, stored, c.count(t, "orders"), "seen while the process is dead")
			require.Equal(t, http.StatusServiceUnavailable, c.post(t), "it stays dead, and says so at once")
			c.Drain()
			require.Equal(t, 2, c.starts)
			require.Equal(t, stored, c.count(t, "invoices"))
			require.Equal(t, http.StatusCreated, c.post(t))
			c.Drain()
			c.requireOnce(t)
		})
	}
}

// A process that died had claimed the key of the request. Nobody waits for its lease.
func TestCrashOfALeasedRequest(t *testing.T) {
	t.Parallel()
	c := newCounter(t, &httpmw.LeaseConfig{}, byUnit)
	c.CrashAt(oncetest.BeforeCommit)
	require.NotEqual(t, http.StatusCreated, c.post(t))
	c.Drain()
	require.Equal(t, http.StatusCreated, c.post(t))
	c.Drain()
	c.requireOnce(t)
}

func TestCrashOfRelayAndConsumer(t *testing.T) {
	t.Parallel()
	for point, handled := range map[oncetest.Point]int{
		oncetest.BeforePublish: 1, oncetest.AfterPublish: 1, oncetest.BeforeCommit: 2, oncetest.AfterCommit: 1, oncetest.BeforeAck: 1,
	} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			c := newCounter(t, nil, byUnit)
			require.Equal(t, http.StatusCreated, c.post(t))
			c.CrashAt(point)
			c.Drain()
			require.Equal(t, 2, c.starts)
			require.Equal(t, handled, c.handled)
			c.requireOnce(t)
		})
	}
}

// A process that died had taken the key of a parked message. Nobody waits for its lease.
func TestCrashOfAParkedMessage(t *testing.T) {
	t.Parallel()
	failed := false
	c := newCounter(t, nil, func(ctx context.Context, u *uow.Unit, pool *bun.DB, id string) error {
		if !failed {
			failed = true
			return errors.New("no ink")
		}
		return byUnit(ctx, u, pool, id)
	})
	require.Equal(t, http.StatusCreated, c.post(t))
	require.Len(t, c.DrainFailing(), 1)
	c.Advance(time.Hour)
	c.CrashAt(oncetest.BeforeCommit)
	c.Drain()
	require.Equal(t, 3, c.handled)
	c.requireOnce(t)
}

// The same holds for the lease of a handler without a transaction. A call whose result is stored is not made again.
func TestCrashOfALeasedHandler(t *testing.T) {
	t.Parallel()
	handled, paid, noted := 0, 0, 0
	kit := oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[Placed](app.Registry)
		router := messaging.NewRouter(app.Registry)
		messaging.Handle(router, func(ctx context.Context, _ Placed) error {
			handled++
			_, err := step.Call(ctx, "pay", func(context.Context, string) (string, error) {
				paid++
				return "paid", nil
			})
			if err != nil {
				return err
			}
			return inbox.StepInUnit(ctx, "note", func(context.Context, *uow.Unit) error { noted++; return nil })
		})
		app.Consume("order", "billing", router, inbox.Leased())
		return app, nil
	})
	for _, c := range []struct {
		point                oncetest.Point
		handled, paid, noted int
	}{
		{oncetest.AfterCall, 2, 2, 1},    // the result of "pay" is not stored
		{oncetest.BeforeCommit, 2, 1, 2}, // that of "note"
		{oncetest.AfterCommit, 2, 1, 1},  // that of "note"
		{oncetest.BeforeAck, 1, 1, 1},
	} {
		handled, paid, noted = 0, 0, 0
		kit.PublishFrom("sales", "order", Placed{"a"})
		kit.CrashAt(c.point)
		kit.Drain()
		require.Equal(t, []int{c.handled, c.paid, c.noted}, []int{handled, paid, noted}, c.point)
	}
}

// A step of a request under a lease has the same points. Its answer is stored without a unit of work: BeforeCommit is also before that.
func TestCrashOfTheStepsOfARequest(t *testing.T) {
	t.Parallel()
	paid, noted := 0, 0
	kit, web := oncetest.Serve(t, serve.Service{Source: "shop", Setup: func(_ context.Context, app *oncebox.App) (http.Handler, error) {
		pay := func(w http.ResponseWriter, r *http.Request) {
			call := func(context.Context, string) (int, error) {
				paid++
				return paid, nil
			}
			var err error
			if r.URL.Path == "/once" {
				_, err = idempotency.StepOnce(r.Context(), "pay", func(ctx context.Context) (int, error) { return call(ctx, "") })
			} else {
				_, err = step.Call(r.Context(), "pay", call)
			}
			if err == nil && r.URL.Path == "/noted" {
				err = app.UoW.Do(r.Context(), func(ctx context.Context, u *uow.Unit) error {
					_, err := idempotency.StepTx(ctx, u.DB(), "note", func(context.Context) (int, error) {
						noted++
						return noted, nil
					})
					return err
				})
			}
			if err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			w.WriteHeader(http.StatusOK)
		}
		return httpmw.Idempotency(app.UoW, app.Idempotency, httpmw.Anyone, &httpmw.IdempotencyConfig{Lease: &httpmw.LeaseConfig{}})(http.HandlerFunc(pay)), nil
	}})
	for n, c := range []struct {
		point       oncetest.Point
		path        string
		paid, noted int
	}{
		{oncetest.AfterCall, "/noted", 2, 1},
		{oncetest.BeforeCommit, "/noted", 1, 2},
		{oncetest.AfterCommit, "/noted", 1, 1},
		{oncetest.BeforeCommit, "/", 1, 0},     // of the answer
		{oncetest.BeforeCommit, "/once", 1, 0}, // of the begin, so the call was not made
	} {
		paid, noted = 0, 0
		key := fmt.Sprint("key-", n)
		kit.CrashAt(c.point)
		require.NotEqual(t, http.StatusOK, web.Send("POST", c.path, "", "Idempotency-Key", key).Code)
		kit.Drain()
		require.Equal(t, http.StatusOK, web.Send("POST", c.path, "", "Idempotency-Key", key).Code, c.point)
		require.Equal(t, []int{c.paid, c.noted}, []int{paid, noted}, c.point)
	}
}

// Each crash is of another start.
func TestCrashesOneAfterTheOther(t *testing.T) {
	t.Parallel()
	c := newCounter(t, nil, byUnit)
	for _, point := range []oncetest.Point{oncetest.BeforeAck, oncetest.AfterPublish, oncetest.BeforeCommit, oncetest.BeforeCommit} {
		c.CrashAt(point)
	}
	for range 2 {
		require.Equal(t, http.StatusServiceUnavailable, c.post(t))
		c.Drain()
	}
	require.Equal(t, http.StatusCreated, c.post(t))
	c.Drain()
	require.Equal(t, 5, c.starts)
	c.requireOnce(t)
}

// A service may commit something at its start, and die there, too.
func TestCrashAtTheStart(t *testing.T) {
	t.Parallel()
	starts := 0
	kit := oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		starts++
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		return app, app.UoW.Do(t.Context(), func(context.Context, *uow.Unit) error { return nil })
	})
	kit.CrashAt(oncetest.AfterCommit)
	kit.CrashAt(oncetest.AfterCommit)
	write := func() error {
		return kit.App.UoW.Do(t.Context(), func(ctx context.Context, u *uow.Unit) error {
			_, err := u.DB().ExecContext(ctx, "CREATE TABLE IF NOT EXISTS written ()")
			return err
		})
	}
	require.Error(t, write())
	kit.Drain()
	require.Equal(t, 3, starts)
	require.NoError(t, write())
}

// A crash shows a mistake of a service at the points where it matters. So the tests above can fail.
func TestCrashShowsMistakes(t *testing.T) {
	t.Parallel()
	for name, mistake := range map[string]struct {
		store store
		// invoices are how many there are after a crash at a point. 2 is for more than one: the relay, too, may not have come to an end.
		invoices map[oncetest.Point]int
	}{
		"the row is written by the pool": {
			func(ctx context.Context, _ *uow.Unit, pool *bun.DB, id string) error {
				_, err := pool.NewRaw("INSERT INTO invoices VALUES (?)", id).Exec(uow.Outside(ctx))
				return err
			},
			map[oncetest.Point]int{oncetest.BeforeCommit: 2, oncetest.AfterCommit: 1, oncetest.BeforeAck: 1},
		},
		"what was handled is forgotten": {
			func(ctx context.Context, u *uow.Unit, pool *bun.DB, id string) error {
				_, err := u.DB().NewRaw("DELETE FROM inbox").Exec(ctx)
				return errors.Join(err, byUnit(ctx, u, pool, id))
			},
			map[oncetest.Point]int{oncetest.BeforePublish: 1, oncetest.AfterPublish: 2, oncetest.AfterCommit: 2, oncetest.BeforeAck: 2},
		},
		"the row is written when the unit is over": {
			func(_ context.Context, u *uow.Unit, pool *bun.DB, id string) error {
				u.AfterCommit(func(ctx context.Context) {
					if _, err := pool.NewRaw("INSERT INTO invoices VALUES (?)", id).Exec(uow.Outside(ctx)); err != nil {
						t.Error(err)
					}
				})
				return nil
			},
			map[oncetest.Point]int{oncetest.BeforeCommit: 1, oncetest.AfterCommit: 0},
		},
	} {
		for point, invoices := range mistake.invoices {
			t.Run(name+"/"+string(point), func(t *testing.T) {
				t.Parallel()
				c := newCounter(t, nil, mistake.store)
				require.Equal(t, http.StatusCreated, c.post(t))
				c.CrashAt(point)
				c.Drain()
				require.Equal(t, invoices, min(2, c.count(t, "invoices")))
			})
		}
	}
}

// unreached is a test whose end can be looked at.
type unreached struct {
	testing.TB

	ends []func()
	said string
}

func (u *unreached) Cleanup(fn func())                 { u.ends = append(u.ends, fn) }
func (u *unreached) Errorf(format string, args ...any) { u.said += fmt.Sprintf(format, args...) }

func TestWhatNeverCame(t *testing.T) {
	t.Parallel()
	u := &unreached{TB: t}
	s := newShop(u, never)
	s.CrashAt(oncetest.AfterPublish)
	s.FailNextPublish(messaging.ErrBrokerDown)
	s.Drain()
	require.Empty(t, u.said)
	for _, end := range slices.Backward(u.ends) {
		end()
	}
	require.Contains(t, u.said, `CrashAt: the service never came to ["after publish"]: call CrashAt before the request, or the Drain`)
	require.Contains(t, u.said, "FailNextPublish: 1 of its errors were not used: nothing was published after it.")
	require.NotContains(t, u.said, "%!")
}

func TestCrashMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(k *oncetest.Kit)
		says string
	}{
		"no point": {
			func(k *oncetest.Kit) { k.CrashAt("midnight") },
			`CrashAt("midnight"): there is no such point: use a constant of type oncetest.Point`,
		},
		"built once": {
			func(k *oncetest.Kit) {
				k.CrashAt(oncetest.BeforeCommit)
				err := k.App.UoW.Do(t.Context(), func(context.Context, *uow.Unit) error { return nil })
				require.ErrorContains(t, err, `died at CrashAt("before commit"): call Drain, which starts the service anew`)
				k.Drain()
			},
			"start the service anew after its crash: the service could not be built: again? (the function given to New is called for each start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{TB: t}
			starts := 0
			k := oncetest.New(f, func(setup oncetest.Setup) (*oncebox.App, error) {
				if starts++; starts > 1 {
					return nil, errors.New("again?")
				}
				return oncebox.New(setup.DB, setup.Broker, setup.Config)
			})
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.do(k)
			}()
			<-ended
			require.Contains(t, f.said, c.says)
			require.NotContains(t, f.said, "%!")
		})
	}
}

// A key expires by Advance also where its answer was asked for again.
func TestAdvanceExpiresAKeyThatWasReplayed(t *testing.T) {
	t.Parallel()
	c := newCounter(t, nil, byUnit)
	for range 3 {
		require.Equal(t, http.StatusCreated, c.post(t))
	}
	require.Equal(t, 1, c.count(t, "orders"))
	c.Advance(25 * time.Hour)
	require.Equal(t, http.StatusCreated, c.post(t))
	require.Equal(t, 2, c.count(t, "orders"))
}
