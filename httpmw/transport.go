package httpmw

import (
	"context"
	"net/http"
	"slices"

	"github.com/oncebox/oncebox/idempotency"
)

// Transport is an http.RoundTripper that gives the requests which a handler sends an Idempotency-Key, so that the other side
// executes them once however often the handler is run. The request's context must be the handler's, or made from it.
//
// The key is made from that of the request, or of the message, which the handler handles, the step in which it is sent,
// its method, its URL with the query, and how many of these were sent in this run. So it is the same when the handler is run
// again, if that sends the same requests in the same order: requests to one URL that are sent at the same time need keys
// that the handler chooses, and so do those whose URL is another one each time.
//
// A request that is sent again within a run is a further one and gets another key. What retries within a run belongs into
// Base, below this Transport; or the handler sets one key, of [idempotency.CallKey], on all attempts. A unit of work that a
// handler without a transaction opens may be run again as well: send from a step, or outside of it.
//
// Requests that have a key, have another method, or are sent in another context pass unchanged.
type Transport struct {
	// Base sends the requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Methods are those that get a key. Default: POST and PATCH.
	Methods []string
	// Key returns what the keys are made from, "" for none; in handlers of messages it is inbox.Key. In a context that
	// counts no calls, see [idempotency.NewContext], requests then fail. Default: [idempotency.FromContext].
	Key func(context.Context) string
	// Quoted writes keys in double quotes, as the draft of the header says. Default: false, as most services have it.
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
	url.User, url.Fragment, url.RawFragment = nil, "", "" // neither is sent, and the first may be replaced
	key, err := idempotency.CallKey(r.Context(), from, r.Method, url.String())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper has to
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
