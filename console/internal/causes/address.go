package causes

import (
	"net/url"

	"github.com/oncebox/oncebox/console/internal/frame"
	"github.com/oncebox/oncebox/operator"
	"github.com/oncebox/oncebox/ops"
)

const (
	// Page is the name of the page of one cause.
	Page = "failure"
	// ListPage is the name of the page of all causes.
	ListPage = "failures"
	// Field is the field of an address or a form with the fingerprint of a cause.
	Field = "cause"
	// boxField is the field with the box whose failures are meant.
	boxField = "box"
)

// Href returns the address of the page of a cause.
func Href(fingerprint string) string { return frame.Address(Page, url.Values{Field: {fingerprint}}) }

// Bulk returns the address of the form that treats all failures of a cause.
func Bulk(action operator.Action, box ops.Box, fingerprint string) string {
	return frame.Address("bulk", url.Values{"action": {string(action)}, boxField: {string(box)}, Field: {fingerprint}})
}

// Letters returns the address of the list of the dead letters of a cause.
func Letters(box ops.Box, fingerprint string) string {
	return frame.Address("dead", url.Values{boxField: {string(box)}, Field: {fingerprint}})
}
