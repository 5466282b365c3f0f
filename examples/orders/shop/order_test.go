package shop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/event"
)

func events(o *Order) []event.Event {
	var out []event.Event
	for _, r := range o.RecordedEvents() {
		out = append(out, r.Event)
	}
	return out
}

func TestPlacedOrderIsVersionOne(t *testing.T) {
	o, err := PlaceOrder("o1", "c1", []Item{{SKU: "a", Qty: 2, PriceCents: 500}, {SKU: "b", Qty: 1, PriceCents: 25}})
	require.NoError(t, err)
	require.Equal(t, StatusPlaced, o.Status)
	require.Equal(t, int64(1025), o.TotalCents)
	require.Equal(t, int64(0), o.AggregateVersion(), "nothing of it is in the database yet")
	require.Equal(t, int64(1), o.nextVersion())
	require.Equal(t, []event.Event{OrderPlaced{OrderID: "o1", CustomerID: "c1", TotalCents: 1025}}, events(o))
}

func TestEventsRaiseTheNextVersion(t *testing.T) {
	o, err := PlaceOrder("o1", "c1", []Item{{SKU: "a", Qty: 2, PriceCents: 500}})
	require.NoError(t, err)
	require.NoError(t, o.AddItem(Item{SKU: "b", Qty: 3, PriceCents: 100}))
	require.NoError(t, o.Cancel())
	require.Equal(t, int64(0), o.AggregateVersion())
	require.Equal(t, int64(3), o.nextVersion())
}

func TestCancelledOrderTakesNothing(t *testing.T) {
	o, err := PlaceOrder("o1", "c1", []Item{{SKU: "a", Qty: 2, PriceCents: 500}})
	require.NoError(t, err)
	require.NoError(t, o.Cancel())
	before := *o
	require.ErrorIs(t, o.Cancel(), ErrCancelled)
	require.ErrorIs(t, o.AddItem(Item{SKU: "b", Qty: 1, PriceCents: 1}), ErrCancelled)
	require.Equal(t, before, *o, "a refusal changes nothing")
	require.Equal(t, OrderCancelled{OrderID: "o1", CustomerID: "c1", TotalCents: 1000}, events(o)[1], "what the order was worth")
}

func TestTotalIsBounded(t *testing.T) {
	huge := Item{SKU: "a", Qty: maxQty, PriceCents: maxPrice}
	_, err := PlaceOrder("o1", "c1", []Item{huge})
	require.ErrorIs(t, err, ErrTooLarge)

	o, err := PlaceOrder("o1", "c1", []Item{{SKU: "a", Qty: 1, PriceCents: 1}})
	require.NoError(t, err)
	require.ErrorIs(t, o.AddItem(huge), ErrTooLarge)
	require.Equal(t, int64(1), o.TotalCents)
}
