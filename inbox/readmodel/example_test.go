package readmodel_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/oncebox/oncebox/inbox"
	"github.com/oncebox/oncebox/inbox/readmodel"
	"github.com/oncebox/oncebox/localpg"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/migrations"
	"github.com/oncebox/oncebox/outbox"
	"github.com/oncebox/oncebox/outbox/published"
	"github.com/oncebox/oncebox/projector"
	"github.com/oncebox/oncebox/telemetry"
	"github.com/oncebox/oncebox/uow"
)

// A release of the service counted every order twice. The next one makes the summary anew of the events that are kept.
func ExampleModel_Rebuild() {
	ctx, stop := context.WithCancel(context.Background())
	db, closeDB := exampleDatabase(ctx)
	defer closeDB()
	relayed := make(chan error)
	defer func() { stop(); must(<-relayed) }()
	must(migrations.Up(ctx, db, &migrations.Config{Logger: slog.New(slog.DiscardHandler)}))
	_, err := db.ExecContext(ctx, "CREATE TABLE summary AS SELECT 0 AS orders")
	must(err)

	store := outbox.NewStore(db, nil)
	units := uow.New(db, &uow.Config{Source: "shop"}, store)
	box := inbox.New(units, &inbox.Config{Telemetry: telemetry.Config{Logger: slog.New(slog.DiscardHandler)}})
	var step atomic.Int64
	step.Store(2)
	count := func(ctx context.Context, _ *messaging.Message) error {
		_, err := units.DB(ctx).NewRaw("UPDATE summary SET orders = orders + ?", step.Load()).Exec(ctx)
		return err
	}
	summary := readmodel.New(box, "summary", messaging.HandlerFunc(count)) // app.Consume takes it too
	relay, err := projector.New(messaging.Direct(summary), nil, store)
	must(err)
	go func() { relayed <- relay.Run(ctx) }()

	var token uow.Token
	for range 3 {
		must(units.Do(ctx, func(_ context.Context, u *uow.Unit) error { return u.Add("order", []byte("{}")) }, uow.WithToken(&token)))
	}
	ask := func() (orders int) {
		must(box.Await(ctx, "summary", token))
		must(db.NewRaw("SELECT orders FROM summary").Scan(ctx, &orders))
		return orders
	}
	for ask() < 6 { // the others are not of the last token
	}
	fmt.Println("before:", ask())

	step.Store(1)
	must(rebuildSummary(ctx, store, summary, io.Discard))
	fmt.Println("rebuilt:", ask())
	// Output:
	// before: 6
	// rebuilt: 3
}

func rebuildSummary(ctx context.Context, store *outbox.Store, summary *readmodel.Model, terminal io.Writer) error {
	empty := func(ctx context.Context, u *uow.Unit) error {
		_, err := u.DB().ExecContext(ctx, "UPDATE summary SET orders = 0")
		return err
	}
	kept := store.Published().History(published.Filter{Topic: "order"})
	err := summary.Rebuild(ctx, empty, kept, func(done readmodel.Progress) {
		fmt.Fprintf(terminal, "\r%d events, %.0f/s", done.Events, done.PerSecond)
	})
	return err
}

// At each start of a service.
func ExampleModel_Resume() {
	start := func(ctx context.Context, store *outbox.Store, summary *readmodel.Model) error {
		kept := store.Published().History(published.Filter{Topic: "order"})
		err := summary.Resume(ctx, kept, nil)
		return err
	}
	_ = start
	// Output:
}

func exampleDatabase(ctx context.Context) (*bun.DB, func()) {
	local, err := localpg.Start(ctx, localpg.Output(io.Discard))
	must(err)
	pool, err := sql.Open("pgx", local.URL)
	must(err)
	pool.SetMaxOpenConns(4)
	return bun.NewDB(pool, pgdialect.New()), func() {
		must(pool.Close())
		must(local.Close())
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
