package httpmw

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/oncebox/oncebox/httpmw/internal/fingerprint"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/configs"
	"github.com/oncebox/oncebox/telemetry"
)

const (
	// DefaultMaxAnswer is the default of IdempotencyConfig.MaxAnswer, in bytes.
	DefaultMaxAnswer = 1 << 20
	// DefaultMaxHeld is the default of IdempotencyConfig.MaxHeld, in bytes.
	DefaultMaxHeld = 16 << 20
	// DefaultTimeout is the default of IdempotencyConfig.Timeout.
	DefaultTimeout = 30 * time.Second
	// DefaultRetryAfter is the default of IdempotencyConfig.RetryAfter.
	DefaultRetryAfter = time.Second
	// DefaultChallenge is the default of IdempotencyConfig.Challenge: it asks for a bearer token (RFC 6750).
	DefaultChallenge = `Bearer realm="api"`
)

// defaultMethods are the two that repeat their effect when they are repeated: PUT and DELETE are
// idempotent (RFC 9110, section 9.2.2).
func defaultMethods() []string { return []string{http.MethodPost, http.MethodPatch} }

// safe reports whether the method only reads (RFC 9110, section 9.2.1).
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// DefaultKeep reports whether an answer of 400 or more is stored for retries: a repeated request would get the same answer. It returns false where
// another answer is possible, because this one depends on
//
//   - the caller's rights: 401, 403, 407
//   - the state of the resource, and the client's conditions on it: 409, 412, 423, 428
//   - the connection: 408, 421, 425, 426
//   - the moment: 429, and 500 and above
func DefaultKeep(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired,
		http.StatusConflict, http.StatusPreconditionFailed, http.StatusLocked, http.StatusPreconditionRequired,
		http.StatusRequestTimeout, http.StatusMisdirectedRequest, http.StatusTooEarly, http.StatusUpgradeRequired,
		http.StatusTooManyRequests:
		return false
	}
	return status < http.StatusInternalServerError
}

// IdempotencyConfig configures [Idempotency].
type IdempotencyConfig struct {
	// Required refuses a request without a key with 400, if its method is one of Methods. Default: false, requests without a key pass through, are not
	// protected, and have no unit of work, unless [UnitOfWork] is mounted within.
	Required bool
	// RequireTenant answers 400 to a request with a key if neither the [ScopeFunc] nor [Tenant] has set a tenant. Set RequireTenant in a service with
	// tenants, because all requests without a tenant share one set of keys. Default: false, a key without a tenant belongs to the default tenant of the
	// store.
	RequireTenant bool
	// Methods are the HTTP methods whose requests use keys. Requests with other methods pass through unchanged, with or without a key. A safe method,
	// such as GET, must not be listed. If Required is true, the log has a warning about the first request with a method, such as PUT or DELETE, that is
	// neither safe nor listed: the request has no protection against repetition. Default: POST and PATCH.
	Methods []string
	// MaxBody is the size of the largest request body, in bytes. A request with a larger body is answered 413. Default: 1 MiB. With -1 there is no limit.
	MaxBody int64
	// MaxAnswer is the size of the largest answer that is stored with its body, in bytes. After a larger answer, retries of the request are answered
	// 410. With -1 there is no limit except MaxHeld. Default: 1 MiB.
	MaxAnswer int
	// MaxHeld is the size of the largest answer that a handler may give, in bytes. In place of a larger answer the client gets a 500, and the work is
	// rolled back. Default: 16 MiB. With -1 there is no limit.
	MaxHeld int
	// Headers are the names of response headers to store with an answer, in addition to those of [StoredHeaders]. A name may end in a star: X-Payment-*
	// stands for all headers that begin with X-Payment-. Default: none.
	Headers []string
	// TokenHeader is the header in which an answer below 400 carries the [uow.Token] of the request's events, for inbox.Inbox.Await. The token replaces
	// a value that the handler has set in the same header. Replays carry the same token. An answer without events has no token. The token costs one more
	// round trip to the database. With Lease the handler has units of work of its own, so the handler sets the header itself with [uow.WithToken].
	// Default: none, answers carry no token.
	TokenHeader string
	// Timeout is the longest time for the work on one request. The work goes on when the client goes away. Default: 30s. With -1 there is no limit.
	Timeout time.Duration
	// RetryAfter is how long a client is asked to wait before it sends a request again (header Retry-After), in whole seconds, rounded up. With Lease the
	// header grows while the first request runs: it has the time since its process took or renewed the lease, and at most the rest of the lease. Then
	// RetryAfter is the smallest value. Default: 1s.
	RetryAfter time.Duration
	// RunOnce prevents a second run of a handler after a deadlock, a serialization failure or a conflict of versions. The client gets the error answer.
	// With Lease a handler is never run again for these reasons. Default: false.
	RunOnce bool
	// Wait is how long a request waits for the answer of another request with the same key before it is answered 409. A waiting request holds no
	// connection to the database. The timeouts of clients and proxies must be longer than Wait. Default: 0, a 409 at once.
	Wait time.Duration
	// Exclude are JSON pointers ("/sent_at", "/client/trace_id") to members of JSON bodies. These members may differ when a request is sent again.
	// Default: none.
	Exclude []string
	// Fingerprint returns the bytes that are compared in place of the body, content type and content encoding of a request. Set Fingerprint if the
	// service has its own rule for which requests are the same. The argument body must not be changed. The request's Body can be read as well. Method,
	// path, query, preconditions and APIVersion are always compared, and Exclude has no effect. If Fingerprint returns an error, the answer is 400,
	// request-body-unreadable. Fingerprint must return the same bytes for a request during idempotency.Config.TTL, also in a new version of the service.
	// Otherwise retries are refused. Default: nil, the contents of bodies are compared.
	Fingerprint FingerprintFunc
	// APIVersion returns the version of the API that a request is for. Set APIVersion if path, query and content type do not show the version. A key
	// that was used with one version is refused with another version. Default: nil, no version is compared.
	APIVersion func(*http.Request) string
	// Keep reports which answers of 400 and more are stored for retries. If an answer is not stored, the key is free. The work of the handler is rolled
	// back whether its answer is stored or not, except with Lease. Keep is not called for answers below 400, which are always stored. The 404 or 405 of
	// a router that has no route for the request is never stored, and Keep is not called. Default: [DefaultKeep].
	Keep func(status int) bool
	// StrictKey refuses keys without quotes, as the draft of the header Idempotency-Key demands. Default: false, a key is the same with and without
	// quotes.
	StrictKey bool
	// MinKey is the smallest number of characters of a key, up to 255. A shorter key is answered 400. Default: 1.
	MinKey int
	// ReusedStatus is the status, 400 to 499, of the answer to a request whose key was used before for another request. Default: 422.
	ReusedStatus int
	// Challenge is the header WWW-Authenticate of the 401 for a request with a key and without a principal (RFC 9110, section 11.6.1). If an outer
	// middleware has set this header, the header stays as it is. Default: Bearer realm="api".
	Challenge string
	// WithoutUnit turns off the warning about a handler that answers below 400 and has not used its unit of work. Set WithoutUnit for a handler that
	// does nothing in the unit of work on purpose. With Lease a handler has no unit of work, and causes no warning. Default: false, the warning is
	// logged once for each route.
	WithoutUnit bool
	// EmptyAnswer answers 200 for a handler that writes neither a status nor a body, as net/http does. Without EmptyAnswer such a handler counts as
	// failed: in some frameworks a failed handler writes nothing, and the framework writes the error answer later. Default: false, the answer is 500,
	// and nothing is committed or stored.
	EmptyAnswer bool
	// Lease runs the handler under a lease without a transaction, for handlers that call other services. Default: nil, the handler runs in a
	// transaction.
	Lease *LeaseConfig
	// ProblemBase is the beginning of the type of an error answer, to which the name of the problem is added. ProblemBase is a path, or the URL of a
	// page about problems. Default: "/problems/".
	ProblemBase string
	// Refuse writes the error answers of the middleware in the format of the service's errors. Answers of handlers are not changed. Pass the same
	// function to [WithRefuse] and [WithTenantRefuse]. Default: nil, application/problem+json.
	Refuse RefuseFunc

	// Telemetry sets where logs, traces and metrics go. The log has the details that clients do not get, and a trace has a span for each request
	// with a key. Default: that of the manager, see [uow.Manager.Telemetry].
	Telemetry telemetry.Config
}

// FingerprintFunc returns the bytes by which requests are compared. See IdempotencyConfig.Fingerprint.
type FingerprintFunc func(r *http.Request, body []byte) ([]byte, error)

// fingerprints returns what compares requests. It fails if Exclude has a pointer that cannot be parsed.
func (c *IdempotencyConfig) fingerprints() (*fingerprint.Printer, error) {
	return fingerprint.New(fingerprint.Config{Exclude: c.Exclude, APIVersion: c.APIVersion, Own: c.Fingerprint, MaxBody: c.MaxBody})
}

// Validate names every field that cannot be used.
func (c *IdempotencyConfig) Validate() error {
	check := configs.CheckOf("httpmw: IdempotencyConfig")
	check.That(c.MaxBody >= -1, "MaxBody", c.MaxBody, "give bytes, or -1 for no limit")
	check.That(c.MaxAnswer >= -1, "MaxAnswer", c.MaxAnswer, "give bytes, or -1 for no limit")
	check.That(c.MaxHeld >= -1, "MaxHeld", c.MaxHeld, "give bytes, or -1 for no limit")
	check.That(c.Timeout >= -1, "Timeout", c.Timeout, "give a duration, or -1 for no limit")
	check.That(c.RetryAfter >= 0, "RetryAfter", c.RetryAfter, "give a duration")
	check.Add(c.Lease.validate())
	check.That(c.Wait >= 0, "Wait", c.Wait, "give a duration, or 0 for a 409 at once")
	check.That(c.MinKey >= 0 && c.MinKey <= idempotency.MaxKey, "MinKey", c.MinKey, fmt.Sprintf("give a length up to %d", idempotency.MaxKey))
	check.That(c.ReusedStatus == 0 || c.ReusedStatus >= 400 && c.ReusedStatus <= 499, "ReusedStatus", c.ReusedStatus, "give a status of 400 to 499")
	if _, err := c.fingerprints(); err != nil {
		check.Add(fmt.Errorf("httpmw: IdempotencyConfig.Exclude: %w", err))
	}
	// nil means the default, so an empty list would be a mistake that is hard to see.
	if c.Methods != nil && len(c.Methods) == 0 {
		check.Add(errors.New("httpmw: IdempotencyConfig.Methods is empty, so no request would be protected: name methods, or leave it nil for the default"))
	}
	check.Add(c.validateNames())
	return check.Err()
}

// validateNames names methods and headers that cannot be used.
func (c *IdempotencyConfig) validateNames() error {
	var errs []error
	for _, m := range c.Methods {
		switch {
		case m == "" || m != strings.ToUpper(m):
			errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.Methods names %q: methods are written in upper case", m))
		case safe(m):
			errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.Methods names %s, which changes nothing and needs no key: remove it", m))
		}
	}
	if c.TokenHeader != "" && (neverStored(c.TokenHeader) || !headerName(c.TokenHeader)) {
		errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.TokenHeader is %q, a header that replays do not repeat: name a header of your "+
			"own", c.TokenHeader))
	}
	for _, name := range c.Headers {
		switch {
		case name == "*":
			errs = append(errs, errors.New("httpmw: IdempotencyConfig.Headers contains \"*\", which is not a header: name each header that replays shall "+
				"repeat"))
		case neverStored(name):
			errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.Headers names %s, which describes one answer only and must not be replayed: remove "+
				"it", name))
		}
	}
	return errors.Join(errs...)
}

// WithDefaults returns a copy in which unset fields have their defaults. A nil config counts as the zero value.
func (c *IdempotencyConfig) WithDefaults() IdempotencyConfig {
	out := configs.Copy(c)
	if out.Methods == nil {
		out.Methods = defaultMethods()
	}
	out.MaxBody = cmp.Or(out.MaxBody, DefaultMaxBody)
	out.MaxAnswer = cmp.Or(out.MaxAnswer, DefaultMaxAnswer)
	out.MaxHeld = cmp.Or(out.MaxHeld, DefaultMaxHeld)
	out.Timeout = cmp.Or(out.Timeout, DefaultTimeout)
	out.RetryAfter = cmp.Or(out.RetryAfter, DefaultRetryAfter)
	if out.Keep == nil {
		out.Keep = DefaultKeep
	}
	out.MinKey = cmp.Or(out.MinKey, 1)
	out.ReusedStatus = cmp.Or(out.ReusedStatus, http.StatusUnprocessableEntity)
	out.Challenge = cmp.Or(out.Challenge, DefaultChallenge)
	out.ProblemBase = cmp.Or(out.ProblemBase, DefaultProblemBase)
	return out
}
