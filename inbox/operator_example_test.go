package inbox_test

import (
	"context"
	"fmt"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/parked"
	"github.com/oncebox/oncebox/operator"
)

// Pages of docs may quote parts of this file, and a test compares them.

func ExampleInbox_State() {
	look := func(ctx context.Context, box *inbox.Inbox) error {
		stats, err := box.State().Stats(ctx)
		for _, st := range stats {
			fmt.Println(st.Consumer, st.Failed, st.Dead, st.Parked, st.OldestParked, st.DeadLetters)
		}
		return err
	}
	_ = look
	// Output:
}

func ExampleInbox_Dead() {
	list := func(ctx context.Context, box *inbox.Inbox) error {
		filter := operator.DeadFilter{Consumer: "billing", Type: "order.placed", Error: "unknown currency"}
		page, err := box.Dead().List(ctx, filter, nil, 100)
		for err == nil && len(page) > 0 {
			for _, d := range page {
				fmt.Println(d.DiedAt, d.Key, d.Envelope.ID, d.Holds, d.Attempts, d.Error)
			}
			page, err = box.Dead().List(ctx, filter, &page[len(page)-1], 100)
		}
		return err
	}
	_ = list
	// Output:
}

func ExampleInbox_Dead_replayAll() {
	replay := func(ctx context.Context, box *inbox.Inbox, filter operator.DeadFilter) error {
		by := operator.By{Actor: "ann@example.com", Reason: "release 7 knows the currency"}
		n, err := box.Dead().ReplayAll(ctx, filter, by, &operator.Bulk{DryRun: true})
		if err != nil {
			return err
		}
		fmt.Println(n, "would be replayed")
		n, err = box.Dead().ReplayAll(ctx, filter, by, &operator.Bulk{Progress: func(done int64) { fmt.Println(done) }})
		fmt.Println(n, "were replayed")
		return err
	}
	_ = replay
	// Output:
}

func ExampleInbox_Dead_discard() {
	discard := func(ctx context.Context, box *inbox.Inbox, key operator.MessageRef) error {
		err := box.Dead().Discard(ctx, key, operator.By{Actor: "ann@example.com", Reason: "test data of 21 November"})
		return err
	}
	_ = discard
	// Output:
}

func ExampleInbox_Parked() {
	look := func(ctx context.Context, box *inbox.Inbox) error {
		page, err := box.Parked().List(ctx, parked.Filter{Consumer: "billing", State: parked.KeyFailed, FirstOnly: true}, nil, 100)
		for _, p := range page {
			fmt.Println(p.OrderingKey, p.Key, p.Attempts, p.DueAt, p.Error)
		}
		return err
	}
	_ = look
	// Output:
}

func ExampleInbox_Parked_giveUp() {
	decide := func(ctx context.Context, box *inbox.Inbox, key operator.MessageRef) error {
		by := operator.By{Actor: "ann@example.com", Reason: "the bank will never answer for this account"}
		err := box.Parked().RetryNow(ctx, key, by) // it need not wait for its pause
		if err != nil {
			return err
		}
		err = box.Parked().GiveUp(ctx, key, by) // it is a dead letter: discard it, or replay it later
		return err
	}
	_ = decide
	// Output:
}

func ExampleInbox_Audit() {
	history := func(ctx context.Context, box *inbox.Inbox, key operator.MessageRef) ([]operator.AuditEntry, error) {
		entries, err := box.Audit(ctx, operator.AuditFilter{EventID: key.MessageKey}, nil, 10)
		return entries, err
	}
	_ = history
	// Output:
}
