package httpmw

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

const (
	// DefaultMaxAnswer is the largest answer that is stored with its body, in bytes.
	DefaultMaxAnswer = 1 << 20
	// DefaultMaxHeld is the largest answer that is held until COMMIT, in bytes.
	DefaultMaxHeld = 16 << 20
	// DefaultTimeout is how long the work for one request may take.
	DefaultTimeout = 30 * time.Second
	// DefaultRetryAfter is how long clients are asked to wait.
	DefaultRetryAfter = time.Second
)

// StoredHeaders returns the headers of an answer that replays have as well: those that describe the body or what was
// made. Cookies, dates, challenges, limits and ids of the request belong to the first answer only.
func StoredHeaders() []string {
	return []string{
		"Content-Encoding", "Content-Language", "Content-Location", "Content-Type", "Etag", "Last-Modified", "Link", "Location",
	}
}

// neverStored are headers that no configuration can have replayed: they belong to one connection, one moment or one
// caller.
func neverStored() []string {
	return []string{
		"Authorization", "Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Www-Authenticate",
	}
}

// IdempotencyConfig configures [Idempotency].
type IdempotencyConfig struct {
	// Required refuses requests without a key. Default: false, they pass through and are not protected.
	Required bool
	// Methods are those that a key counts for; others pass through untouched. Default: POST and PATCH.
	Methods []string
	// MaxBody is the largest request body in bytes; -1: no limit. Default: 1 MiB.
	MaxBody int64
	// MaxAnswer is the largest answer that is stored with its body, in bytes; -1: all that can be held. Default: 1 MiB.
	MaxAnswer int
	// MaxHeld is the largest answer that a handler may give, in bytes; -1: no limit. Default: 16 MiB.
	MaxHeld int
	// Headers are stored in addition to [StoredHeaders]. Default: none.
	Headers []string
	// Timeout bounds the work for one request, which does not end when the client goes away; -1: no limit. Default: 30s.
	Timeout time.Duration
	// RetryAfter is how long clients are asked to wait before they try again. Default: 1s.
	RetryAfter time.Duration
	// RunOnce does not run the handler again after a deadlock, a serialization failure or a conflict of versions, but
	// answers what it answered. Default: false.
	RunOnce bool
	// ProblemBase is what the types of problems begin with: a path, or the URL of a page about them. Default: "/problems/".
	ProblemBase string

	// Logger gets what clients are not told. Default: slog.Default().
	Logger *slog.Logger
	// TracerProvider makes a span for each request with a key. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
}

// Validate names every field that cannot be used.
func (c *IdempotencyConfig) Validate() error {
	var errs []error
	for name, n := range map[string]int64{
		"MaxBody": c.MaxBody, "MaxAnswer": int64(c.MaxAnswer), "MaxHeld": int64(c.MaxHeld),
	} {
		if n < -1 {
			errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.%s is %d: give bytes, or -1 for no limit", name, n))
		}
	}
	if c.Timeout < 0 && c.Timeout != -1 {
		errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.Timeout is %s: give a duration, or -1 for no limit", c.Timeout))
	}
	if c.RetryAfter < 0 {
		errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.RetryAfter is %s: give a duration", c.RetryAfter))
	}
	for _, name := range c.Headers {
		if slices.Contains(neverStored(), http.CanonicalHeaderKey(name)) {
			errs = append(errs, fmt.Errorf("httpmw: IdempotencyConfig.Headers names %s, which must not be replayed", name))
		}
	}
	return errors.Join(errs...)
}

func (c *IdempotencyConfig) withDefaults() IdempotencyConfig {
	var out IdempotencyConfig
	if c != nil {
		out = *c
	}
	if out.Methods == nil {
		out.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	if out.MaxBody == 0 {
		out.MaxBody = DefaultMaxBody
	}
	if out.MaxAnswer == 0 {
		out.MaxAnswer = DefaultMaxAnswer
	}
	if out.MaxHeld == 0 {
		out.MaxHeld = DefaultMaxHeld
	}
	if out.Timeout == 0 {
		out.Timeout = DefaultTimeout
	}
	if out.RetryAfter == 0 {
		out.RetryAfter = DefaultRetryAfter
	}
	if out.ProblemBase == "" {
		out.ProblemBase = DefaultProblemBase
	}
	return out
}
