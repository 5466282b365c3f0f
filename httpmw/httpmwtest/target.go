package httpmwtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"time"
)

// Request is a request that the suite sends. The suite adds the key.
type Request struct {
	// URL is the address of another process of the service, if the request goes to it. Default: Target.URL.
	URL string `json:"url"`
	// Method defaults to POST.
	Method string `json:"method"`
	// Path is the path, perhaps with a query.
	Path string `json:"path"`
	// Header has the headers. Default of Content-Type: application/json.
	Header map[string]string `json:"header"`
	Body   string            `json:"body"`
}

// with returns the request with more headers, for example those of a caller.
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
	// Create is a request that is answered with 2xx, and differently each time that it is executed, for example with an id that the
	// service chooses. Required.
	Create Request `json:"create"`
	// ChangedBody is another body for Create, with another meaning. Required.
	ChangedBody string `json:"changed_body"`

	// Distinct says that the answers of the other requests differ with each execution, too, also refusals.
	Distinct bool `json:"distinct"`
	// Effects counts what executions have committed. Default: nil, the suite judges by the answers alone.
	Effects func() (int, error) `json:"-"`
	// EffectsAt is where the service reports the number of committed executions, in place of Effects.
	EffectsAt *Count `json:"effects"`
	// ProblemBase is what the types of problems begin with. Default: "/problems/".
	ProblemBase string `json:"problem_base"`
	// ReusedStatus is the status for a key that was used with another request. Default: 422.
	ReusedStatus int `json:"reused_status"`
	// Patience is how long the suite waits for an event, such as the end of a lease, and how long it tries to meet a request in flight. Default: 30
	// seconds.
	Patience time.Duration `json:"-"`

	// Required is a request that the service refuses without a key.
	Required *Request `json:"required"`
	// Optional is a request that is executed without a key, too, and whose answer differs with each execution.
	Optional *Request `json:"optional"`
	// Untouched lists requests with methods for which the service ignores keys.
	Untouched []Request `json:"untouched"`
	// Keyed lists requests with other methods than Create's for which keys count.
	Keyed []Request `json:"keyed"`
	// Elsewhere lists requests with another method or path that can take Create's key.
	Elsewhere []Request `json:"elsewhere"`

	// Callers has, for each caller, the headers that identify it. No caller may get another's answers: they are different users or tenants.
	Callers []map[string]string `json:"callers"`
	// Refreshed has the headers of Create's caller with a renewed token.
	Refreshed map[string]string `json:"refreshed"`
	// Nobody has headers that identify no caller known to the service.
	Nobody map[string]string `json:"nobody"`
	// NoTenant is a request of a known caller without a tenant, on a route that requires one.
	NoTenant *Request `json:"no_tenant"`
	// Stranger has the headers of a caller who may not send Create. The service answers with 401 or 403.
	Stranger map[string]string `json:"stranger"`

	// Rich is a request whose answer has all replayed headers, and Set-Cookie, Www-Authenticate and X-Request-Id. Its handler may set
	// Idempotent-Replayed, as a service does that passes on another service's answer.
	Rich *Request `json:"rich"`
	// Extra is a request whose answer has ExtraHeaders, which its route replays in addition.
	Extra        *Request `json:"extra"`
	ExtraHeaders []string `json:"extra_headers"`
	// Answers has requests, by the status of their answer.
	Answers map[int]Request `json:"answers"`
	// Compressed is a request whose answer is compressed if, and only if, Accept-Encoding is gzip. Something in front of the middleware
	// compresses it.
	Compressed *Request `json:"compressed"`
	// Slow is a request that takes about a second. SlowLeased is true if its handler works under a lease.
	Slow       *Request `json:"slow"`
	SlowLeased bool     `json:"slow_leased"`
	// Large is a request whose answer is too large to be stored, and has a Location. The first client gets it.
	Large *Request `json:"large"`
	// NotHeld lists requests whose answers cannot be held until COMMIT, and which are answered with 500.
	NotHeld []Request `json:"not_held"`
	// MaxBody is the largest request body that the service accepts, in bytes.
	MaxBody int `json:"max_body"`

	// Panics is a request whose handler panics at the first execution with a key. The second execution answers with 2xx.
	Panics *Request `json:"panics"`
	// Aborts is a request whose COMMIT fails at the first execution with a key, and succeeds at the second.
	Aborts *Request `json:"aborts"`
	// Conflicts is a request that has a deadlock or a serialization failure at the first execution with a key.
	Conflicts *Request `json:"conflicts"`
	// RunsOnce is like Conflicts, on a route that does not run its handler again.
	RunsOnce *Request `json:"runs_once"`
	// Down is a request to a process that cannot reach the database of the keys.
	Down *Request `json:"down"`
	// Waits is a slow request on a route where later requests with its key wait for the answer instead of a 409.
	Waits *Request `json:"waits"`
	// Impatient is a slow request on a route where later requests wait, but for less time than it takes.
	Impatient *Request `json:"impatient"`
	// Leased is a slow request whose handler works under a lease.
	Leased *Request `json:"leased"`
	// TakenOver is a request whose handler works under a lease of about a second. At the first execution with a key its process is lost.
	TakenOver *Request `json:"taken_over"`
	// Unknown is a request that leaves the outcome of a step unknown at the first execution with a key.
	Unknown *Request `json:"unknown"`
	// Resolve records that the step of Unknown was done, as an operator would.
	Resolve func() error `json:"-"`
	// Recovers is like Unknown, on a route that finds out by itself that the step was done.
	Recovers *Request `json:"recovers"`
	// Excludes is a request. Its body and ExcludedBody differ only in members that its route does not compare.
	Excludes     *Request `json:"excludes"`
	ExcludedBody string   `json:"excluded_body"`
	// Versioned is a request that becomes one for another version of the interface with the headers OtherVersion.
	Versioned    *Request          `json:"versioned"`
	OtherVersion map[string]string `json:"other_version"`
	// Conditional is a request that is answered with 428, and with 2xx if it has the headers Precondition.
	Conditional  *Request          `json:"conditional"`
	Precondition map[string]string `json:"precondition"`
	// Keeps is a request whose answer of 400 or more is stored on its route, while other routes would free the key.
	Keeps *Request `json:"keeps"`
	// Strict is a request on a route that accepts only keys in quotes.
	Strict *Request `json:"strict"`
	// LongKeys is a request on a route whose keys need at least MinKey characters.
	LongKeys *Request `json:"long_keys"`
	MinKey   int      `json:"min_key"`
	// Published says that the types of problems are the addresses of pages, below ProblemBase, together with an index and openapi.json.
	Published bool `json:"published"`
	// Expires is a request whose answers are kept for at least a second, and for a few seconds at most.
	Expires *Request `json:"expires"`
}

// ReadTarget reads the description of a service from a file in JSON.
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

// counts reports whether the target counts executions.
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
