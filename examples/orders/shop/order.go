package shop

import (
	"errors"

	"github.com/oncebox/oncebox/event"
)

// Status is where an order is in its life.
type Status string

// An order is placed, and may be cancelled later.
const (
	StatusPlaced    Status = "placed"
	StatusCancelled Status = "cancelled"
)

// maxTotal is the largest total of an order in cents: far above any sensible one, and far below where sums overflow.
const maxTotal = 1e15

// Refusals of the domain. The request was understood, and repeating it does not help.
var (
	ErrCancelled = errors.New("the order is cancelled")
	ErrTooLarge  = errors.New("the order's total would be too large")
)

// Item is one line of an order.
type Item struct {
	SKU        string
	Qty        int64
	PriceCents int64 // of one piece
}

// Total returns what the line costs in cents.
func (i Item) Total() int64 { return i.Qty * i.PriceCents }

// Order is the aggregate: it is loaded, changed and saved as a whole, and records what happens to it.
type Order struct {
	event.Recorder

	ID         string
	CustomerID string
	Status     Status
	TotalCents int64
	Version    int64 // as stored
	Items      []Item

	savedItems int // number of Items in the database; lines are only ever added
}

// PlaceOrder makes a new order.
func PlaceOrder(id, customerID string, items []Item) (*Order, error) {
	o := &Order{ID: id, CustomerID: customerID, Status: StatusPlaced, Items: items}
	for _, item := range items {
		if o.TotalCents += item.Total(); o.TotalCents > maxTotal {
			return nil, ErrTooLarge
		}
	}
	o.Record(OrderPlaced{OrderID: o.ID, CustomerID: customerID, TotalCents: o.TotalCents})
	return o, nil
}

// AddItem adds a line.
func (o *Order) AddItem(item Item) error {
	if o.Status == StatusCancelled {
		return ErrCancelled
	}
	if o.TotalCents+item.Total() > maxTotal {
		return ErrTooLarge
	}
	o.Items = append(o.Items, item)
	o.TotalCents += item.Total()
	o.Record(ItemAdded{
		OrderID: o.ID, CustomerID: o.CustomerID, SKU: item.SKU, Qty: item.Qty, PriceCents: item.PriceCents, AddedCents: item.Total(),
	})
	return nil
}

// Cancel ends the order.
func (o *Order) Cancel() error {
	if o.Status == StatusCancelled {
		return ErrCancelled
	}
	o.Status = StatusCancelled
	o.Record(OrderCancelled{OrderID: o.ID, CustomerID: o.CustomerID, TotalCents: o.TotalCents})
	return nil
}

// AggregateType is also the topic of the events.
func (o *Order) AggregateType() string { return OrderTopic }

// AggregateID returns the order's id.
func (o *Order) AggregateID() string { return o.ID }

// AggregateVersion returns the stored version.
func (o *Order) AggregateVersion() int64 { return o.Version }

// nextVersion returns the version that is stored together with the recorded events.
func (o *Order) nextVersion() int64 { return o.Version + int64(len(o.RecordedEvents())) }
