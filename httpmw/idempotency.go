package httpmw

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/httpmw/internal/fingerprint"
	"github.com/oncebox/oncebox/idempotency"
	"github.com/oncebox/oncebox/internal/backoff"
	"github.com/oncebox/oncebox/internal/otelx"
	"github.com/oncebox/oncebox/uow"
)

// ScopeFunc returns the owner of a key: tenant and principal, as authentication found them, or [idempotency.Anonymous] on purpose. It must not read
// the body. If it sets no tenant, the tenant is that of [Tenant], if that middleware is further out, else the store's default; with
// IdempotencyConfig.RequireTenant the request is refused instead. If it sets no method or path, they are those of the request. The key is always
// that of the request. An error is answered with 400 and logged.
type ScopeFunc func(*http.Request) (idempotency.Scope, error)

// idleGrace is the time that a handler has for its last statements after its Timeout.
const idleGrace = 5 * time.Second

// Idempotency returns a middleware that executes a request with an Idempotency-Key once and answers every retry with the
// stored answer. docs/http.md says what exactly is promised and where to mount it. It panics if an argument
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
	c := cfg.WithDefaults()
	if err := c.Validate(); err != nil {
		panic(err)
	}
	c.Telemetry = c.Telemetry.Or(m.Telemetry())
	c.Telemetry.Logger = otelx.Logger(c.Telemetry.Logger)
	prints, err := c.fingerprints()
	if err != nil {
		panic(err) // cannot happen: Validate has made the same
	}
	units := []uow.Option{uow.WithNestedChecks(), uow.WithIsolation(sql.LevelReadCommitted)} // idempotency.Store.Begin explains the isolation
	if c.RunOnce {
		units = append(units, uow.WithoutRetry())
	}
	var idle []idempotency.BeginOption
	if c.Timeout > 0 {
		idle = append(idle, idempotency.WithIdleTimeout(c.Timeout+idleGrace))
	}
	names := append(StoredHeaders(), c.Headers...)
	if c.TokenHeader != "" {
		names = append(names, c.TokenHeader)
	}
	headers, counted := newHeaderNames(names), otelx.Outcomes(outcomes()...)
	k := &keyed{
		units: m, store: s, mw: s.Middleware(), scope: scope, cfg: c, headers: headers, prints: prints, options: units, idle: idle,
		retryAfter: seconds(c.RetryAfter),
		log:        c.Telemetry.Logger,
		sender:     sender{base: c.ProblemBase, own: c.Refuse, log: c.Telemetry.Logger},
		tracer:     otelx.Tracer(c.Telemetry.TracerProvider, "httpmw"),
		requests: otelx.Started(otelx.Meter(c.Telemetry.MeterProvider, "httpmw"), "oncebox.idempotency.requests",
			"HTTP requests with an idempotency key, by outcome", counted),
		outcomes: counted,
	}
	return func(next http.Handler) http.Handler {
		next = markGoesOn(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { k.serve(next, w, r) })
	}
}

// keyed holds the state that the requests of one [Idempotency] share. There is one, although some routers wrap a handler anew for each request.
type keyed struct {
	units      *uow.Manager
	store      *idempotency.Store
	mw         idempotency.Middleware
	scope      ScopeFunc
	cfg        IdempotencyConfig
	headers    headerNames // headers that are stored with an answer
	prints     *fingerprint.Printer
	retryAfter string
	options    []uow.Option
	idle       []idempotency.BeginOption // limits how long a process that has vanished keeps its locks

	log      *slog.Logger
	sender   sender
	tracer   trace.Tracer
	requests metric.Int64Counter
	outcomes map[string][]metric.AddOption

	unprotected sync.Once // logs once that an unsafe method is not protected
	unused      sync.Map  // routes for which an unused unit was logged
}

// serve handles a request and sends its answer after COMMIT.
func (k *keyed) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	lines := r.Header.Values("Idempotency-Key")
	counts := slices.Contains(k.cfg.Methods, r.Method)
	if !counts && k.cfg.Required && !safe(r.Method) {
		k.unprotected.Do(func() {
			k.log.WarnContext(r.Context(), "oncebox: IdempotencyConfig.Required is set, but a request without protection passes, because its method is "+
				"not in IdempotencyConfig.Methods: add the method there, or do not mount the middleware on this route", "method", r.Method)
		})
	}
	if !counts || len(lines) == 0 && !k.cfg.Required {
		next.ServeHTTP(w, r)
		return
	}
	ctx, span := k.tracer.Start(r.Context(), "httpmw.Idempotency")
	if !span.IsRecording() {
		ctx = r.Context() // with the handler's original context, attributes that it sets on its caller's span are kept
	}
	outcome := outcomePanicked
	defer func() {
		if span.IsRecording() {
			span.SetAttributes(attribute.String("outcome", outcome))
		}
		span.End()
		k.requests.Add(ctx, 1, k.outcomes[outcome]...)
	}()
	a, o := k.handle(ctx, next, w, r, lines)
	if outcome = o; o != outcomeReplayed {
		a.header.Del("Idempotent-Replayed") // only a replay of this middleware may have it; the handler may have copied it from another service's answer
	}
	k.sender.send(a, w, r)
}

// handle runs the checks that need no database, and reads the body, before it takes a connection.
func (k *keyed) handle(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request, lines []string) (*answer, string) {
	refuse := func(p Problem) (*answer, string) { return p.answer(w, k.retryAfter), outcomeRefused }
	if _, within := uow.FromContext(ctx); within {
		k.log.ErrorContext(ctx, "oncebox: httpmw.Idempotency is mounted inside a transaction, so it cannot send its answer after COMMIT; the request is "+
			"refused: mount Idempotency outside of UnitOfWork")
		return refuse(misplaced())
	}
	if len(lines) == 0 {
		a, outcome := refuse(keyMissing())
		a.header.Add("Link", "<"+k.cfg.ProblemBase+keyMissing().Type+`>; rel="describedby"`)
		return a, outcome
	}
	text, reason := keyRule{k.cfg.StrictKey, k.cfg.MinKey}.parse(lines)
	if reason != "" {
		return refuse(keyInvalid(reason))
	}
	id, err := k.identify(r, text)
	switch {
	case errors.Is(err, idempotency.ErrNoPrincipal):
		a, outcome := refuse(principalMissing())
		if a.header.Get("WWW-Authenticate") == "" {
			a.header.Set("WWW-Authenticate", k.cfg.Challenge)
		}
		return a, outcome
	case err != nil:
		k.log.WarnContext(ctx, "oncebox: the scope function of httpmw.Idempotency returned no valid tenant and principal for a request; the request is "+
			"refused", "error", err)
		return refuse(scopeInvalid())
	}
	// The inner one would wait for the lock that the outer one holds.
	if outer, within := ctx.Value(passedKey{}).(*passed); within && *outer == *id {
		k.log.ErrorContext(ctx, "oncebox: httpmw.Idempotency is mounted twice on this route, so the request is refused: remove one of the "+
			"two", "key", id.key.String())
		return refuse(misplaced())
	}
	if goesOn(next) {
		tellGoesOn(r, k.log, "Idempotency")
		return refuse(misplaced())
	}
	e, p := read(next, w, r, k.cfg.MaxBody)
	if p != nil {
		return refuse(*p)
	}
	e.empty, e.log = k.cfg.EmptyAnswer, k.log
	defer func() {
		if e.begun { // else nobody would answer after the panic, and net/http would send 200
			k.sender.send(answerNotHeld(k.undone()).answer(w, k.retryAfter), w, r)
		}
	}()
	if !e.whole() {
		k.log.ErrorContext(ctx, "oncebox: another middleware has read the body of a request before httpmw.Idempotency, so the request is refused: mount "+
			"Idempotency outside of that middleware, or let that middleware set Request.Body and ContentLength to what the handler shall "+
			"read", "bytes", len(e.body),
			"content_length", r.ContentLength)
		return refuse(misplaced())
	}
	return k.await(ctx, func() (*answer, string) { return k.detached(ctx, e, id) })
}

// passed marks a request that is inside this middleware. A second one of the same store and key would wait for the first for ever.
type passed struct {
	store *idempotency.Store
	key   idempotency.Key
	// tenantFromContext is true if the scope function has set no tenant, and the tenant came from the context. A Tenant middleware
	// further in would be too late for the key.
	tenantFromContext bool
}

type passedKey struct{}

// detached runs the handler with a context that does not end when the client goes away, so that the client's retry gets the answer.
func (k *keyed) detached(ctx context.Context, e *exchange, id *passed) (*answer, string) {
	ctx = context.WithValue(context.WithoutCancel(ctx), passedKey{}, id)
	if k.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, k.cfg.Timeout)
		defer cancel()
	}
	return k.once(ctx, e, &id.key)
}

// errTenantRequired is logged; the client gets the problem idempotency-scope-invalid.
var errTenantRequired = errors.New("httpmw: IdempotencyConfig.RequireTenant is set, but the request has no tenant: mount httpmw.Tenant outside of " +
	"Idempotency, or let the scope function set Scope.Tenant")

// identify returns whose key it is. The method and the path belong to it, so one key may be used for two operations.
func (k *keyed) identify(r *http.Request, text string) (*passed, error) {
	scope, err := k.scope(r)
	if err != nil {
		return nil, err
	}
	id := &passed{store: k.store, tenantFromContext: scope.Tenant == ""}
	if id.tenantFromContext {
		scope.Tenant = event.TenantFrom(r.Context())
	}
	if scope.Tenant == "" && k.cfg.RequireTenant {
		return nil, errTenantRequired
	}
	if scope.Method == "" {
		scope.Method = r.Method
	}
	if scope.Path == "" {
		scope.Path = r.URL.EscapedPath()
	}
	scope.Key = text
	id.key, err = k.store.Key(scope)
	return id, err
}

// The pauses between two looks at a key that another request holds: the first pause and the longest one.
const (
	firstLook = 10 * time.Millisecond
	slowLook  = 250 * time.Millisecond
)

// await tries until no other request holds the key, IdempotencyConfig.Wait has passed, or the client has gone. Between two tries it holds only the
// request, and no connection to the database.
func (k *keyed) await(ctx context.Context, try func() (*answer, string)) (*answer, string) {
	end := time.Now().Add(k.cfg.Wait)
	for n := 1; ; n++ {
		a, outcome := try()
		left := time.Until(end)
		if outcome != outcomeInProgress || left <= 0 {
			return a, outcome
		}
		// The jitter keeps requests that wait for one key from looking at the same moment.
		pause := backoff.Jitter(backoff.Exponential(n, firstLook, slowLook))
		if backoff.Wait(ctx, min(pause, left)) != nil {
			return a, outcome
		}
	}
}

// The outcomes of a request with a key, as the metric counts them.
const (
	outcomeExecuted   = "executed"
	outcomeReleased   = "released"
	outcomeReplayed   = "replayed"
	outcomeInProgress = "in_progress"
	outcomeMismatch   = "mismatch"
	outcomeRefused    = "refused"
	outcomeFailed     = "failed"
	outcomePanicked   = "panicked"
	outcomeUnknown    = "unknown"
	outcomeLost       = "lease_lost"
)

func outcomes() []string {
	return []string{
		outcomeExecuted, outcomeReleased, outcomeReplayed, outcomeInProgress, outcomeMismatch,
		outcomeRefused, outcomeFailed, outcomePanicked, outcomeUnknown, outcomeLost,
	}
}
