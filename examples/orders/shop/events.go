package shop

import "github.com/oncebox/oncebox/event"

// OrderTopic is the type of the aggregate, and so the topic of all its events.
const OrderTopic = "order"

// OrderPlaced says that a customer placed an order.
type OrderPlaced struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	TotalCents int64  `json:"total_cents"`
}

// EventType returns the name on the wire.
func (OrderPlaced) EventType() string { return "order.placed" }

// ItemAdded says that a line was added to an order.
type ItemAdded struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	SKU        string `json:"sku"`
	Qty        int64  `json:"qty"`
	PriceCents int64  `json:"price_cents"`
	AddedCents int64  `json:"added_cents"` // what the line adds to the total
}

// EventType returns the name on the wire.
func (ItemAdded) EventType() string { return "order.item_added" }

// OrderCancelled says that an order was cancelled.
type OrderCancelled struct {
	OrderID    string `json:"order_id"`
	CustomerID string `json:"customer_id"`
	TotalCents int64  `json:"total_cents"` // what the order was worth
}

// EventType returns the name on the wire.
func (OrderCancelled) EventType() string { return "order.cancelled" }

// registerEvents makes the events known. An event that is missing here fails the request that records it.
func registerEvents(r *event.Registry) {
	event.RegisterAll(r, OrderPlaced{}, ItemAdded{}, OrderCancelled{})
}
