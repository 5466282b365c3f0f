package tour

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
)

// story plays the users of the service, and prints the effects.
type story struct {
	out      io.Writer
	db       *bun.DB
	app      *oncebox.App
	broker   *gate
	consumer *spending
	database string
	url      string
}

func (s *story) sayf(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.killed, s.deliveredTwice, s.sameKeyTwice, s.handlerFails, s.refused, s.printRows,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) killed(ctx context.Context) error {
	s.sayf(`
1. Four processes place an order, and each is killed (kill -9) in the middle.
   A service that stores an order and announces it to others writes twice: to the database and to the broker. That is a dual write.
   With an outbox it writes once: the event is a row of the same transaction. A relay, in this process or another one,
   publishes the rows that are committed.
`)
	broker := serveBroker(s.broker, s.app.UoW.Topic(topic))
	defer broker.Close()
	for _, c := range scenarios() {
		if err := s.kill(ctx, c, broker.URL); err != nil {
			return err
		}
	}
	if err := errors.Join(s.spent(ctx, "eva", 100), s.spent(ctx, "gus", 100)); err != nil {
		return err
	}
	var rows [][]string
	for _, c := range scenarios() {
		stored, err := s.db.NewSelect().Model((*Order)(nil)).Where("id = ?", c.order().ID).Exists(ctx)
		if err != nil {
			return err
		}
		published := slices.ContainsFunc(s.broker.messages(), func(e event.Envelope) bool { return e.AggregateID == c.order().ID })
		rows = append(rows, []string{c.how, c.killed, yesNo(stored), yesNo(published), verdict(stored, published)})
	}
	return s.printTable([]string{"THE PROCESS DOES", "KILLED", "ORDER", "EVENT", "SO"}, rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func verdict(stored, published bool) string {
	switch {
	case stored && !published:
		return "the event is LOST: no other service will ever know of the order"
	case !stored && published:
		return "the event is FALSE: others count an order that is not there"
	case stored:
		return "both are there: another process has published the event"
	default:
		return "nothing has happened, and the client may try again"
	}
}

func (s *story) deliveredTwice(ctx context.Context) error {
	s.sayf("\n2. An event is published a second time, as it happens after a crash.")
	messages := s.broker.messages()
	if err := s.broker.Publish(ctx, messages[len(messages)-1:]); err != nil { // gus
		return err
	}
	// An order follows, so that there is something to wait for. What gus has spent is looked at again at the end.
	if err := s.post(ctx, "o-0", "key-0", `{"customer":"zoe","total_cents":1}`); err != nil {
		return err
	}
	if err := errors.Join(s.spent(ctx, "zoe", 1), s.spent(ctx, "gus", 100)); err != nil {
		return err
	}
	s.sayf("   The consumer keeps an inbox: a table of the messages that it has handled. Gus's order was counted once.")
	return nil
}

func (s *story) sameKeyTwice(ctx context.Context) error {
	s.sayf("\n3. A client has got no answer, and sends its request again with the same Idempotency-Key.")
	for range 2 {
		if err := s.post(ctx, "o-1", "key-1", `{"customer":"ann","total_cents":1000}`); err != nil {
			return err
		}
	}
	if err := s.spent(ctx, "ann", 1000); err != nil {
		return err
	}
	s.sayf("   One order and one event: the answer was stored in the transaction of the order.")
	return nil
}

func (s *story) handlerFails(ctx context.Context) error {
	s.sayf("\n4. The consumer's handler fails twice, after its statement ran.")
	s.consumer.failures.Store(2)
	if err := s.post(ctx, "o-2", "key-2", `{"customer":"bob","total_cents":500}`); err != nil {
		return err
	}
	if err := s.spent(ctx, "bob", 500); err != nil {
		return err
	}
	s.sayf("   Both times its work was rolled back. The third try was counted: bob has spent 500 cents.")
	return nil
}

func (s *story) refused(ctx context.Context) error {
	s.sayf("\n5. The broker refuses an event for good.")
	s.broker.refuse(func(e event.Envelope) error {
		if e.AggregateID == "o-3" {
			return messaging.Permanent(errors.New("no schema for this event"))
		}
		return nil
	})
	if err := s.post(ctx, "o-3", "key-3", `{"customer":"cid","total_cents":250}`); err != nil {
		return err
	}
	var dead []outbox.DeadLetter
	if err := s.await(ctx, "a dead letter", func() (done bool, err error) {
		dead, err = s.app.Outbox.Dead().List(ctx, operator.DeadFilter{}, nil, 1)
		return len(dead) == 1, err
	}); err != nil {
		return err
	}
	s.sayf("   The event is kept as a dead letter (%s). Other orders go on.", dead[0].Error)
	s.broker.refuse(nil)
	if err := s.app.Outbox.Dead().Replay(ctx, dead[0].ID, operator.By{Actor: service, Reason: "the broker was mended"}); err != nil {
		return err
	}
	if err := s.spent(ctx, "cid", 250); err != nil {
		return err
	}
	s.sayf("   The broker was mended and the event replayed: cid has spent 250 cents.")
	return nil
}

func (s *story) printRows(ctx context.Context) error {
	if err := s.spent(ctx, "gus", 100); err != nil {
		return err
	}
	s.sayf("\nWhat is in the tables now. The orders of dan and eva were made without the outbox: dan's is not counted, eva's is counted and not there.")
	for _, table := range []struct{ title, query string }{
		{"orders", `SELECT id, customer, total_cents FROM orders ORDER BY id`},
		{"what the consumer has counted", `SELECT customer, orders, cents FROM spending ORDER BY customer`},
		{"the outbox", `SELECT event_type, aggregate_id, status, retry_count FROM oncebox.outbox_messages ORDER BY sequence`},
		{"the inbox", `SELECT consumer, message_key::text AS message FROM oncebox.inbox ORDER BY processed_at`},
		{"answers to requests", `SELECT status, convert_from(body, 'UTF8') AS answer FROM oncebox.idempotency_keys ORDER BY completed_at`},
	} {
		if err := s.printQuery(ctx, table.title, table.query); err != nil {
			return err
		}
	}
	return nil
}

// post places an order and says what was answered.
func (s *story) post(ctx context.Context, order, key, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/orders/"+order, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	answer = bytes.TrimSpace(answer) // JSON's encoder ends it with a line break
	note := ""
	if resp.Header.Get("Idempotent-Replayed") != "" {
		note = "  (the stored answer)"
	}
	s.sayf("   POST /orders/%s  Idempotency-Key: %s  ->  %d %s%s", order, key, resp.StatusCode, answer, note)
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("POST /orders/%s: %s: %s", order, resp.Status, answer)
	}
	return nil
}

// spent waits until one order of the customer was counted, and fails if more ever is.
func (s *story) spent(ctx context.Context, customer string, cents int64) error {
	return s.await(ctx, "the read model", func() (bool, error) {
		var row struct {
			Orders int
			Cents  int64
		}
		err := s.db.NewRaw(`SELECT coalesce(sum(orders), 0) AS orders, coalesce(sum(cents), 0) AS cents FROM spending
			WHERE customer = ?`, customer).Scan(ctx, &row)
		if row.Orders > 1 || row.Cents > cents {
			return false, fmt.Errorf("%s was counted twice: %d orders, %d cents", customer, row.Orders, row.Cents)
		}
		return row.Orders == 1 && row.Cents == cents, err
	})
}

// await looks again and again, for half a minute at the most.
func (*story) await(ctx context.Context, what string, look func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}
