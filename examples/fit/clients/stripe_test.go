package clients

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v82"

	"github.com/oncebox/oncebox/httpmw"
)

// refuse is that of docs/one-part-alone.md.
func refuse(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
	kind, code, status := "idempotency_error", strings.ReplaceAll(p.Type, "-", "_"), p.Status
	switch {
	case p.Retryable:
		code, status = "lock_timeout", http.StatusTooManyRequests
	case p.Status >= http.StatusInternalServerError:
		kind = "api_error"
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Stripe-Should-Retry", strconv.FormatBool(p.Retryable))
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error": {"type": %q, "code": %q, "message": %q}}`, kind, code, p.Title)
}

// sameStatus is Stripe's format with the statuses of the problems.
func sameStatus(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
	w.Header().Set("Stripe-Should-Retry", strconv.FormatBool(p.Retryable))
	w.WriteHeader(p.Status)
	fmt.Fprintf(w, `{"error": {"type": "idempotency_error", "message": %q}}`, p.Title)
}

// retries is how often stripe-go may send a request again.
const retries = 8

// arrivals counts the requests that arrive, by key.
type arrivals struct {
	mu   sync.Mutex
	keys map[string]int
	do   func(n int, next http.Handler, w http.ResponseWriter, r *http.Request)
}

func (a *arrivals) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		a.mu.Lock()
		if a.keys == nil {
			a.keys = map[string]int{}
		}
		a.keys[key]++
		n := a.keys[key]
		a.mu.Unlock()
		if a.do == nil {
			next.ServeHTTP(w, r)
			return
		}
		a.do(n, next, w, r)
	})
}

func (a *arrivals) total() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, of := range a.keys {
		n += of
	}
	return n
}

// stripeClient is the real one, pointed at the service. It does not sleep between its tries.
func stripeClient(t *testing.T, url string) func(key string, cents int64) (*stripe.Charge, error) {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	backend := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: &url, MaxNetworkRetries: stripe.Int64(retries), EnableTelemetry: new(false),
		HTTPClient: &http.Client{Transport: transport}, LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	b, ok := backend.(*stripe.BackendImplementation)
	require.True(t, ok)
	b.SetNetworkRetriesSleep(false)
	client := stripe.NewClient("sk_test", stripe.WithBackends(&stripe.Backends{API: b}))
	return func(key string, cents int64) (*stripe.Charge, error) {
		params := &stripe.ChargeCreateParams{Amount: &cents, Currency: stripe.String("eur")}
		if key != "" {
			params.SetIdempotencyKey(key)
		}
		return client.V1Charges.Create(t.Context(), params)
	}
}

// What no retry helps arrives once in Stripe's format, and as often as stripe-go may send it in another.
func TestStripeGoIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		key    string
		cents  int64
		silent bool
		kind   stripe.ErrorType
	}{
		"reused":  {key: "k", cents: 900, kind: stripe.ErrorTypeIdempotency},
		"invalid": {key: "a b", cents: 500, kind: stripe.ErrorTypeIdempotency},
		"silent":  {key: "k2", cents: 500, silent: true, kind: stripe.ErrorTypeAPI},
	} {
		for format, own := range map[string]httpmw.RefuseFunc{"in Stripe's format": refuse, "as problem+json": nil} {
			t.Run(name+"/"+format, func(t *testing.T) {
				a := &arrivals{}
				s := newService(t, httpmw.IdempotencyConfig{Refuse: own}, a.middleware, func(r *http.Request) bool {
					return !c.silent || r.Header.Get("Idempotency-Key") == "k"
				})
				pay := stripeClient(t, s.URL)
				_, err := pay("k", 500)
				require.NoError(t, err)
				_, err = pay(c.key, c.cents)
				require.Error(t, err)
				refused, ok := errors.AsType[*stripe.Error](err)
				t.Logf("%d requests: %T", a.total()-1, err)
				if own == nil {
					require.False(t, ok)
					require.Equal(t, 1+retries, a.total()-1)
					return
				}
				require.True(t, ok, err)
				require.Equal(t, c.kind, refused.Type)
				require.Equal(t, 1, a.total()-1)
				require.Equal(t, 1, s.payments())
			})
		}
	}
}

// A request that comes while the first one is at work is sent again, with its key, and ends in the answer of the first one.
func TestStripeGoMeetsARequestInFlight(t *testing.T) {
	for format, own := range map[string]httpmw.RefuseFunc{"in Stripe's format": refuse, "as problem+json": nil, "with its status": sameStatus} {
		t.Run(format, func(t *testing.T) {
			begun, finish, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
			a := &arrivals{}
			a.do = func(n int, next http.Handler, w http.ResponseWriter, r *http.Request) {
				if n == 1 {
					defer close(done)
				}
				if n == 3 { // sent again
					close(finish)
					<-done
				}
				next.ServeHTTP(w, r)
			}
			s := newService(t, httpmw.IdempotencyConfig{Refuse: own}, a.middleware, func(*http.Request) bool {
				close(begun)
				<-finish
				return true
			})
			pay := stripeClient(t, s.URL)
			first := make(chan string, 1)
			go func() {
				ch, err := pay("k", 500)
				if err != nil {
					t.Error(err)
					ch = &stripe.Charge{}
				}
				first <- ch.ID
			}()
			<-begun
			ch, err := pay("k", 500)
			if format == "with its status" { // stripe-go looks at no status of an error in its format but 429
				require.Error(t, err)
				require.Equal(t, map[string]int{"k": 2}, a.keys)
				close(finish)
				<-first
				return
			}
			require.NoError(t, err)
			require.Equal(t, <-first, ch.ID)
			require.Equal(t, map[string]int{"k": 3}, a.keys, "all with one key")
			require.Equal(t, 1, s.payments())
		})
	}
}

// stripe-go chooses a key by itself, and sends a request again whose answer was lost.
func TestStripeGoWhoseAnswerIsCut(t *testing.T) {
	a := &arrivals{do: func(n int, next http.Handler, w http.ResponseWriter, r *http.Request) {
		if n > 1 {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}}
	s := newService(t, httpmw.IdempotencyConfig{Required: true, Refuse: refuse}, a.middleware, always)
	pay := stripeClient(t, s.URL)
	for n := int64(1); n <= 3; n++ {
		ch, err := pay("", 500)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("ch_%d", n), ch.ID)
		require.EqualValues(t, n, s.payments())
		require.EqualValues(t, 2*n, a.total())
	}
}
