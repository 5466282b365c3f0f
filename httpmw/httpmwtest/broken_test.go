package httpmwtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
)

// requests is a proxy that changes what comes in.
func requests(change func(r *http.Request)) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			change(r)
			next.ServeHTTP(w, r)
		})
	}}
}

// answers is a proxy that changes answers on their way out.
func answers(change func(s *service, r *http.Request, a *httptest.ResponseRecorder)) fault {
	return fault{front: func(s *service, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := through(next, r)
			change(s, r, a)
			give(w, a)
		})
	}}
}

// replays changes only answers that are replays.
func replays(change func(r *http.Request, a *httptest.ResponseRecorder)) fault {
	return answers(func(_ *service, r *http.Request, a *httptest.ResponseRecorder) {
		if replayed(r, a) {
			change(r, a)
		}
	})
}

// problems changes only answers that are problems of this kind.
func problems(kind string, change func(a *httptest.ResponseRecorder)) fault {
	return answers(func(_ *service, _ *http.Request, a *httptest.ResponseRecorder) {
		if strings.Contains(a.Body.String(), kind) {
			change(a)
		}
	})
}

// promising changes the member retryable of the problems of a kind.
func promising(kind string, retryable bool) fault {
	return problems(kind, func(a *httptest.ResponseRecorder) {
		rewrite(a, fmt.Sprintf(`"retryable":%t`, !retryable), fmt.Sprintf(`"retryable":%t`, retryable))
	})
}

func through(next http.Handler, r *http.Request) *httptest.ResponseRecorder {
	a := httptest.NewRecorder()
	next.ServeHTTP(a, r)
	return a
}

func give(w http.ResponseWriter, a *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), a.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(a.Code)
	_, _ = w.Write(a.Body.Bytes())
}

// rewrite puts another text into an answer.
func rewrite(a *httptest.ResponseRecorder, from, to string) {
	a.Body = bytes.NewBufferString(strings.ReplaceAll(a.Body.String(), from, to))
}

func keyOf(r *http.Request) string { return strings.Trim(r.Header.Get("Idempotency-Key"), `"`) }

func setKey(r *http.Request, key string) { r.Header["Idempotency-Key"] = []string{key} }

// mixed makes its argument a part of the key.
func mixed(r *http.Request, with string) {
	if r.Header.Get("Idempotency-Key") == "" {
		return
	}
	sum := sha256.Sum256([]byte(keyOf(r) + "\x00" + with))
	setKey(r, hex.EncodeToString(sum[:]))
}

// bodyOf reads the body and leaves it.
func bodyOf(r *http.Request) string {
	text, _ := io.ReadAll(r.Body)
	setBody(r, string(text))
	return string(text)
}

func setBody(r *http.Request, text string) {
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
}

// notes are what a proxy remembers.
type notes struct {
	mu sync.Mutex
	m  map[string]string
}

// first returns what was noted first under the name.
func (n *notes) first(name, value string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = map[string]string{}
	}
	if _, there := n.m[name]; !there {
		n.m[name] = value
	}
	return n.m[name]
}

// again reports whether the name came before.
func (n *notes) again(name string) bool {
	mine := newKey()
	return n.first(name, mine) != mine
}

// remembering is a proxy that changes requests by what it has seen.
func remembering(change func(n *notes, r *http.Request)) fault {
	return fault{front: func(s *service, next http.Handler) http.Handler {
		n := &notes{}
		return requests(func(r *http.Request) { change(n, r) }).front(s, next)
	}}
}

// cached is a proxy that gives the first answer to all requests of one name. "": they pass.
func cached(name func(r *http.Request) string, change func(a *httptest.ResponseRecorder)) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		var mu sync.Mutex
		kept := map[string]*httptest.ResponseRecorder{}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := name(r)
			if n == "" {
				next.ServeHTTP(w, r)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			a, there := kept[n]
			if !there {
				a = through(next, r)
				kept[n] = a
			} else if change != nil {
				change(a)
			}
			give(w, a)
		})
	}}
}

func replayed(_ *http.Request, a *httptest.ResponseRecorder) bool {
	return a.Header().Get("Idempotent-Replayed") != ""
}

func unmarked(_ *http.Request, a *httptest.ResponseRecorder) { a.Header().Del("Idempotent-Replayed") }

func marked(a *httptest.ResponseRecorder) { a.Header().Set("Idempotent-Replayed", "true") }

// stuck is a proxy that takes a key for one in flight for ever once its answer was one of these.
func stuck(when func(a *httptest.ResponseRecorder) bool) fault {
	return fault{front: func(_ *service, next http.Handler) http.Handler {
		var locked sync.Map
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, there := locked.Load(keyOf(r)); there {
				http.Error(w, "locked", http.StatusConflict)
				return
			}
			defer func() {
				if v := recover(); v != nil {
					locked.Store(keyOf(r), true)
					panic(v)
				}
			}()
			a := through(next, r)
			if when(a) {
				locked.Store(keyOf(r), true)
			}
			give(w, a)
		})
	}}
}

// twice is a proxy after whose answers more is done than was asked for.
func twice(when func(r *http.Request, a *httptest.ResponseRecorder) bool) fault {
	return answers(func(s *service, r *http.Request, a *httptest.ResponseRecorder) {
		if when(r, a) {
			if _, err := s.insert(context.WithoutCancel(r.Context())); err != nil {
				panic(err)
			}
		}
	})
}

func status(code int) func(*http.Request, *httptest.ResponseRecorder) bool {
	return func(_ *http.Request, a *httptest.ResponseRecorder) bool { return a.Code == code }
}
