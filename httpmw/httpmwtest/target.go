package httpmwtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"time"
)

// Request is what is sent. The suite adds the key.
type Request struct {
	// URL is where another process of the service is. Default: that of the target.
	URL string `json:"url"`
	// Method defaults to POST.
	Method string `json:"method"`
	// Path may have a query.
	Path string `json:"path"`
	// Header has a Content-Type of application/json unless it says otherwise.
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
}

// with returns the request with other headers: those of a caller.
func (r Request) with(header map[string]string) Request {
	merged := maps.Clone(r.Header)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, header)
	r.Header = merged
	return r
}

// Target describes a service for the suite. Only the first three fields are required. Without the others, the rows that need them are not run.
type Target struct {
	// URL is where the service is, without a slash at its end. Required.
	URL string `json:"url"`
	// Create is answered with 2xx, and differently each time it is executed, for example with an id that the service
	// chooses. Required.
	Create Request `json:"create"`
	// ChangedBody is another body for Create, with another meaning. Required.
	ChangedBody string `json:"changed_body"`

	// Distinct says that the other requests, too, are answered differently each time they are executed, refusals as well.
	Distinct bool `json:"distinct"`
	// Effects counts what executions have committed. Default: nil, the suite judges by the answers alone.
	Effects func() (int, error) `json:"-"`
	// EffectsAt is the URL at which the service reports that number, in place of Effects.
	EffectsAt *Count `json:"effects"`
	// ProblemBase is the beginning of the types of problems. Default: "/problems/".
	ProblemBase string `json:"problem_base"`
	// ReusedStatus is the status of the answer to a key that was used with another request. Default: 422.
	ReusedStatus int `json:"reused_status"`
	// Patience is how long the suite waits for an event, such as the end of a lease, and how long it tries to meet a request in flight. Default: 30
	// seconds.
	Patience time.Duration `json:"-"`

	// Required is a request that is refused without a key.
	Required *Request `json:"required"`
	// Optional is a request that is executed without a key, and answered differently each time.
	Optional *Request `json:"optional"`
	// Untouched are requests for whose methods keys do not count.
	Untouched []Request `json:"untouched"`
	// Keyed are requests for whose methods keys count.
	Keyed []Request `json:"keyed"`
	// Elsewhere are requests that are as good as Create, with another method or path.
	Elsewhere []Request `json:"elsewhere"`

	// Callers are headers for Create, each of a caller that shares no answers with the others: other users, other tenants.
	Callers []map[string]string `json:"callers"`
	// Refreshed are headers of the caller that sends Create as it is, with another token.
	Refreshed map[string]string `json:"refreshed"`
	// Nobody are headers without a caller that the service knows.
	Nobody map[string]string `json:"nobody"`
	// NoTenant is a request of a caller that is known and names no tenant, on a route that needs one.
	NoTenant *Request `json:"no_tenant"`
	// Stranger are headers whose sender may not send Create. The service answers with 401 or 403.
	Stranger map[string]string `json:"stranger"`

	// Rich is answered with all replayed headers, and with Set-Cookie, Www-Authenticate and X-Request-Id. Its handler may set Idempotent-Replayed, as
	// a service that passes on the answer of another service does.
	Rich *Request `json:"rich"`
	// Extra is answered with headers that its route replays in addition, ExtraHeaders.
	Extra        *Request `json:"extra"`
	ExtraHeaders []string `json:"extra_headers"`
	// Answers are requests by the status that they are answered with.
	Answers map[int]Request `json:"answers"`
	// Compressed is answered with gzip if, and only if, its Accept-Encoding is that. Something before the middleware compresses.
	Compressed *Request `json:"compressed"`
	// Slow takes about a second. SlowLeased says that its handler works under a lease.
	Slow       *Request `json:"slow"`
	SlowLeased bool     `json:"slow_leased"`
	// Large has an answer with a Location that is too large to be stored, and is sent to the first client.
	Large *Request `json:"large"`
	// NotHeld are requests with answers that cannot be held until COMMIT: 500.
	NotHeld []Request `json:"not_held"`
	// MaxBody is the largest body that is taken, in bytes.
	MaxBody int `json:"max_body"`

	// Panics panics when it is executed for the first time under a key, and is answered with 2xx when it is again.
	Panics *Request `json:"panics"`
	// Aborts cannot be committed when it is executed for the first time under a key, and is when it is again.
	Aborts *Request `json:"aborts"`
	// Conflicts loses a deadlock, or has a serialization failure, when it is executed for the first time under a key.
	Conflicts *Request `json:"conflicts"`
	// RunsOnce is a request like Conflicts on a route that does not run its handler again.
	RunsOnce *Request `json:"runs_once"`
	// Down is a request that cannot reach the database of the keys.
	Down *Request `json:"down"`
	// Waits is slow as well, on a route where others wait for its answer instead of a 409.
	Waits *Request `json:"waits"`
	// Impatient is slow as well, on a route where others wait, but not for as long as it takes.
	Impatient *Request `json:"impatient"`
	// Leased is slow as well, on a route whose handler works under a lease.
	Leased *Request `json:"leased"`
	// TakenOver is on such a route; when it is executed for the first time under a key, its process is lost, with a lease of about a
	// second.
	TakenOver *Request `json:"taken_over"`
	// Unknown leaves the outcome of a step unknown when it is executed for the first time under a key.
	Unknown *Request `json:"unknown"`
	// Resolve resolves the step of Unknown as done, as an operator would.
	Resolve func() error `json:"-"`
	// Recovers is a request like Unknown, on a route that finds out by itself that the step was done.
	Recovers *Request `json:"recovers"`
	// Excludes is a request. ExcludedBody differs from its body only in what its route does not compare.
	Excludes     *Request `json:"excludes"`
	ExcludedBody string   `json:"excluded_body"`
	// Versioned is a request that OtherVersion, headers, makes one for another version of the interface.
	Versioned    *Request          `json:"versioned"`
	OtherVersion map[string]string `json:"other_version"`
	// Conditional is answered with 428 as it is, and with 2xx if it has the headers Precondition.
	Conditional  *Request          `json:"conditional"`
	Precondition map[string]string `json:"precondition"`
	// Keeps is a request whose answer, of 400 or more, is kept on its route, and would free the key elsewhere.
	Keeps *Request `json:"keeps"`
	// Strict is a request on a route that wants its keys in quotes.
	Strict *Request `json:"strict"`
	// LongKeys is a request on a route whose keys have MinKey characters at least.
	LongKeys *Request `json:"long_keys"`
	MinKey   int      `json:"min_key"`
	// Published says that the types of problems are pages, at ProblemBase, with an index and openapi.json beside them.
	Published bool `json:"published"`
	// Expires is a request whose answers are kept for a second at least, and for a few seconds only.
	Expires *Request `json:"expires"`
}

// ReadTarget reads the description of a service, in JSON.
func ReadTarget(file string) (Target, error) {
	text, err := os.ReadFile(file) //nolint:gosec // the runner of the test says which
	if err != nil {
		return Target{}, fmt.Errorf("httpmwtest: read the target: %w", err)
	}
	var target Target
	if err := json.Unmarshal(text, &target); err != nil {
		return Target{}, fmt.Errorf("httpmwtest: read the target from %s: %w", file, err)
	}
	return target, nil
}

// counts reports whether effects are counted.
func (t Target) counts() bool { return t.Effects != nil || t.EffectsAt != nil }

func (t Target) withDefaults() Target {
	if t.ProblemBase == "" {
		t.ProblemBase = "/problems/"
	}
	if t.ReusedStatus == 0 {
		t.ReusedStatus = http.StatusUnprocessableEntity
	}
	if t.Patience == 0 {
		t.Patience = defaultPatience
	}
	if t.Create.Method == "" {
		t.Create.Method = http.MethodPost
	}
	return t
}
