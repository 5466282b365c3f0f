package oncetest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"

	"github.com/oncebox/oncebox"
	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/messaging"
	"github.com/oncebox/oncebox/oncetest"
	"github.com/oncebox/oncebox/uow"
)

// The service: an order is placed, and a consumer sends an invoice for it. In production main calls newService.

type OrderPlaced struct{ ID string }

func (OrderPlaced) EventType() string { return "order.placed" }

type InvoiceSent struct{ Order string }

func (InvoiceSent) EventType() string { return "invoice.sent" }

func newService(ctx context.Context, db *bun.DB, broker oncebox.Broker, cfg config.Config) (*oncebox.App, error) {
	app, err := oncebox.New(db, broker, cfg)
	if err != nil {
		return nil, err
	}
	event.Register[OrderPlaced](app.Registry)
	event.Register[InvoiceSent](app.Registry)
	router := messaging.NewRouter(app.Registry)
	messaging.Handle(router, func(ctx context.Context, e OrderPlaced) error {
		u := uow.MustFromContext(ctx)
		_, err := u.DB().NewRaw("INSERT INTO invoices VALUES (?)", e.ID).Exec(ctx)
		return errors.Join(err, u.Add("invoice", InvoiceSent{e.ID}))
	})
	app.Consume("order", "billing", router)
	_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY); CREATE TABLE IF NOT EXISTS invoices (order_id text)")
	return app, err
}

func placeOrder(ctx context.Context, app *oncebox.App, id string) error {
	return app.UoW.Do(ctx, func(ctx context.Context, u *uow.Unit) error {
		// A client that got no answer comes again. ON CONFLICT keeps its order single, WithDedupKey its event.
		_, err := u.DB().NewRaw("INSERT INTO orders VALUES (?) ON CONFLICT DO NOTHING", id).Exec(ctx)
		return errors.Join(err, u.Add("order", OrderPlaced{id}, event.WithDedupKey(id)))
	})
}

// The tests: newKit, and then a few lines for each promise. A package has one
//
//	func TestMain(m *testing.M) { oncetest.Main(m) }

func newKit(t *testing.T) *oncetest.Kit {
	t.Helper()
	return oncetest.New(t, func(s oncetest.Setup) (*oncebox.App, error) {
		return newService(t.Context(), s.DB, s.Broker, s.Config)
	})
}

func requireOneInvoice(t *testing.T, kit *oncetest.Kit) {
	t.Helper()
	var n int
	require.NoError(t, kit.DB.NewRaw("SELECT count(*) FROM invoices").Scan(t.Context(), &n))
	require.Equal(t, 1, n)
	oncetest.RequireEvents[InvoiceSent](kit, 1)
}

func TestHandlerIsIdempotent(t *testing.T) {
	kit := newKit(t)
	require.NoError(t, placeOrder(t.Context(), kit.App, "o-1"))
	kit.Drain() // publishes and handles
	requireOneInvoice(t, kit)

	kit.Redeliver() // a broker may do so at any time; the inbox settles it
	kit.Drain()
	requireOneInvoice(t, kit)
}

// The handler runs twice, because its process dies before its COMMIT. What it wrote outside of its unit would be there twice.
func TestHandlerWritesInItsUnit(t *testing.T) {
	kit := newKit(t)
	require.NoError(t, placeOrder(t.Context(), kit.App, "o-1"))
	kit.CrashAt(oncetest.BeforeCommit) // after the request, so that it is the handler's
	kit.Drain()
	requireOneInvoice(t, kit)
}

func TestNothingIsLostInACrash(t *testing.T) {
	for _, point := range []oncetest.Point{
		oncetest.BeforeCommit, oncetest.AfterCommit, oncetest.BeforePublish, oncetest.AfterPublish, oncetest.BeforeAck,
	} {
		t.Run(string(point), func(t *testing.T) {
			kit := newKit(t)
			kit.CrashAt(point)
			err := placeOrder(t.Context(), kit.App, "o-1")
			kit.Drain() // starts the service anew if it has died, or when it dies
			if err != nil {
				require.NoError(t, placeOrder(t.Context(), kit.App, "o-1")) // the client comes again
				kit.Drain()
			}
			requireOneInvoice(t, kit)
		})
	}
}

func TestInvoiceIsSentAfterARefusal(t *testing.T) {
	kit := newKit(t)
	kit.FailNextPublish(errors.New("refused"))
	require.NoError(t, placeOrder(t.Context(), kit.App, "o-1"))
	require.Len(t, kit.DrainFailing(), 1) // Drain fails the test when something is refused
	oncetest.RequireNoEvent[InvoiceSent](kit)

	kit.Advance(time.Hour) // the pause before the next try is over
	kit.Drain()
	requireOneInvoice(t, kit)
}
