package frame

import (
	"maps"
	"net/url"
)

// Names of pages to which lines of the first page lead, too.
const (
	Stuck     = "stuck"
	Tenants   = "tenants"
	Consumers = "consumers" // lists them
	Processes = "processes" // lists what runs
)

// FieldForm is the field of an address with the form that is open on the page: the action that the form is for. A page with an open form does not load
// itself again.
const FieldForm = "form"

// Address returns the address of a page, relative to the others. The first page has no name.
func Address(page string, q url.Values) string {
	switch {
	case len(q) > 0:
		return page + "?" + q.Encode()
	case page == "":
		return "./"
	default:
		return page
	}
}

// With returns a copy of q in which the values of more replace those with the same name. q stays unchanged.
func With(q, more url.Values) url.Values {
	all := maps.Clone(q)
	if all == nil {
		all = url.Values{}
	}
	maps.Copy(all, more)
	return all
}

// Without returns a copy of q without some fields.
func Without(q url.Values, fields ...string) url.Values {
	rest := With(q, nil)
	for _, field := range fields {
		rest.Del(field)
	}
	return rest
}

// Set returns the fields that have a value.
func Set(fields map[string]string) url.Values {
	q := url.Values{}
	for field, value := range fields {
		if value != "" {
			q.Set(field, value)
		}
	}
	return q
}

// Event returns the address of the page about an event. source is needed for an id that is no UUID; "": it is unknown.
func Event(id, source string) string {
	return Address("event", Set(map[string]string{"id": id, "source": source}))
}

// Search returns the address of a search.
func Search(text string) string { return Address("search", Set(map[string]string{"q": text})) }
