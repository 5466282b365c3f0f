package uow_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// printer is a sink. In a service it is the outbox.Store.
type printer struct{}

func (printer) Flush(_ context.Context, _ bun.IDB, evs []event.Envelope) error {
	for _, e := range evs {
		fmt.Println("event", e.Type, e.AggregateType, e.AggregateID, e.AggregateVersion, string(e.Payload))
	}
	return nil
}

// Data and events commit together or not at all.
func ExampleManager_Do() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()

	registry := event.NewRegistry()
	event.Register[changed](registry)
	units := uow.New(db, &uow.Config{Registry: registry, Source: "bank"}, printer{})

	err := units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: "a-1"}
		a.Record(changed{"opened"})
		u.Track(a) // what it has recorded by the end is emitted
		_, err := u.DB().NewInsert().Model(a).Exec(ctx)
		return err
	})
	fmt.Println(err)

	err = units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		a := &account{ID: "a-1"} // it is there already
		a.Record(changed{"opened again"})
		u.Track(a)
		_, err := u.DB().NewInsert().Model(a).Exec(ctx)
		return err
	})
	fmt.Println(err != nil) // and no event
	// Output:
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil>
	// true
}

// A Do inside a Do is a savepoint: what an inner one did is dropped when it fails, its events included.
func ExampleManager_Do_nested() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()
	units := uow.New(db, &uow.Config{Source: "bank"}, printer{})

	open := func(ctx context.Context, id string) error {
		return units.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
			if err := u.Add("opened", map[string]string{"id": id}); err != nil {
				return err
			}
			_, err := u.DB().NewInsert().Model(&account{ID: id}).Exec(ctx)
			return err
		})
	}
	err := units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		for _, id := range []string{"a-1", "a-1", "a-2"} {
			if err := open(ctx, id); err != nil {
				fmt.Println(id, "is there already")
			}
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// a-1 is there already
	// event opened   0 {"id":"a-1"}
	// event opened   0 {"id":"a-2"}
	// <nil>
}

// A function that reports a conflict is run again in a new transaction, with aggregates that are loaded again.
func ExampleErrConflict() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()
	units := uow.New(db, nil)

	tries := 0
	err := units.Do(context.Background(), func(context.Context, *uow.Unit) error {
		tries++
		if tries == 1 { // as if UPDATE ... WHERE version = ? had found no row
			return &uow.ConflictError{Type: "account", ID: "a-1", Expected: 1, Found: 2}
		}
		return nil
	})
	fmt.Println(tries, err)

	err = units.Do(context.Background(), func(context.Context, *uow.Unit) error { return uow.ErrConflict }, uow.WithoutRetry())
	fmt.Println(errors.Is(err, uow.ErrConflict))
	// Output:
	// 2 <nil>
	// true
}

// Code whose signature has no room for a unit finds the transaction through the context.
func ExampleManager_DB() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()
	units := uow.New(db, nil)

	save := func(ctx context.Context, a *account) error {
		_, err := units.DB(ctx).NewInsert().Model(a).Exec(ctx)
		return err
	}
	count := func(ctx context.Context) int64 {
		n, _ := units.DB(ctx).NewSelect().Model((*account)(nil)).Count(ctx)
		return n
	}
	err := units.Do(context.Background(), func(ctx context.Context, _ *uow.Unit) error {
		if err := save(ctx, &account{ID: "a-1"}); err != nil {
			return err
		}
		fmt.Println("within:", count(ctx), "outside:", count(context.Background()))
		return errors.New("changed my mind")
	})
	fmt.Println(err, count(context.Background()))
	// Output:
	// within: 1 outside: 0
	// changed my mind 0
}

func ExampleUnit_AfterCommit() {
	db, done := exampleDB("SELECT 1")
	defer done()
	units := uow.New(db, nil)

	_ = units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		u.AfterCommit(func(context.Context) { fmt.Println("committed") })
		fmt.Println("in the transaction")
		return nil
	})
	// Output:
	// in the transaction
	// committed
}

// Events and nobody to take them is an error, not a silence.
func ExampleErrNoSink() {
	db, done := exampleDB("SELECT 1")
	defer done()
	units := uow.New(db, &uow.Config{Source: "bank"})

	err := units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		return u.Add("reports", []byte("x"))
	})
	fmt.Println(errors.Is(err, uow.ErrNoSink), err)
	// Output:
	// true uow: the unit has events and no sink: pass an outbox.Store to uow.New: the first is reports
}

// An aggregate that somebody else has saved meanwhile is not overwritten.
func ExampleUnit_Save() {
	db, done := exampleDB("CREATE TABLE accounts (id text PRIMARY KEY, version bigint NOT NULL)")
	defer done()
	registry := event.NewRegistry()
	event.Register[changed](registry)
	units := uow.New(db, &uow.Config{Registry: registry, Source: "bank"}, printer{})

	save := func(a *account, what string) error {
		return units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
			a.Record(changed{what})
			return u.Save(ctx, a)
		}, uow.WithoutRetry())
	}
	mine := &account{ID: "a-1"}
	fmt.Println(save(mine, "opened"), mine.Version)

	theirs := &account{ID: mine.ID, Version: mine.Version} // loaded by somebody else
	fmt.Println(save(theirs, "renamed"), theirs.Version)

	err := save(mine, "closed")
	fmt.Println(err, errors.Is(err, uow.ErrConflict))
	// Output:
	// event account.changed account a-1 1 {"Text":"opened"}
	// <nil> 1
	// event account.changed account a-1 2 {"Text":"renamed"}
	// <nil> 2
	// uow: Save: uow: account a-1: expected version 1, found 2 true
}
