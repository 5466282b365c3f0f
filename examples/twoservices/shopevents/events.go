// Package shopevents has the events that the services of the shop share. Both services import it, and it imports package event only. In a
// company it is a module of its own, with a version.
package shopevents

import "github.com/oncebox/oncebox/event"

// The topics: each is the type of the aggregate whose events it carries.
const (
	Orders   = "order"
	Invoices = "invoice"
)

// OrderPlaced is sent by the service orders.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
	Total   int64  `json:"total"`
}

func (OrderPlaced) EventType() string { return "order.placed" }

// InvoiceSent is sent by the service invoices.
type InvoiceSent struct {
	InvoiceID string `json:"invoice_id"`
	OrderID   string `json:"order_id"`
}

func (InvoiceSent) EventType() string { return "invoice.sent" }

// Register names the events for a service that sends or handles them.
func Register(r *event.Registry) { event.RegisterAll(r, OrderPlaced{}, InvoiceSent{}) }
