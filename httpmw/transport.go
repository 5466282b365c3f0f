package httpmw

import (
	"context"
	"net/http"
	"slices"

	"github.com/oncebox/oncebox/idempotency"
)

// Transport is an http.RoundTripper that adds an Idempotency-Key to the requests of a handler, so that the other side executes them once however
// often the handler is run. The request's context must be the handler's, or made from it.
//
// The key is made from five things: the key of the request or message that the handler handles, the step in which it sends, the method, the URL
// with the query, and how many requests with this method and URL were sent before in this run. So the key is the same when the handler is run again
// and sends the same requests in the same order. The handler has to choose keys itself if it sends requests to one URL at the same time, or if the
// URL changes from run to run.
//
// A request that is sent again within a run gets another key. So put retries within a run into Base, below this Transport, or set one key of
// [idempotency.CallKey] on all attempts. A unit of work that a handler without a transaction opens may be run again as well: send from a step, or
// outside of the unit.
//
// Requests that have a key, have another method, or are sent in another context pass unchanged.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Methods are the methods of requests that get a key. Default: POST and PATCH.
	Methods []string
	// Key returns the text from which the keys are made, "" for no keys; in handlers of messages use inbox.Key. Requests fail if Key returns a text
	// and their context counts no calls, see [idempotency.NewContext]. Default: [idempotency.FromContext].
	Key func(context.Context) string
	// Quoted writes keys in double quotes, as the draft of the header demands. Default: false, which most services expect.
	Quoted bool
}

// RoundTrip sends a copy of the request.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	base, methods, find := t.Base, t.Methods, t.Key
	if base == nil {
		base = http.DefaultTransport
	}
	if methods == nil {
		methods = defaultMethods()
	}
	if find == nil {
		find = idempotency.FromContext
	}
	from := find(r.Context())
	if from == "" || len(r.Header.Values("Idempotency-Key")) > 0 || !slices.Contains(methods, r.Method) {
		return base.RoundTrip(r)
	}
	url := *r.URL
	url.User, url.Fragment, url.RawFragment = nil, "", "" // neither is sent, and a password may change between runs
	key, err := idempotency.CallKey(r.Context(), from, r.Method, url.String())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // RoundTripper demands it, also after an error
		}
		return nil, err
	}
	if t.Quoted {
		key = `"` + key + `"`
	}
	r = r.Clone(r.Context())
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set("Idempotency-Key", key)
	return base.RoundTrip(r)
}
