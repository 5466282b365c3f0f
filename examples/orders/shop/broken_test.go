package shop

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/pgtest"
)

// brokenVariable names what is broken in a process: a rule of httpmwtest.
const brokenVariable = "ORDERS_BROKEN"

// breakage takes a rule away from the service, as a proxy before it would.
type breakage struct {
	// says is part of what the rule's row complains of.
	says  string
	front func(next http.Handler) http.Handler
}

// patience is that of the suite: less where the complaint is that something never came, and its default elsewhere.
func (b breakage) patience() time.Duration {
	if strings.Contains(b.says, "never came true") || strings.Contains(b.says, "one waited for the other") {
		return 3 * time.Second
	}
	return 0
}

// broken returns the handler, or a handler without the rule that the environment names.
func broken(next http.Handler) http.Handler {
	if b, ok := breakages()[os.Getenv(brokenVariable)]; ok {
		return b.front(next)
	}
	return next
}

// Each row of the suite that the service passes fails when its rule is taken away.
func TestConformanceOfACopyWithoutARule(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for promise, b := range breakages() {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestConformance$/^"+strings.ReplaceAll(promise, " ", "_")+"$")
			cmd.Env = append(os.Environ(), brokenVariable+"="+promise, "DATABASE_URL="+pgtest.URL(t))
			output, err := cmd.CombinedOutput()
			require.Error(t, err, "the row passed")
			require.Contains(t, string(output), "--- FAIL: TestConformance/"+strings.ReplaceAll(promise, " ", "_"))
			require.Contains(t, string(output), b.says)
		})
	}
}

// requests changes what comes in.
func requests(change func(r *http.Request)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			change(r)
			next.ServeHTTP(w, r)
		})
	}
}

// answers changes what goes out.
func answers(change func(next http.Handler, r *http.Request, a *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := httptest.NewRecorder()
			next.ServeHTTP(a, r)
			change(next, r, a)
			maps.Copy(w.Header(), a.Header())
			w.Header().Del("Content-Length")
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes())
		})
	}
}

// works places an order when it has answered so.
func works(when func(a *httptest.ResponseRecorder) bool) func(http.Handler) http.Handler {
	return answers(func(next http.Handler, r *http.Request, a *httptest.ResponseRecorder) {
		if !when(a) {
			return
		}
		more := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(placeBody))
		more.Header.Set("X-Tenant-Id", "more")
		more.Header.Set("Idempotency-Key", rand.Text())
		next.ServeHTTP(httptest.NewRecorder(), more)
	})
}

// remembers gives the first answer to all requests with the same key.
func remembers(change func(a *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	var mu sync.Mutex
	kept := map[string]*httptest.ResponseRecorder{}
	return answers(func(_ http.Handler, r *http.Request, a *httptest.ResponseRecorder) {
		mu.Lock()
		defer mu.Unlock()
		key := keyOf(r)
		if key == "" {
			return
		}
		if first, there := kept[key]; there {
			*a = *first
			a.Body = bytes.NewBuffer(bytes.Clone(first.Body.Bytes()))
			change(a)
			return
		}
		first := *a
		first.Body = bytes.NewBuffer(bytes.Clone(a.Body.Bytes()))
		kept[key] = &first
	})
}

// locks has a key in flight for ever when it was answered so.
func locks(when func(a *httptest.ResponseRecorder) bool) func(http.Handler) http.Handler {
	var locked sync.Map
	return answers(func(_ http.Handler, r *http.Request, a *httptest.ResponseRecorder) {
		if _, there := locked.Load(keyOf(r)); there {
			a.Code = http.StatusConflict
		} else if when(a) {
			locked.Store(keyOf(r), true)
		}
	})
}

func keyOf(r *http.Request) string { return strings.Trim(r.Header.Get("Idempotency-Key"), `"`) }

func setKey(r *http.Request, key string) { r.Header["Idempotency-Key"] = []string{key} }

func anotherKey(r *http.Request) { setKey(r, rand.Text()) }

// mix makes something a part of the key.
func mix(r *http.Request, with string) {
	sum := sha256.Sum256([]byte(keyOf(r) + with))
	setKey(r, hex.EncodeToString(sum[:]))
}

func bodyOf(r *http.Request) string {
	text, _ := io.ReadAll(r.Body)
	setBody(r, string(text))
	return string(text)
}

func setBody(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

func rewrite(a *httptest.ResponseRecorder, from, to string) {
	a.Body = bytes.NewBufferString(strings.ReplaceAll(a.Body.String(), from, to))
}

func breakages() map[string]breakage {
	status := func(code int) func(a *httptest.ResponseRecorder) bool {
		return func(a *httptest.ResponseRecorder) bool { return a.Code == code }
	}
	const again = "executed again, or changed"
	var queues sync.Map
	return map[string]breakage{
		"a retry gets the first answer": {again, requests(anotherKey)},
		"replays say so and nothing else does": {"does not say that it is one", answers(func(_ http.Handler, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Del("Idempotent-Replayed")
		})},
		"problems are JSON for clients that take JSON alone": {"for Accept: application/json", requests(func(r *http.Request) { r.Header.Del("Accept") })},
		"raw and quoted are one key": {again, requests(func(r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Idempotency-Key"), `"`) {
				setKey(r, keyOf(r)+"-quoted")
			}
		})},
		"keys of every kind are taken": {"is a key", requests(func(r *http.Request) {
			if len(keyOf(r)) == 1 {
				setKey(r, "")
			}
		})},
		"the case of a key counts": {"it was replayed", requests(func(r *http.Request) { setKey(r, strings.ToLower(keyOf(r))) })},
		"malformed keys are refused": {"a key that is", requests(func(r *http.Request) {
			if strings.Contains(keyOf(r), ",") {
				anotherKey(r)
			}
		})},
		"a required key is missing": {"the status of the refusal", requests(func(r *http.Request) {
			if keyOf(r) == "" {
				anotherKey(r)
			}
		})},
		"other methods are untouched": {"is not concerned with keys", answers(func(_ http.Handler, r *http.Request, a *httptest.ResponseRecorder) {
			if r.Method == http.MethodGet && len(r.Header["Idempotency-Key"]) > 1 {
				a.Code = http.StatusBadRequest
			}
		})},
		"callers never meet":                {"it was replayed", requests(func(r *http.Request) { r.Header.Set("X-Tenant-Id", "one") })},
		"another token of the same caller":  {again, requests(func(r *http.Request) { mix(r, r.Header.Get("Authorization")) })},
		"the same key elsewhere is another": {"two executions have one answer", remembers(func(*httptest.ResponseRecorder) {})},
		"another content is refused":        {"under the same key", requests(func(r *http.Request) { mix(r, bodyOf(r)) })},
		"other words for the same content":  {again, requests(func(r *http.Request) { mix(r, bodyOf(r)) })},
		"many clients at once":              {"the clients' answers differ", requests(anotherKey)},
		"a key in flight is a conflict": {"one waited for the other", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				queue, _ := queues.LoadOrStore(keyOf(r), &sync.Mutex{})
				queue.(*sync.Mutex).Lock()
				defer queue.(*sync.Mutex).Unlock()
				next.ServeHTTP(w, r)
			})
		}},
		"another content in flight": {"the status of the refusal", requests(func(r *http.Request) { r.URL.RawQuery = "" })},
		// A key that was met in flight is so for ever: the service may have answered before it notices that the client has gone.
		"a client that goes away": {"never came true", locks(status(http.StatusConflict))},
		"answers that stay the same are kept": {"404 was executed again", requests(func(r *http.Request) {
			if strings.Contains(r.URL.Path, "00000000") {
				anotherKey(r)
			}
		})},
		"refused work is undone":     {"committed executions", works(status(http.StatusUnprocessableEntity))},
		"a body too large":           {"a body that is too large", requests(func(r *http.Request) { setBody(r, strings.TrimSpace(bodyOf(r))) })},
		"a body that ends too early": {"it should have been executed", requests(func(r *http.Request) { setBody(r, bodyOf(r)) })},
		"work that cannot be committed": {"the status of the refusal", answers(func(_ http.Handler, _ *http.Request, a *httptest.ResponseRecorder) {
			if a.Code == http.StatusServiceUnavailable {
				a.Code = http.StatusCreated
			}
		})},
		"a conflict is run again": {"committed executions", works(status(http.StatusOK))},
		"without the store nothing is executed": {"the problem's type", answers(func(_ http.Handler, _ *http.Request, a *httptest.ResponseRecorder) {
			rewrite(a, "store-unavailable", "unavailable")
		})},
		"an expired key is a new one": {"the end of the answer never came true", remembers(func(a *httptest.ResponseRecorder) {
			a.Header().Set("Idempotent-Replayed", "true")
		})},
		"problems are pages": {"nothing is published", answers(func(_ http.Handler, r *http.Request, a *httptest.ResponseRecorder) {
			if r.Method == http.MethodGet {
				a.Code = http.StatusNotFound
			}
		})},
	}
}
