package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/internal/pgtest"
	"github.com/oncebox/oncebox/internal/pulsartest"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/brokers"
	"github.com/oncebox/oncebox/messaging/pulsar"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

func TestMain(m *testing.M) { pgtest.Main(m, pulsartest.Stop) }

type orderPlaced struct{ Order string }

func (orderPlaced) EventType() string { return "order.placed" }

// shop is a service with an outbox and a consumer "billing". While it is broken, its handler refuses each message for good;
// while it is failing, the message is tried again.
type shop struct {
	*oncetest.Kit
	t       *testing.T
	broken  atomic.Bool
	failing atomic.Bool
	billed  atomic.Int64
	refuse  func(*messaging.Message) error // nil: nothing
	called  cli.Program                    // the name by which the command is called; "": oncebox
	mu      sync.Mutex
	seen    []string // the payloads that were billed
}

// errCurrency holds what a terminal would obey.
var errCurrency = errors.New("unknown currency \x1b[31mXYZ\x1b[0m\r\nDONE")

func newShop(t *testing.T, configure ...func(*config.Config)) *shop {
	t.Helper()
	s := &shop{t: t}
	s.Kit = oncetest.New(t, func(setup oncetest.Setup) (*oncebox.App, error) {
		for _, change := range configure {
			change(&setup.Config)
		}
		app, err := oncebox.New(setup.DB, setup.Broker, setup.Config)
		if err != nil {
			return nil, err
		}
		event.Register[orderPlaced](app.Registry)
		app.Consume("order", "billing", messaging.HandlerFunc(func(_ context.Context, m *messaging.Message) error {
			if s.broken.Load() {
				return messaging.Permanent(errCurrency)
			}
			if s.failing.Load() {
				return errors.New("the bank is away")
			}
			if s.refuse != nil {
				if err := s.refuse(m); err != nil {
					return err
				}
			}
			s.billed.Add(1)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen = append(s.seen, string(m.Payload))
			return nil
		}))
		return app, nil
	})
	return s
}

func (s *shop) place(order string) {
	s.t.Helper()
	s.placeFor("", order)
}

// placeFor places an order of a tenant, "" for the default one.
func (s *shop) placeFor(tenant, order string) {
	s.t.Helper()
	require.NoError(s.t, s.App.UoW.Do(s.t.Context(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("order", orderPlaced{order}, event.WithOrderingKey(order), event.WithTenantID(tenant))
	}))
}

// killed has an event that no broker takes, and a message that its consumer has given up.
func (s *shop) killed() {
	s.t.Helper()
	s.broken.Store(true)
	s.place("poison message")
	require.Len(s.t, s.DrainFailing(), 1)
	s.FailNextPublish(messaging.Permanent(errors.New("no schema")))
	s.place("poison event")
	require.Len(s.t, s.DrainFailing(), 1)
	s.broken.Store(false)
}

// countedSince puts what operators have done five minutes back, so that the broker has counted since.
func (s *shop) countedSince() {
	s.t.Helper()
	s.exec("UPDATE oncebox_audit SET at = at - interval '5 minutes'")
}

// answer is what a command has done.
type answer struct {
	code      int
	out, errs string
}

// oncebox runs a command on the tables of the shop.
func (s *shop) oncebox(args ...string) answer {
	s.t.Helper()
	return s.at(&cli.Terminal{}, args)
}

// asked runs a command at a terminal, with the answer to its question.
func (s *shop) asked(reply string, args ...string) answer {
	s.t.Helper()
	return s.at(&cli.Terminal{In: strings.NewReader(reply), Asks: true, Shows: true}, args)
}

func (s *shop) at(t *cli.Terminal, args []string) answer {
	s.t.Helper()
	return called(s.t.Context(), s.called, t, append([]string{"--database-url", pgtest.URL(s.t), "--schema", s.Schema}, args...))
}

func command(t *testing.T, at *cli.Terminal, args ...string) answer {
	t.Helper()
	return commandWithin(t.Context(), at, args...)
}

func commandWithin(ctx context.Context, at *cli.Terminal, args ...string) answer {
	return called(ctx, "", at, args)
}

// called runs a command of the program under a name.
func called(ctx context.Context, as cli.Program, at *cli.Terminal, args []string) answer {
	var out, errs bytes.Buffer
	at.Out, at.Errs = &out, &errs
	code := run(ctx, at, []brokers.Kind{pulsar.Kind()}, append([]string{as.Name()}, args...))
	return answer{code, out.String(), errs.String()}
}

// runPulsar runs a command of the program that is built with Pulsar.
func runPulsar(ctx context.Context, at *cli.Terminal, args []string) int {
	return run(ctx, at, []brokers.Kind{pulsar.Kind()}, append([]string{"oncebox"}, args...))
}

// document reads what a command has printed as JSON.
func document[T any](t *testing.T, a answer) (v T) {
	t.Helper()
	require.Zero(t, a.code, a.errs)
	require.NoError(t, json.Unmarshal([]byte(a.out), &v), a.out)
	return v
}

// list reads a list that a command has printed as JSON, whatever its exit code is.
func list[T any](t *testing.T, a answer) (v []T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.out), &v), a.errs)
	return v
}
