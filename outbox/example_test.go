package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
)

// Pages of docs quote parts of this file, and a test compares them.

func ExampleStore_Dead() {
	list := func(ctx context.Context, store *outbox.Store) error {
		filter := operator.DeadFilter{TenantID: "acme", Topic: "order", Error: "no schema"}
		page, err := store.Dead().List(ctx, filter, nil, 100)
		for err == nil && len(page) > 0 {
			for _, d := range page {
				fmt.Println(d.DiedAt, d.ID, d.Type, d.Key, d.RetryCount, d.Error)
			}
			page, err = store.Dead().List(ctx, filter, &page[len(page)-1], 100)
		}
		return err
	}
	_ = list
}

func ExampleStore_Dead_replayAll() {
	replay := func(ctx context.Context, store *outbox.Store, filter operator.DeadFilter) error {
		by := operator.By{Actor: "ann@example.com", Reason: "schema order-7 is registered"}
		n, err := store.Dead().ReplayAll(ctx, filter, by, &operator.Bulk{DryRun: true})
		if err != nil {
			return err
		}
		fmt.Println(n, "would be replayed")
		n, err = store.Dead().ReplayAll(ctx, filter, by, &operator.Bulk{Progress: func(done int64) { fmt.Println(done) }})
		fmt.Println(n, "were replayed")
		return err
	}
	_ = replay
}

func ExampleStore_Dead_discard() {
	discard := func(ctx context.Context, store *outbox.Store, id string) error {
		err := store.Dead().Discard(ctx, id, operator.By{Actor: "ann@example.com", Reason: "test data of 21 November"})
		return err
	}
	_ = discard
}

func ExampleStore_Audit() {
	history := func(ctx context.Context, store *outbox.Store, id string) ([]operator.AuditEntry, error) {
		entries, err := store.Audit(ctx, operator.AuditFilter{EventID: id}, nil, 10)
		return entries, err
	}
	_ = history
}

func ExampleStore_Upkeep() {
	repair := func(ctx context.Context, store *outbox.Store) error {
		found, err := store.Upkeep().Reconcile(ctx)
		fmt.Println(found.Total(), "things were repaired")
		return err
	}
	_ = repair
}

func ExampleStore_State() {
	history := func(ctx context.Context, store *outbox.Store) error {
		var last int64
		for {
			page, err := store.State().EventsByAggregate(ctx, "acme", "order", "42", last, 100)
			if err != nil || len(page) == 0 {
				return err
			}
			for _, e := range page {
				fmt.Println(e.Sequence, e.EventType, e.Status, e.OccurredAt)
			}
			last = page[len(page)-1].Sequence
		}
	}
	_ = history
}

func ExampleStore_Published() {
	rebuild := func(ctx context.Context, store *outbox.Store, model messaging.Handler) error {
		filter := published.Filter{Topic: "order", SentFrom: time.Date(2026, 11, 14, 0, 0, 0, 0, time.UTC)}
		to := messaging.Direct(model).Publish
		done, err := store.Published().Replay(ctx, filter, "order.rebuild", to, nil)
		if err != nil { // perhaps after the cause was mended
			_, err = store.Published().Replay(ctx, filter, "order.rebuild", to, &published.Replay{After: done.Last})
		}
		return err
	}
	_ = rebuild
}

func ExampleConfig_beforeDrop() {
	var cfg struct{ Outbox outbox.Config }
	cfg.Outbox.BeforeDrop = func(ctx context.Context, p outbox.Partition) error {
		_, err := p.DB.NewInsert().Table("archive").Column("id", "payload").
			TableExpr("(?) AS day", p.Select().Column("id", "payload")).Exec(ctx)
		return err
	}
}

func ExampleStore_Tenants() {
	move := func(ctx context.Context, store *outbox.Store) error {
		err := store.Tenants().Move(ctx, "acme", 1, operator.By{Actor: "ann@example.com", Reason: "imports"})
		return err
	}
	_ = move
}
