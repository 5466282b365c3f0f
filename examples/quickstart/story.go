package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/messaging/memory"
	"github.com/oncebox/oncebox/outbox"
)

// story does to the service what the world does, and tells what comes of it.
type story struct {
	db       *bun.DB
	app      *oncebox.App
	broker   *memory.Broker
	consumer *spending
	url      string
}

func (s *story) tell(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.sameKeyTwice, s.deliveredTwice, s.handlerFails, s.poison, s.printRows,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) sameKeyTwice(ctx context.Context) error {
	fmt.Println("\n1. An order is placed twice with one Idempotency-Key.")
	for range 2 {
		if err := s.post(ctx, "o-1", "key-1", `{"customer":"ann","total_cents":1000}`); err != nil {
			return err
		}
	}
	if err := s.spent(ctx, "ann", 1, 1000); err != nil {
		return err
	}
	fmt.Println("   One order, one event: it went through the outbox to the broker, and ann has spent 1000 cents.")
	return nil
}

func (s *story) deliveredTwice(ctx context.Context) error {
	fmt.Println("\n2. The broker delivers the message a second time.")
	id := s.broker.Messages("order")[0].ID
	if err := s.broker.Redeliver("spending", "order", id); err != nil {
		return err
	}
	// Another order of hers follows, so that there is something to wait for. The sums are looked at again at the end.
	if err := s.post(ctx, "o-1b", "key-1b", `{"customer":"ann","total_cents":1}`); err != nil {
		return err
	}
	if err := s.spent(ctx, "ann", 2, 1001); err != nil {
		return err
	}
	fmt.Println("   The inbox knew it: ann's first order was counted once.")
	return nil
}

func (s *story) handlerFails(ctx context.Context) error {
	fmt.Println("\n3. The handler fails twice, after its statement ran.")
	s.consumer.failures.Store(2)
	if err := s.post(ctx, "o-2", "key-2", `{"customer":"bob","total_cents":500}`); err != nil {
		return err
	}
	if err := s.spent(ctx, "bob", 1, 500); err != nil {
		return err
	}
	fmt.Println("   Both times its work was rolled back, the third try was counted: bob has spent 500 cents.")
	return nil
}

func (s *story) poison(ctx context.Context) error {
	fmt.Println("\n4. The broker refuses an event for good.")
	s.broker.Refuse(func(e event.Envelope) error {
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
		dead, err = s.app.Outbox.Dead(ctx, outbox.DeadFilter{}, nil, 1)
		return len(dead) == 1, err
	}); err != nil {
		return err
	}
	fmt.Printf("   %s of %s is DEAD: %s. Everything else goes on.\n", dead[0].Type, dead[0].AggregateID, dead[0].Error)
	s.broker.Refuse(nil)
	if err := s.app.Outbox.Replay(ctx, dead[0].ID, outbox.By{Actor: "quickstart", Reason: "the broker was mended"}); err != nil {
		return err
	}
	if err := s.spent(ctx, "cid", 1, 250); err != nil {
		return err
	}
	fmt.Println("   The broker was mended and the event replayed: cid has spent 250 cents.")
	return nil
}

func (s *story) printRows(ctx context.Context) error {
	if err := s.spent(ctx, "ann", 2, 1001); err != nil {
		return err
	}
	fmt.Println("\nThe rows:")
	for _, q := range []string{
		`SELECT id, customer, total_cents FROM orders ORDER BY id`,
		`SELECT sequence, event_type, aggregate_id, status, retry_count FROM outbox_messages ORDER BY sequence`,
		`SELECT consumer, left(message_key::text, 13) AS message, source FROM inbox ORDER BY processed_at`,
		`SELECT status, convert_from(body, 'UTF8') AS answer FROM idempotency_keys ORDER BY completed_at`,
		`SELECT customer, orders, cents FROM spending ORDER BY customer`,
	} {
		if err := s.print(ctx, q); err != nil {
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
	fmt.Printf("   POST /orders/%s  Idempotency-Key: %s  ->  %d %s%s\n", order, key, resp.StatusCode, answer, note)
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("POST /orders/%s: %s: %s", order, resp.Status, answer)
	}
	return nil
}

// spent waits until the read model shows these figures, and fails if it ever shows more.
func (s *story) spent(ctx context.Context, customer string, orders int, cents int64) error {
	return s.await(ctx, "the read model", func() (bool, error) {
		var row struct {
			Orders int
			Cents  int64
		}
		err := s.db.NewRaw(`SELECT coalesce(sum(orders), 0) AS orders, coalesce(sum(cents), 0) AS cents FROM spending
			WHERE customer = ?`, customer).Scan(ctx, &row)
		if row.Orders > orders || row.Cents > cents {
			return false, fmt.Errorf("%s was counted twice: %d orders, %d cents", customer, row.Orders, row.Cents)
		}
		return row.Orders == orders && row.Cents == cents, err
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
