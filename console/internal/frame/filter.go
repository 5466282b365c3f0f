package frame

import "net/url"

const fieldFilter = "filter"

// Filter is the form that narrows a list. It is open only on a page of its own, which does not load itself again: what was typed would be lost.
type Filter struct {
	Open bool
	// Href opens the form, and All shows the whole list.
	Href, All string
	// Set is true if the list is narrowed.
	Set bool
}

// NewFilter returns the form of a list. asked is the query of the page, fields the query of the list, and all that of the whole list.
func NewFilter(page string, asked, fields, all url.Values) Filter {
	return Filter{
		Open: asked.Get(fieldFilter) != "", Href: Address(page, With(fields, url.Values{fieldFilter: {"1"}})), All: Address(page, all),
		Set: len(fields) > len(all),
	}
}
