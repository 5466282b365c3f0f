package httpjson

import (
	"cmp"
	"net/http"
)

// Answer is the output of a function whose answer needs a header, or a status that depends on the outcome:
//
//	return httpjson.Answer[reservation]{Header: http.Header{"Location": {"/reservations/" + id}}, Body: reservation{id}}, nil
//
// Under httpmw.Idempotency a replay repeats the headers of httpmw.StoredHeaders, such as Location, and the one of IdempotencyConfig.TokenHeader. Name
// others in IdempotencyConfig.Headers.
type Answer[Out any] struct {
	// Status is the status of the answer. Default: that of [Handler].
	Status int
	// Header has the headers to set. They replace those of the same name that a middleware has set. Default: none.
	Header http.Header
	// Body is sent as JSON. If it is [Nothing], the answer has no body.
	Body Out
}

// parted is an [Answer], whatever its body.
type parted interface {
	// parts returns what to send. status counts if the answer has none of its own.
	parts(status int) (int, http.Header, any)
}

func (a Answer[Out]) parts(status int) (int, http.Header, any) {
	return cmp.Or(a.Status, status), a.Header, a.Body
}
