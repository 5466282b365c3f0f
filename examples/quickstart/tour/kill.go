package tour

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/uow"
)

// The story starts this program again, four times, with these variables. Such a child places an order and kills itself in the middle.
const (
	scenarioVar = "QUICKSTART_SCENARIO" // how it places the order
	databaseVar = "QUICKSTART_DATABASE" // the story's database
	brokerVar   = "QUICKSTART_BROKER"   // where the story's broker takes events
)

// scenario is how an order is placed, and when the process is killed.
type scenario struct {
	how, killed, customer string
	place                 func(*placer, context.Context, *Order) error
}

func scenarios() []scenario {
	return []scenario{
		{"commit, then publish", "in between", "dan", (*placer).commitThenPublish},
		{"publish, then commit", "in between", "eva", (*placer).publishThenCommit},
		{"with the outbox", "before COMMIT", "fay", (*placer).outboxKilledBefore},
		{"with the outbox", "after COMMIT", "gus", (*placer).outboxKilledAfter},
	}
}

// order is the order that is placed.
func (c scenario) order() *Order { return Place("o-"+c.customer, c.customer, 100) }

// placer is the child's service.
type placer struct {
	db  *bun.DB
	app *oncebox.App
}

// ---- the two dual writes ----

func (p *placer) commitThenPublish(ctx context.Context, o *Order) error {
	if _, err := p.db.NewInsert().Model(o).Exec(ctx); err != nil {
		return err
	}
	die()
	return publish(ctx, o)
}

func (p *placer) publishThenCommit(ctx context.Context, o *Order) error {
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.NewInsert().Model(o).Exec(ctx); err != nil {
		return err
	}
	if err := publish(ctx, o); err != nil {
		return err
	}
	die()
	return tx.Commit()
}

// ---- one write: the event is a row of the same transaction, and a relay publishes it later ----

func (p *placer) outboxKilledBefore(ctx context.Context, o *Order) error {
	return p.app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		if err := u.Save(ctx, o); err != nil {
			return err
		}
		die()
		return nil
	})
}

func (p *placer) outboxKilledAfter(ctx context.Context, o *Order) error {
	err := p.app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error { return u.Save(ctx, o) })
	if err == nil {
		die()
	}
	return err
}

// die kills this process as kill -9 does: deferred functions do not run.
func die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}

// publish hands the order's event to the broker of the story, without an outbox.
func publish(ctx context.Context, o *Order) error {
	payload, err := json.Marshal(OrderPlaced{OrderID: o.ID, Customer: o.Customer, TotalCents: o.TotalCents})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(brokerVar), bytes.NewReader(payload)) //nolint:gosec // the parent set it
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req) //nolint:gosec // the same
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the broker answered %s", resp.Status)
	}
	return nil
}

// serveBroker lets other processes publish to a topic of the story's broker, by HTTP.
func serveBroker(broker *gate, orders string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		payload, err := io.ReadAll(r.Body)
		var placed OrderPlaced
		if err == nil {
			err = json.Unmarshal(payload, &placed)
		}
		if err == nil {
			err = broker.Publish(r.Context(), []event.Envelope{{
				ID: uuid.NewString(), Source: service, TenantID: "default", Topic: orders, Type: placed.EventType(),
				AggregateType: topic, AggregateID: placed.OrderID, AggregateVersion: 1, RoutingKey: placed.OrderID,
				OccurredAt: time.Now(), ContentType: "application/json", Payload: payload,
			}})
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	}))
}

// isChild reports whether the story has started this process to have it killed.
func isChild() bool { return os.Getenv(scenarioVar) != "" }

// child runs in a child process. It never returns nil.
func child(ctx context.Context) error {
	unused := memory.New(&memory.Config{Telemetry: silent()}) // this process does not relay
	db, app, err := open(ctx, os.Getenv(databaseVar), unused)
	if err != nil {
		return err
	}
	for _, c := range scenarios() {
		if c.customer == os.Getenv(scenarioVar) {
			return errors.Join(fmt.Errorf("%s: the process was not killed", c.how), c.place(&placer{db, app}, ctx, c.order()))
		}
	}
	return fmt.Errorf("%s=%s: no such scenario", scenarioVar, os.Getenv(scenarioVar))
}

// kill starts a child and returns when it was killed.
func (s *story) kill(ctx context.Context, c scenario, broker string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // this program itself
	cmd.Env = append(os.Environ(), scenarioVar+"="+c.customer, databaseVar+"="+s.database, brokerVar+"="+broker)
	said, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); ended && len(said) == 0 {
		return nil
	}
	return errors.Join(err, fmt.Errorf("%s: the process that was to be killed says: %s", c.how, said))
}
