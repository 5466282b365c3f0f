package uow_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// journal is a sink with a table.
type journal struct{}

func (journal) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	var types []string
	for _, e := range evs {
		types = append(types, e.Type)
	}
	_, err := tx.NewRaw("INSERT INTO journal SELECT unnest(?::text[])", pgdialect.Array(types)).Exec(ctx)
	return err
}

func ExampleSink() {
	db, done := exampleDB("CREATE TABLE journal (event_type text)")
	defer done()
	units := uow.New(db, &uow.Config{Source: "bank"}, journal{})
	_ = units.Do(context.Background(), func(_ context.Context, u *uow.Unit) error {
		return errors.Join(u.Add("mail", []byte("x"), event.WithType("welcome")), u.Add("mail", []byte("y"), event.WithType("invoice")))
	})
	var stored []string
	_ = db.NewRaw("SELECT event_type FROM journal").Scan(context.Background(), &stored)
	fmt.Println(stored)
	// Output: [welcome invoice]
}

// Code between two units that turns errors into something else, here an answer, hides a reason to run it all again. The
// outer function asks for it.
func ExampleUnit_Retryable() {
	db, done := exampleDB("CREATE TABLE journal (event_type text)")
	defer done()
	units := uow.New(db, nil)
	tries := 0
	answer := func(ctx context.Context) string {
		err := units.Do(ctx, func(context.Context, *uow.Unit) error {
			if tries++; tries == 1 {
				return uow.ErrConflict
			}
			return nil
		})
		if err != nil {
			return "500"
		}
		return "200"
	}
	err := units.Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		status := answer(ctx)
		fmt.Println(status)
		if status == "500" {
			return u.Retryable()
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 500
	// 200
	// <nil>
}

// The token travels to the client and back. inbox.Inbox.Await waits for what it names.
func ExampleWithToken() {
	db, done := exampleDB("CREATE TABLE journal (event_type text)")
	defer done()
	units := uow.New(db, &uow.Config{Source: "bank"}, journal{})
	var token uow.Token
	_ = units.Do(event.WithTenant(context.Background(), "acme"), func(_ context.Context, u *uow.Unit) error {
		return errors.Join(u.Add("mail", []byte("x")), u.Add("reports", []byte("y")))
	}, uow.WithToken(&token))

	announced, _ := token.Events("mail") // those on this topic
	for _, a := range announced {
		fmt.Println(a.Source, a.TenantID, a.Topic, a.ID != "")
	}
	// Output: bank acme mail true
}

// If a connection breaks before COMMIT, the function is run again, as after a deadlock. If that does not help, Do returns an
// error that matches.
func ExampleErrConnectionLost() {
	err := fmt.Errorf("place the order: %w", uow.ErrConnectionLost)
	fmt.Println(errors.Is(err, uow.ErrConnectionLost), uow.IsRetryable(err))
	// Output: true true
}
