package shop

import (
	"fmt"
	"net/http"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw/httpjson"
)

// Bounds of the input, far above sensible values.
const (
	maxItems = 1000
	maxQty   = 1e6
	maxPrice = 1e12
)

// inputError is a request that cannot be understood.
type inputError struct{ reason string }

func (e *inputError) Error() string { return e.reason }

func badInput(format string, args ...any) error { return &inputError{fmt.Sprintf(format, args...)} }

// placeInput is the body of POST /orders.
type placeInput struct {
	CustomerID string      `json:"customer_id"`
	Items      []itemInput `json:"items"`
}

func (in *placeInput) validate() error {
	if in.CustomerID == "" {
		return badInput("customer_id is missing")
	}
	if err := event.ValidateIdentifier("customer_id", in.CustomerID); err != nil {
		return badInput("%v", err)
	}
	if len(in.Items) == 0 || len(in.Items) > maxItems {
		return badInput("items: give 1 to %d of them", maxItems)
	}
	for i := range in.Items {
		if err := in.Items[i].validate(); err != nil {
			return badInput("items[%d]: %v", i, err)
		}
	}
	return nil
}

func (in *placeInput) items() []Item {
	items := make([]Item, len(in.Items))
	for i := range in.Items {
		items[i] = in.Items[i].item()
	}
	return items
}

// itemInput is the body of POST /orders/{id}/items.
type itemInput struct {
	SKU        string `json:"sku"`
	Qty        int64  `json:"qty"`
	PriceCents *int64 `json:"price_cents"` // a missing price is no gift
}

func (in *itemInput) validate() error {
	if in.SKU == "" {
		return badInput("sku is missing")
	}
	if err := event.ValidateIdentifier("sku", in.SKU); err != nil {
		return badInput("%v", err)
	}
	if in.Qty < 1 || in.Qty > maxQty {
		return badInput("qty is %d: give 1 to %d", in.Qty, int64(maxQty))
	}
	if in.PriceCents == nil {
		return badInput("price_cents is missing")
	}
	if *in.PriceCents < 0 || *in.PriceCents > maxPrice {
		return badInput("price_cents is %d: give 0 to %d", *in.PriceCents, int64(maxPrice))
	}
	return nil
}

func (in *itemInput) item() Item { return Item{SKU: in.SKU, Qty: in.Qty, PriceCents: *in.PriceCents} }

// readJSON reads a body that is one JSON object of the given form and nothing else.
func readJSON(r *http.Request, in interface{ validate() error }) error {
	if err := httpjson.Read(r, in); err != nil {
		return err
	}
	return in.validate()
}
