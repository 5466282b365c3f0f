// Package httpjson makes an http.Handler of a function that takes and returns JSON. It works with every router.
//
//	var refusals = httpjson.Errors{
//		http.StatusNotFound: {ErrNoSuchShow},
//		http.StatusConflict: {ErrSoldOut, ErrPaid},
//	}
//
//	mux.Handle("POST /shows/{id}/reservations", once(httpjson.Handler(http.StatusCreated, refusals, s.reserve)))
//
//	func (s *shop) reserve(r *http.Request, in order) (reservation, error) { ... }
//
// A function that sets a header, such as Location, or chooses the status returns an [Answer]. [Mux] gives requests without a route the same format of
// errors. [Read], [Write] and [Errors.Refuse] are parts of the handler, for a handler that needs more, such as a stream.
//
// # Guarantees
//
// The function is called with a body that is one JSON value of its form, and nothing else: a member that is unknown, a second value, bytes that are no
// UTF-8, and more than httpmw.DefaultMaxBody bytes are refused before. An answer is written as a whole: a value that JSON cannot express becomes a 500,
// and under httpmw.Idempotency the work is rolled back.
//
// # Errors
//
// Every refusal is a problem of package httpmw (RFC 9457). A malformed body is answered with 400, or 413 if it is too large, and the detail names the
// member. The answer to an error of the function is in [Errors].
//
// Read first: handler.go:Handler, then errors.go:Errors.
package httpjson
