package uow_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

const accounts = "CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)"

// exampleUnits returns a manager whose sink prints.
func exampleUnits(db *bun.DB) *uow.Manager {
	registry := event.NewRegistry()
	event.Register[changed](registry)
	return uow.New(db, &uow.Config{Registry: registry, Source: "bank"}, printer{})
}

// What cannot be put into a function is ended by hand. Rollback does nothing after Commit.
func ExampleManager_Begin() {
	db, done := exampleDB(accounts)
	defer done()
	units := exampleUnits(db)

	open := func(ctx context.Context, id string, sure bool) error {
		tx, err := units.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		a := &account{ID: id}
		a.Record(changed{"opened"})
		if err := tx.Save(tx.Context(), a); err != nil || !sure {
			return err
		}
		return tx.Commit()
	}
	fmt.Println(open(context.Background(), "a-1", false))
	fmt.Println(open(context.Background(), "a-1", true))
	// Output:
	// <nil>
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil>
}

// A middleware has a unit around a handler that knows nothing of it. The rule's error comes back to the handler.
func ExampleWithNestedChecks() {
	db, done := exampleDB(accounts)
	defer done()
	units := exampleUnits(db)
	uow.On(units, func(context.Context, *uow.Unit, changed) error { return errors.New("not in this bank") })
	handler := func(ctx context.Context) {
		err := units.Do(ctx, func(_ context.Context, u *uow.Unit) error {
			a := &account{ID: "a-1"}
			a.Record(changed{"plundered"})
			u.Track(a)
			return nil
		})
		fmt.Println("the handler:", err)
	}
	err := units.Do(context.Background(), func(ctx context.Context, _ *uow.Unit) error {
		handler(ctx)
		return nil
	}, uow.WithNestedChecks())
	fmt.Println("the middleware:", err)
	// Output:
	// the handler: uow: handle account.changed: not in this bank
	// the middleware: <nil>
}

// A rule that reaches over several aggregates holds at COMMIT, or nothing does.
func ExampleOn() {
	db, done := exampleDB(accounts)
	defer done()
	units := exampleUnits(db)
	uow.On(units, func(_ context.Context, u *uow.Unit, e changed) error {
		if e.Text == "closed" {
			archive := &account{ID: "archive"}
			archive.Record(changed{"one more"})
			u.Track(archive) // handled in turn, and emitted with the rest
		}
		if e.Text == "plundered" {
			return errors.New("not in this bank")
		}
		return nil
	})
	for _, text := range []string{"closed", "plundered"} {
		err := units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
			a := &account{ID: "a-1"}
			a.Record(changed{text})
			u.Track(a)
			return nil
		})
		fmt.Println(err)
	}
	// Output:
	// event account.changed account a-1 1 {"Text":"closed"}
	// event account.changed account archive 1 {"Text":"one more"}
	// <nil>
	// uow: handle account.changed: not in this bank
}

// What is stored in one's own way is tracked, and emits what it has recorded by the end.
func ExampleUnit_Track() {
	db, done := exampleDB(accounts)
	defer done()
	err := exampleUnits(db).Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: "a-1"}
		u.Track(a)
		u.Track(a) // once is enough
		a.Record(changed{"opened"})
		_, err := u.DB().NewInsert().Model(a).Exec(ctx)
		return err
	})
	fmt.Println(err)
	// Output:
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil>
}

// What no aggregate recorded is added by hand. What is wrong with it shows here, and the unit goes on.
func ExampleUnit_Add() {
	db, done := exampleDB(accounts)
	defer done()
	err := exampleUnits(db).Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		fmt.Println(u.Add("other/topic", []byte("x")))
		return u.Add("mail", map[string]string{"to": "ann"}, event.WithType("mail.wanted"), event.WithOrderingKey("ann"))
	})
	fmt.Println(err)
	// Output:
	// uow: Add: other/topic: event: Topic must not contain "/", "%" or ".."
	// event mail.wanted   0 {"to":"ann"}
	// <nil>
}

// Code that may run outside a unit asks whether there is one.
func ExampleFromContext() {
	db, done := exampleDB(accounts)
	defer done()
	save := func(ctx context.Context, a *account) error {
		u, ok := uow.FromContext(ctx)
		if !ok {
			return errors.New("save: call it within a unit of work")
		}
		return u.Save(ctx, a)
	}
	a := &account{ID: "a-1"}
	a.Record(changed{"opened"})
	fmt.Println(save(context.Background(), a))
	fmt.Println(exampleUnits(db).Do(context.Background(), func(ctx context.Context, _ *uow.Unit) error { return save(ctx, a) }))
	// Output:
	// save: call it within a unit of work
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil>
}

// A function that a handler calls always has a unit.
func ExampleMustFromContext() {
	db, done := exampleDB(accounts)
	defer done()
	open := func(ctx context.Context) error {
		a := &account{ID: "a-1"}
		a.Record(changed{"opened"})
		return uow.MustFromContext(ctx).Save(ctx, a)
	}
	fmt.Println(exampleUnits(db).Do(context.Background(), func(ctx context.Context, _ *uow.Unit) error { return open(ctx) }))
	defer func() { fmt.Println(recover()) }()
	_ = open(context.Background())
	// Output:
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil>
	// uow: MustFromContext: the context carries no unit of work: pass the context that a handler or Manager.Do has got
}

// Options are those of one transaction.
func ExampleOption() {
	db, done := exampleDB(accounts)
	defer done()
	err := exampleUnits(db).Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		var isolation, readOnly string
		err := u.DB().NewRaw("SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(ctx, &isolation, &readOnly)
		fmt.Println(isolation, readOnly)
		return err
	}, uow.WithIsolation(sql.LevelRepeatableRead), uow.WithReadOnly())
	fmt.Println(err)
	// Output:
	// repeatable read on
	// <nil>
}

// What is worth another try can be widened.
func ExampleIsRetryable() {
	db, done := exampleDB(accounts)
	defer done()
	errBusy := errors.New("the other service is busy")
	units := uow.New(db, &uow.Config{Retry: uow.RetryConfig{
		If: func(err error) bool { return uow.IsRetryable(err) || errors.Is(err, errBusy) },
	}})
	tries := 0
	err := units.Do(context.Background(), func(context.Context, *uow.Unit) error {
		if tries++; tries < 3 {
			return errBusy
		}
		return nil
	})
	fmt.Println(tries, err)
	// Output: 3 <nil>
}

// An aggregate belongs to one try: the next one must not publish what the first one recorded.
func ExampleErrStale() {
	db, done := exampleDB(accounts)
	defer done()
	a, tries := &account{ID: "a-1"}, 0 // a should be made, or loaded, within the function
	err := exampleUnits(db).Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		a.Record(changed{"opened"})
		u.Track(a)
		if tries++; tries == 1 {
			return uow.ErrConflict
		}
		return nil
	})
	fmt.Println(errors.Is(err, uow.ErrStale))
	// Output: true
}

// The one outcome that needs somebody's eyes: the answer to COMMIT was lost, and the server could not tell either.
func ExampleCommitUnknownError() {
	var err error = &uow.CommitUnknownError{XID: "4711", PID: 99, Timeline: "00000001", Err: errors.New("the server is gone")}
	if unknown, ok := errors.AsType[*uow.CommitUnknownError](err); ok {
		fmt.Printf("later: SELECT pg_xact_status('%s')\n", unknown.XID)
	}
	fmt.Println(errors.Is(err, uow.ErrCommitUnknown))
	// Output:
	// later: SELECT pg_xact_status('4711')
	// true
}

func ExampleConfig_Validate() {
	cfg := uow.Config{MaxPayload: -2, Retry: uow.RetryConfig{MaxAttempts: -1}}
	fmt.Println(cfg.Validate())
	// Output: uow: Config.MaxPayload is -2: give bytes, or -1 for no limit
}

// bell is a sink that also hears of the COMMIT.
type bell struct{ printer }

func (bell) Committed(_ context.Context, evs []event.Envelope) { fmt.Println("committed:", len(evs)) }

// A sink stores the events in their transaction. After COMMIT it may wake up what waits for them.
func ExampleCommitSink() {
	db, done := exampleDB(accounts)
	defer done()
	units := uow.New(db, &uow.Config{Source: "bank"}, bell{})
	_ = units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error { return u.Add("mail", []byte("x")) })
	// Output:
	// event mail   0 x
	// committed: 1
}
