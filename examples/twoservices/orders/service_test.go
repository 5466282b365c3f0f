package orders_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/examples/twoservices/orders"
	"github.com/oncebox/oncebox/examples/twoservices/shopevents"
	"github.com/oncebox/oncebox/oncetest"
)

func TestMain(m *testing.M) { oncetest.Main(m) }

func TestOrderIsPlacedOnce(t *testing.T) {
	kit, web := oncetest.Serve(t, orders.Service())
	kit.CrashAt(oncetest.AfterCommit)
	web.Send("POST", "/orders/o-1", "", "Idempotency-Key", "key-1") // committed, and nobody gets this answer
	kit.Drain()
	answer := web.Send("POST", "/orders/o-1", "", "Idempotency-Key", "key-1") // the client comes again
	require.Equal(t, http.StatusCreated, answer.Code)
	require.Equal(t, "true", answer.Header().Get("Idempotent-Replayed"))
	oncetest.RequireEvents[shopevents.OrderPlaced](kit, 1)

	kit.PublishFrom("invoices", shopevents.Invoices, shopevents.InvoiceSent{InvoiceID: "i-1", OrderID: "o-1"}, event.WithAggregate("invoice", "i-1", 1))
	kit.Drain()
	require.JSONEq(t, `{"id":"o-1","total":42,"invoice":"i-1"}`, web.Send("GET", "/orders/o-1", "").Body.String())
}
