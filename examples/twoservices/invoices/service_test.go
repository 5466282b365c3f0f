package invoices_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/twoservices/invoices"
	"github.com/oncebox/oncebox/examples/twoservices/shopevents"
	"github.com/oncebox/oncebox/oncetest"
)

func TestMain(m *testing.M) { oncetest.Main(m) }

func TestEachOrderGetsOneInvoice(t *testing.T) {
	kit, _ := oncetest.Serve(t, invoices.Service())
	kit.PublishFrom("orders", shopevents.Orders, shopevents.OrderPlaced{OrderID: "o-1", Total: 42}, event.WithAggregate("order", "o-1", 1))
	kit.CrashAt(oncetest.BeforeAck) // the broker delivers the event again
	kit.Drain()
	require.Equal(t, "o-1", oncetest.RequireEvents[shopevents.InvoiceSent](kit, 1)[0].OrderID)
}
