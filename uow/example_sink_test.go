package uow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/uow"
)

// journal is a sink with a table. Its one statement stores the events and tells the transaction's id, which spares the unit a
// statement of its own.
type journal struct{}

const journalInsert = `WITH i AS (INSERT INTO journal SELECT unnest(?::text[])) SELECT pg_current_xact_id()::text`

func types(evs []event.Envelope) (names []string) {
	for _, e := range evs {
		names = append(names, e.Type)
	}
	return names
}

func (j journal) Flush(ctx context.Context, tx bun.IDB, evs []event.Envelope) error {
	_, err := j.FlushProbe(ctx, tx, evs)
	return err
}

func (journal) FlushProbe(ctx context.Context, tx bun.IDB, evs []event.Envelope) (xid string, err error) {
	err = tx.NewRaw(journalInsert, pgdialect.Array(types(evs))).Scan(ctx, &xid)
	return xid, err
}

// FlushBatch adds the same statement to what leaves together with COMMIT, on pools of config.OpenDB.
func (journal) FlushBatch(_ context.Context, _ bun.IDB, b *pgx.Batch, evs []event.Envelope) error {
	b.Queue(strings.Replace(journalInsert, "?", "$1", 1), types(evs)) // pgx's own placeholders
	return nil
}

var _ uow.BatchSink = journal{}

func ExampleProbeSink() {
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

// A function that has the transaction's id from one of its statements says so, and the unit sends none of its own to ask for it.
func ExampleUnit_Identified() {
	db, done := exampleDB("CREATE TABLE journal (event_type text)")
	defer done()
	err := uow.New(db, nil).Do(context.Background(), func(ctx context.Context, u *uow.Unit) error {
		var xid string
		if err := u.DB().NewRaw("INSERT INTO journal VALUES ('opened') RETURNING pg_current_xact_id()::text").Scan(ctx, &xid); err != nil {
			return err
		}
		u.Identified(xid)
		return nil
	})
	fmt.Println(err)
	// Output: <nil>
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

// A connection that breaks before COMMIT is a reason to run the function again, as a deadlock is. What is left then is an
// error that matches.
func ExampleErrConnectionLost() {
	err := fmt.Errorf("place the order: %w", uow.ErrConnectionLost)
	fmt.Println(errors.Is(err, uow.ErrConnectionLost), uow.IsRetryable(err))
	// Output: true true
}
