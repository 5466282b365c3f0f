package httpmw

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/uow"
)

// ScopeFunc says whose key it is: tenant and principal, from what authentication found out, or [idempotency.Anonymous] on
// purpose. It must not read the body. Method and path are filled in from the request unless it sets one of them, and the
// key always is. An error is answered with 400 and logged.
type ScopeFunc func(*http.Request) (idempotency.Scope, error)

// Idempotency returns a middleware that executes a request with an Idempotency-Key once and answers every retry with the
// stored answer. The package documentation says what exactly is promised and where to mount it. It panics if an argument
// is missing or cfg is invalid.
func Idempotency(m *uow.Manager, s *idempotency.Store, scope ScopeFunc, cfg *IdempotencyConfig) func(http.Handler) http.Handler {
	switch {
	case m == nil:
		panic("httpmw: Idempotency: the manager is nil: pass uow.New(db, ...)")
	case s == nil:
		panic("httpmw: Idempotency: the store is nil: pass idempotency.NewStore(...)")
	case scope == nil:
		panic("httpmw: Idempotency: the scope function is nil: return tenant and principal, or idempotency.Anonymous on purpose")
	}
	c := cfg.withDefaults()
	if err := c.Validate(); err != nil {
		panic(err)
	}
	stored := map[string]bool{}
	for _, name := range append(StoredHeaders(), c.Headers...) {
		stored[http.CanonicalHeaderKey(name)] = true
	}
	return func(next http.Handler) http.Handler {
		return &keyed{
			next: next, units: m, store: s, scope: scope, cfg: c, stored: stored,
			retryAfter: strconv.FormatInt(int64((c.RetryAfter+time.Second-1)/time.Second), 10),
			log:        otelx.Logger(c.Logger),
			tracer:     otelx.Tracer(c.TracerProvider, "httpmw"),
			requests: otelx.Counter(otelx.Meter(c.MeterProvider, "httpmw"), "oncebox.idempotency.requests",
				"Requests with an idempotency key, by outcome"),
		}
	}
}

// What became of a request with a key, as the metric counts it.
const (
	outcomeExecuted   = "executed"
	outcomeReleased   = "released"
	outcomeReplayed   = "replayed"
	outcomeInProgress = "in_progress"
	outcomeMismatch   = "mismatch"
	outcomeRefused    = "refused"
	outcomeFailed     = "failed"
	outcomePanicked   = "panicked"
)

// keyed is the handler that the middleware makes.
type keyed struct {
	next       http.Handler
	units      *uow.Manager
	store      *idempotency.Store
	scope      ScopeFunc
	cfg        IdempotencyConfig
	stored     map[string]bool
	retryAfter string

	log      *slog.Logger
	tracer   trace.Tracer
	requests metric.Int64Counter
}

// ServeHTTP answers after COMMIT.
func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lines := r.Header.Values("Idempotency-Key")
	if !slices.Contains(k.cfg.Methods, r.Method) || len(lines) == 0 && !k.cfg.Required {
		k.next.ServeHTTP(w, r)
		return
	}
	ctx, span := k.tracer.Start(r.Context(), "httpmw.Idempotency")
	outcome := outcomePanicked
	defer func() {
		attr := attribute.String("outcome", outcome)
		span.SetAttributes(attr)
		span.End()
		k.requests.Add(ctx, 1, metric.WithAttributes(attr))
	}()
	a, o := k.handle(ctx, w, r, lines)
	outcome = o
	a.write(w)
}

// handle checks what can be checked without the database, and reads the body, before a connection is taken.
func (k *keyed) handle(ctx context.Context, w http.ResponseWriter, r *http.Request, lines []string) (*answer, string) {
	refuse := func(p problem) (*answer, string) {
		return p.answer(w, k.cfg.ProblemBase, k.retryAfter), outcomeRefused
	}
	if _, within := uow.FromContext(ctx); within {
		k.log.ErrorContext(ctx, "oncebox: httpmw.Idempotency is mounted within a transaction: mount it outside UnitOfWork, "+
			"its answers are sent after its own COMMIT")
		return refuse(misplaced())
	}
	if len(lines) == 0 {
		return refuse(keyMissing())
	}
	text, reason := parseKey(lines)
	if reason != "" {
		return refuse(keyInvalid(reason))
	}
	key, err := k.identify(r, text)
	switch {
	case errors.Is(err, idempotency.ErrNoPrincipal):
		return refuse(principalMissing())
	case err != nil:
		k.log.WarnContext(ctx, "oncebox: no scope for an idempotency key", "error", err)
		return refuse(scopeInvalid())
	}
	e, p := read(k.next, w, r, k.cfg.MaxBody)
	if p != nil {
		return refuse(*p)
	}
	// From here on the client may go away: its retry gets the answer.
	ctx = context.WithoutCancel(ctx)
	if k.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.cfg.Timeout)
		defer cancel()
	}
	return k.once(ctx, e, key)
}

func (k *keyed) identify(r *http.Request, text string) (idempotency.Key, error) {
	scope, err := k.scope(r)
	if err != nil {
		return idempotency.Key{}, err
	}
	if scope.Method == "" && scope.Path == "" {
		scope.Method, scope.Path = r.Method, r.URL.EscapedPath()
	}
	scope.Key = text
	return k.store.Key(scope)
}
